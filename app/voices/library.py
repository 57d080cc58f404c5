"""The voice library: voices and consents in a directory that several server processes share.

    DIRECTORY/voices/voice_…/     record.json, clip.flac
    DIRECTORY/consents/cons_…/    record.json, clip.flac
    DIRECTORY/incoming/           what is being written, or was when a process died
    DIRECTORY/.lock               held while something changes

Every call does blocking input and output: call it from a thread.
"""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from app.errors import InvalidRequest, NotFound, StorageFailed
from app.voices.changes import clean
from app.voices.clips import DamagedClip, read_flac, to_flac
from app.voices.names import CONSENT_ID, name_key
from app.voices.records import ConsentRecord, NewVoice, VoiceRecord, new_id
from app.voices.reference import AudioClip
from app.voices.shelf import Shelf

logger = logging.getLogger(__name__)


class VoiceLibrary:
    """The library in a directory, which is made when the first voice comes.

    Args:
        directory: where it is. Leftovers of processes that died are removed from it.
        max_entries: voices that it holds at most, and consents.
        consent_required: whether a voice with a clip needs a consent that is recorded here.
    """

    def __init__(self, directory: Path, max_entries: int, consent_required: bool = False) -> None:
        self._max_entries = max_entries
        self._consent_required = consent_required
        self._voices = Shelf(directory, "voices", VoiceRecord)
        self._consents = Shelf(directory, "consents", ConsentRecord)
        try:
            clean(directory)
        except OSError as error:
            logger.warning("the voice library %s cannot be used: %s", directory, error)

    def voices(self) -> list[VoiceRecord]:
        """All voices, the oldest first."""
        with _storage():
            return list(self._voices.entries().values())

    def voice(self, name_or_id: str) -> VoiceRecord:
        """The voice of that id, or else of that name.

        Raises:
            NotFound: there is none.
        """
        with _storage():
            return self._find_voice(name_or_id)

    def check_new(self, voice: NewVoice, with_clip: bool) -> None:
        """Raise what `add_voice` would, before the work of decoding is done."""
        with _storage():
            self._admit(voice, with_clip)

    def add_voice(self, voice: NewVoice, clip: AudioClip | None) -> VoiceRecord:
        """Keep a voice.

        Raises:
            InvalidRequest: its name is taken, its consent is missing, or the library is full.
        """
        flac, stored = to_flac(clip) if clip else (None, None)
        record = VoiceRecord(id=new_id("voice"), created=time.time(), clip=stored, **voice.model_dump())
        with _storage():
            self._voices.put(record, flac, lambda: self._admit(voice, with_clip=clip is not None))
        return record

    def delete_voice(self, name_or_id: str) -> VoiceRecord:
        """Remove a voice; its consent stays.

        Raises:
            NotFound: there is none.
        """
        with _storage():
            record = self._find_voice(name_or_id)
            self._voices.remove(record.id, lambda: self._still_there(self._voices, record.id, "voice"))
        return record

    def read_clip(self, record: VoiceRecord) -> AudioClip:
        """The recording of a voice that has one.

        Raises:
            NotFound: the voice was deleted meanwhile.
            StorageFailed: the file is damaged.
        """
        assert record.clip is not None
        with _storage():
            try:
                return read_flac(self._voices.clip_path(record.id), record.clip)
            except FileNotFoundError as error:
                raise NotFound(f"the voice {record.name!r} was deleted: choose another", "voice") from error
            except DamagedClip as error:
                logger.error("voice %s: %s", record.id, error)
                raise StorageFailed(
                    f"the recording of the voice {record.name!r} is damaged: delete it, and create it again"
                ) from error

    def consents(self) -> list[ConsentRecord]:
        """All consents, the oldest first."""
        with _storage():
            return list(self._consents.entries().values())

    def consent(self, identifier: str) -> ConsentRecord:
        """The consent of that id.

        Raises:
            NotFound: there is none.
        """
        with _storage():
            return self._find_consent(identifier)

    def add_consent(self, name: str, language: str, clip: AudioClip) -> ConsentRecord:
        """Keep a consent.

        Raises:
            InvalidRequest: the library is full.
        """
        flac, stored = to_flac(clip)
        record = ConsentRecord(
            id=new_id("cons"), created=time.time(), name=name, language=language, clip=stored
        )

        def admit() -> None:
            self._check_room(len(self._consents.entries(fresh=True)), "consents")

        with _storage():
            self._consents.put(record, flac, admit)
        return record

    def rename_consent(self, identifier: str, name: str) -> ConsentRecord:
        """Give a consent another name.

        Raises:
            NotFound: there is none.
        """
        with _storage():
            record = self._find_consent(identifier).model_copy(update={"name": name})
            self._consents.replace(record, lambda: self._still_there(self._consents, identifier, "consent"))
        return record

    def delete_consent(self, identifier: str) -> ConsentRecord:
        """Remove a consent.

        Raises:
            NotFound: there is none.
            InvalidRequest: a voice rests on it.
        """
        with _storage():
            record = self._find_consent(identifier)
            self._consents.remove(identifier, lambda: self._nothing_rests_on(identifier))
        return record

    def _find_voice(self, name_or_id: str) -> VoiceRecord:
        voices = self._voices.entries()
        if record := voices.get(name_or_id):
            return record
        key = name_key(name_or_id)
        for record in voices.values():
            if name_key(record.name) == key:
                return record
        raise NotFound(
            f"there is no voice {name_or_id!r}: GET /v1/audio/voices lists those there are", "voice"
        )

    def _find_consent(self, identifier: str) -> ConsentRecord:
        if record := self._consents.entries().get(identifier):
            return record
        raise NotFound(
            f"there is no consent {identifier!r}: GET /v1/audio/voice_consents lists those there are",
            "consent",
        )

    def _admit(self, voice: NewVoice, with_clip: bool) -> None:
        voices = self._voices.entries(fresh=True)
        self._check_room(len(voices), "voices")
        key = name_key(voice.name)
        if any(name_key(record.name) == key for record in voices.values()):
            raise InvalidRequest(
                f"there is a voice {voice.name!r} already: choose another name, or delete it first", "name"
            )
        if with_clip:
            self._check_consent(voice.consent)

    def _check_consent(self, consent: str | None) -> None:
        is_ours = consent is not None and CONSENT_ID.fullmatch(consent)
        if consent is None and self._consent_required:
            raise InvalidRequest(
                "a consent is required here: record one with POST /v1/audio/voice_consents, and send its id",
                "consent",
            )
        if consent is None or (not is_ours and not self._consent_required):
            return
        if consent not in self._consents.entries(fresh=True):
            raise InvalidRequest(
                f"there is no consent {consent!r}: record one with POST /v1/audio/voice_consents", "consent"
            )

    def _check_room(self, count: int, kind: str) -> None:
        if count >= self._max_entries:
            raise InvalidRequest(
                f"the library holds {count} {kind}, and no more than that: delete one (VOICES_MAX_COUNT)"
            )

    def _still_there(
        self, shelf: Shelf[VoiceRecord] | Shelf[ConsentRecord], identifier: str, kind: str
    ) -> None:
        if identifier not in shelf.entries(fresh=True):
            raise NotFound(f"there is no {kind} {identifier!r} any more", kind)

    def _nothing_rests_on(self, identifier: str) -> None:
        self._still_there(self._consents, identifier, "consent")
        names = [
            record.name
            for record in self._voices.entries(fresh=True).values()
            if record.consent == identifier
        ]
        if names:
            raise InvalidRequest(
                f"the voice {names[0]!r} rests on this consent: delete the voice first", "consent"
            )


@contextmanager
def _storage() -> Iterator[None]:
    """Failures of the file system, as errors for callers."""
    try:
        yield
    except OSError as error:
        logger.exception("the voice library failed")
        raise StorageFailed(
            f"the voice library cannot be used ({error.strerror or error}): see the server's log"
        ) from error
