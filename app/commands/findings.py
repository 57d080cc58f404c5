"""What `voxserve doctor` finds."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """One thing looked at.

    Attributes:
        name: of the thing.
        ok: whether the service can run with it as it is.
        detail: what it is, or what is wrong.
        remedy: what to do about it; empty where all is well.
    """

    name: str
    ok: bool
    detail: str
    remedy: str = ""


def ok(name: str, detail: str) -> Finding:
    """All is well."""
    return Finding(name, True, detail)


def failed(name: str, detail: str, remedy: str) -> Finding:
    """Something is wrong, and can be remedied."""
    return Finding(name, False, detail, remedy)
