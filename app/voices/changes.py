"""Changes to a library that happen wholly or not at all, one at a time among all processes that share it."""

import fcntl
import logging
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOCK, INCOMING = ".lock", "incoming"
PRIVATE = 0o700  # people's voices are nobody else's business
LEFTOVER_AGE_S = 3600.0  # what is older was left by a process that died: a write takes seconds
LOCK_TIMEOUT_S = 10.0  # others hold it for milliseconds
LOCK_INTERVAL_S = 0.01

logger = logging.getLogger(__name__)


def clean(library: Path) -> None:
    """Remove what processes that died have left in the middle of a write."""
    try:
        leftovers = list((library / INCOMING).iterdir())
    except FileNotFoundError:
        return
    oldest = time.time() - LEFTOVER_AGE_S
    for leftover in leftovers:
        try:
            is_stale = leftover.lstat().st_ctime < oldest
        except FileNotFoundError:  # another process cleans
            continue
        if is_stale:
            logger.info("removing %s, which a process that ended has left", leftover)
            shutil.rmtree(leftover, ignore_errors=True)


@contextmanager
def locked(library: Path) -> Iterator[None]:
    """Alone among all processes and threads that change the library.

    Raises:
        TimeoutError: another holds it for longer than any change takes.
    """
    descriptor = os.open(library / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + LOCK_TIMEOUT_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise TimeoutError("another process holds its lock") from None
                time.sleep(LOCK_INTERVAL_S)
        yield
    finally:
        os.close(descriptor)  # which also unlocks


@contextmanager
def incoming(library: Path) -> Iterator[Path]:
    """A new directory on the library's file system, removed at the end with what is still in it."""
    make_directory(library / INCOMING)
    place = library / INCOMING / secrets.token_hex(8)
    place.mkdir(PRIVATE)
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def make_directory(path: Path) -> None:
    """Make a directory where there is none, private from the library's on."""
    if not path.is_dir():
        path.parent.mkdir(PRIVATE, parents=True, exist_ok=True)
        path.mkdir(PRIVATE, exist_ok=True)
        sync(path.parent)


def write_synced(path: Path, data: bytes) -> None:
    """Write a new file that survives a loss of power, once its directory does."""
    with path.open("xb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())


def sync(directory: Path) -> None:
    """See to it that a directory's entries survive a loss of power."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
