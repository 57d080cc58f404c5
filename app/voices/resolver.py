"""From the voice that a request names to what the pipeline needs of it, and from an upload to a voice."""

import asyncio
import base64
import io
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO, ParamSpec, TypeVar

from app.errors import InvalidRequest, NotFound, UnsupportedVoice
from app.settings import Settings
from app.voices.decode import Decoder, Limits
from app.voices.library import VoiceLibrary
from app.voices.names import DEFAULT_VOICE, is_built_in
from app.voices.records import ConsentRecord, NewVoice, VoiceRecord
from app.voices.reference import AudioClip, StoredClip

ADDRESS = re.compile(r"[a-z]+://")
MIN_SECONDS = 1.0  # of a recording: less says too little of a voice

P = ParamSpec("P")
T = TypeVar("T")

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Voice:
    """What speech is to sound like; every field but the name may be empty.

    Attributes:
        reference: the clip to imitate.
        transcript: what the clip says; speech then continues it too.
        description: in words.
        cfg, seed: for requests that give none.
    """

    name: str
    reference: AudioClip | StoredClip | None = None
    transcript: str = ""
    description: str = ""
    cfg: float | None = None
    seed: int | None = None


OWN_VOICE = Voice(DEFAULT_VOICE)


class Voices:
    """The library and the decoder, for the event loop: what blocks runs in threads."""

    def __init__(self, library: VoiceLibrary, decoder: Decoder) -> None:
        self.library = library
        self._decoder = decoder

    async def resolve(self, name_or_id: str | None) -> Voice:
        """The voice of that name or id; the model's own for none, `default` and OpenAI's names.

        Raises:
            UnsupportedVoice: there is none.
        """
        if name_or_id is None or is_built_in(name_or_id):
            return OWN_VOICE
        try:
            return self._voice(await self.ask(self.library.voice, name_or_id))
        except NotFound as error:
            raise UnsupportedVoice(str(error), "voice") from error

    async def create(self, new: NewVoice, recording: BinaryIO | None) -> VoiceRecord:
        """Decode a recording and keep a voice of it; or one that is only described.

        Raises:
            InvalidRequest: the recording is no use, the name is taken, the consent is missing, or the library
                is full.
        """
        await self.ask(self.library.check_new, new, recording is not None)
        clip = await self._decoder.decode(recording, "audio_sample") if recording is not None else None
        record = await self.ask(self.library.add_voice, new, clip)
        logger.info("voice %s created", record.id)
        return record

    async def decode_encoded(self, text: str, param: str) -> AudioClip:
        """A recording within a request: base64, or a `data:` URI of it.

        Raises:
            InvalidRequest: it is neither, or the recording is no use.
        """
        return await self._decoder.decode(io.BytesIO(_from_base64(text, param)), param)

    async def create_consent(self, name: str, language: str, recording: BinaryIO) -> ConsentRecord:
        """Decode and keep a consent.

        Raises:
            InvalidRequest: the recording is no use, or the library is full.
        """
        clip = await self._decoder.decode(recording, "recording")
        record = await self.ask(self.library.add_consent, name, language, clip)
        logger.info("consent %s created", record.id)
        return record

    @staticmethod
    async def ask(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What a method of the library answers, called in a thread."""
        return await asyncio.to_thread(call, *args, **kwargs)

    def _voice(self, record: VoiceRecord) -> Voice:
        clip = record.clip
        return Voice(
            name=record.name,
            reference=StoredClip(bytes.fromhex(clip.key), partial(self.library.read_clip, record))
            if clip
            else None,
            transcript=record.transcript or "",
            description=record.description or "",
            cfg=record.cfg,
            seed=record.seed,
        )


def _from_base64(text: str, param: str) -> bytes:
    header, comma, payload = text.partition(",") if text.startswith("data:") else ("", "", text)
    if text.startswith("data:") and not (comma and header.endswith(";base64")):
        raise InvalidRequest("the data URI is not base64: write data:audio/wav;base64,...", param)
    if ADDRESS.match(text):
        raise InvalidRequest("addresses are not fetched here: send the recording itself, in base64", param)
    try:
        return base64.b64decode(payload, validate=True)
    except ValueError as error:
        raise InvalidRequest("the recording is not base64: encode it again", param) from error


def open_voices(settings: Settings) -> Voices:
    """The library that the settings name."""
    library = VoiceLibrary(
        settings.voices_dir.expanduser(), settings.voices_max_count, settings.voices_consent_required
    )
    limits = Limits(settings.voices_max_upload_mib * 2**20, MIN_SECONDS, settings.voices_max_seconds)
    return Voices(library, Decoder(limits))
