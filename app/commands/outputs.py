"""Files that appear whole or not at all."""

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


def check_output(path: Path, suffix: str) -> str | None:
    """Why a file cannot be written, or None. Looks by writing: permissions alone do not tell."""
    if path.suffix.lower() != suffix:
        return f"{path} does not end in {suffix}: name it so"
    try:
        if path.exists() and not path.is_file():
            return f"{path} is there and is no file: name another"
        if not path.parent.is_dir():
            return f"{path.parent} is not a directory: make it first"
        with _temporary(path):
            pass
    except OSError as error:
        return f"{path} cannot be written: {error.strerror}"
    return None


def write_whole(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Let `write` fill a file that then takes the place of `path`.

    Raises:
        OSError: it cannot be written; what was at `path` still is.
    """
    with _temporary(path) as (temporary, stream):
        write(stream)
        stream.flush()
        temporary.rename(path)


@contextmanager
def _temporary(path: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """A new file beside `path`, gone at the end unless it was renamed."""
    temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
    with temporary.open("xb") as stream:
        try:
            yield temporary, stream
        finally:
            temporary.unlink(missing_ok=True)
