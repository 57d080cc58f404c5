"""What checkpoints of every model have in common: how they fail, and the directories that we make ourselves.

A directory appears whole or not at all, and nothing but an earlier one of ours is ever replaced.
"""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path

MADE_BY = "voxserve make-checkpoint"  # in config.json; what does not say so is never overwritten
CONFIG_FILE = "config.json"
FILES = frozenset(
    {
        CONFIG_FILE,
        "generation_config.json",
        "model.safetensors",
        "audiovae.pth",
        "tokenizer.json",
        "tokenizer_config.json",
    }
)  # of all that we make


class CheckpointError(ValueError):
    """A checkpoint cannot be used, or made; says what to do."""


def make_directory(directory: Path, write: Callable[[Path], None], *, force: bool = False) -> None:
    """Make a checkpoint directory. Parent directories are made.

    Args:
        directory: absent or empty; with `force` also one that we made.
        write: fills an empty directory.
        force: replace an earlier checkpoint of ours.

    Raises:
        CheckpointError: something else is there.
        OSError: it cannot be written.
    """
    directory = directory.resolve()
    _require_replaceable(directory, force)
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{directory.name}-", dir=directory.parent) as scratch:
        fresh = Path(scratch) / "fresh"
        fresh.mkdir()
        write(fresh)
        if directory.exists():
            directory.rename(Path(scratch) / "replaced")
        try:
            fresh.rename(directory)
        except OSError:
            if not made_here(directory):  # else another process was quicker
                raise


def made_here(directory: Path) -> bool:
    """Whether `directory` is a checkpoint of ours, and nothing besides."""
    try:
        config = json.loads((directory / CONFIG_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    made_by = config.get("made_by") if isinstance(config, dict) else None
    return made_by == MADE_BY and {path.name for path in directory.iterdir()} <= FILES


def write_json(path: Path, content: object) -> None:
    """Write a file as the released ones are."""
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _require_replaceable(directory: Path, force: bool) -> None:
    if not directory.exists():
        return
    if not directory.is_dir():
        raise CheckpointError(f"{directory} is a file: name a directory to make")
    if not any(directory.iterdir()):
        return
    if not made_here(directory):
        raise CheckpointError(
            f"{directory} is not empty, and what it holds is not of `{MADE_BY}`: name another directory"
        )
    if not force:
        raise CheckpointError(f"{directory} already holds a checkpoint: name another, or use --force")
