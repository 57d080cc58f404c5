"""Entries as directories: `ID/record.json`, and `ID/clip.flac` where there is a clip.

An entry is written whole in `incoming/` beside the shelves and moved to its place, and moved back there to be
deleted: whatever kills the process, an entry is there or it is not. Changes are made under a lock of all
processes that share the library. A reader needs no lock: it looks at the shelf's time of change, and reads
what is new.
"""

import logging
import os
import stat
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import ValidationError

from app.voices.changes import incoming, locked, make_directory, sync, write_synced
from app.voices.records import Record

RECORD, CLIP = "record.json", "clip.flac"
MAX_RECORD_BYTES = 2**16  # the longest texts take a third of it
# Times of change are as coarse as the file system's clock, 2 s on the worst: a younger one may hide another.
SETTLED_NS = 2 * 10**9

R = TypeVar("R", bound=Record)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Loaded(Generic[R]):
    """A record, and the inode, time and size of its file: a new one has another inode at least."""

    version: tuple[int, int, int]
    record: R


class Shelf(Generic[R]):
    """The entries of one kind, in the directory `name` of a library."""

    def __init__(self, library: Path, name: str, kind: type[R]) -> None:
        self._library = library
        self._place = library / name
        self._kind = kind
        self._guard = threading.Lock()
        self._settled: int | None = None
        self._loaded: Mapping[str, _Loaded[R]] = {}
        self._entries: Mapping[str, R] = {}
        self._warned: set[str] = set()

    def entries(self, fresh: bool = False) -> Mapping[str, R]:
        """All that are there, by id, the oldest first; those that cannot be used are left out.

        Args:
            fresh: read the directory even where its time says that nothing has changed.
        """
        with self._guard:
            if not self._place.exists():
                return {}
            changed = self._place.stat().st_mtime_ns
            if fresh or changed != self._settled:
                now = time.time_ns()
                self._loaded = self._scan()
                self._entries = _oldest_first(loaded.record for loaded in self._loaded.values())
                self._settled = changed if now - changed > SETTLED_NS else None
            return self._entries

    def put(self, record: R, clip: bytes | None, admit: Callable[[], None]) -> None:
        """Add an entry, unless `admit`, which is called under the lock, raises."""
        with incoming(self._library) as written:
            write_synced(written / RECORD, _json(record))
            if clip is not None:
                write_synced(written / CLIP, clip)
            sync(written)
            make_directory(self._place)
            with locked(self._library):
                admit()
                written.rename(self._place / record.id)
                sync(self._place)

    def replace(self, record: R, admit: Callable[[], None]) -> None:
        """Put another record in the place of one with the same id and clip, unless `admit` raises."""
        with incoming(self._library) as written, locked(self._library):
            admit()
            write_synced(written / RECORD, _json(record))
            (written / RECORD).replace(self._place / record.id / RECORD)
            sync(self._place / record.id)
            os.utime(self._place)  # for the readers

    def remove(self, identifier: str, admit: Callable[[], None]) -> None:
        """Take an entry away, unless `admit` raises."""
        with incoming(self._library) as waste, locked(self._library):
            admit()
            (self._place / identifier).rename(waste / identifier)
            sync(self._place)

    def clip_path(self, identifier: str) -> Path:
        """Where an entry's clip is."""
        return self._place / identifier / CLIP

    def _scan(self) -> dict[str, _Loaded[R]]:
        found: dict[str, _Loaded[R]] = {}
        faults: dict[str, str] = {}
        for name in os.listdir(self._place):
            if name.startswith("."):
                continue
            try:
                found[name] = self._load(name)
            except FileNotFoundError:
                if os.path.lexists(self._place / name):  # else it was removed meanwhile
                    faults[name] = "a file of it is missing"
            except (OSError, ValueError) as error:
                faults[name] = _reason(error)
        self._warn(faults)
        return found

    def _load(self, name: str) -> _Loaded[R]:
        """An entry, from memory where its record has not changed; `ValueError` says what is wrong with it."""
        place = self._place / name
        if not self._kind.id_pattern.fullmatch(name):
            raise ValueError("the name is not an id")
        if not stat.S_ISDIR(place.lstat().st_mode):
            raise ValueError("it is no directory")
        file = (place / RECORD).lstat()
        version = (file.st_ino, file.st_mtime_ns, file.st_size)
        if not stat.S_ISREG(file.st_mode) or file.st_size > MAX_RECORD_BYTES:
            raise ValueError(f"{RECORD} is not a file, or too large for one")
        known = self._loaded.get(name)
        if known and known.version == version:
            record = known.record
        else:
            record = self._kind.model_validate_json((place / RECORD).read_bytes())
        if record.id != name:
            raise ValueError("the record is another's")
        if record.clip is not None:
            clip = (place / CLIP).lstat()
            if not stat.S_ISREG(clip.st_mode) or clip.st_size != record.clip.size:
                raise ValueError(f"{CLIP} is not what was stored")
        return _Loaded(version, record)

    def _warn(self, faults: Mapping[str, str]) -> None:
        new = [f"{name!r} ({reason})" for name, reason in faults.items() if name not in self._warned]
        if new:
            logger.warning("%s has entries that cannot be used: %s", self._place, ", ".join(sorted(new)))
        self._warned = set(faults)


def _oldest_first(records: Iterable[R]) -> dict[str, R]:
    return {record.id: record for record in sorted(records, key=lambda record: (record.created, record.id))}


def _json(record: Record) -> bytes:
    return record.model_dump_json(exclude_none=True).encode()


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        return f"{RECORD}: {field}{': ' if field else ''}{first['msg']}"
    return str(error)
