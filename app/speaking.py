"""From what a request says of its speech to encoded audio: what REST, events and sockets have in common."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from app.audio.formats import Output, choose_output
from app.audio.pool import EncoderPool
from app.errors import InvalidRequest
from app.lifecycle import EngineService
from app.pipeline.generation import Generation, draw_seed
from app.pipeline.speech import SpeechPipeline, SpeechRequest
from app.pipeline.utterance import Utterance
from app.schemas import SpeechOptions
from app.settings import Settings
from app.text.long_text import Part, parts
from app.text.normalise import normalise
from app.voices.resolver import Voice, Voices
from models.voxcpm2 import limits

PART_CHARS = 300  # of a long text: some 20 s of speech, well within the model's context


@dataclass(frozen=True)
class Manner:
    """How a text is to be spoken.

    Attributes:
        request: voice and parameters; its text is not used.
        output: format and rate of the audio.
        speed: factor on the tempo.
        normalize: whether numbers and the like are written out.
    """

    request: SpeechRequest
    output: Output
    speed: float
    normalize: bool


@dataclass(frozen=True)
class Spoken:
    """Speech that is being made.

    Attributes:
        utterance: says how far it is.
        audio: encoded, as it is made.
    """

    utterance: Utterance
    audio: AsyncGenerator[bytes, None]


class Speaker:
    """Speaks by one engine.

    Args:
        service: the engine.
        encoders: threads for the audio.
        voices: the library.
        settings: limits.
    """

    def __init__(
        self,
        service: EngineService[SpeechPipeline],
        encoders: EncoderPool,
        voices: Voices,
        settings: Settings,
    ) -> None:
        self.max_input_chars = settings.max_input_chars
        self._service = service
        self._encoders = encoders
        self._voices = voices

    def request(self) -> AbstractContextManager[None]:
        """One more request is there, until its answer has been sent. For sockets: routes count theirs."""
        return self._service.request()

    def require_engine(self) -> None:
        """Raise the `VoxserveError` that keeps the engine from taking a request, if there is one."""
        _ = self._service.pipeline

    async def manner(self, options: SpeechOptions) -> Manner:
        """What the options come to.

        Raises:
            InvalidRequest: they do not go together, or their audio cannot be used.
            UnsupportedVoice: there is no such voice.
            EngineUnavailable: only the engine knows its sample rate.
        """
        pipeline = self._service.pipeline
        output = choose_output(options.response_format, pipeline.sample_rate, options.sample_rate)
        voice = await self._voices.resolve(options.voice)
        if options.reference_audio:
            clip = await self._voices.decode_encoded(options.reference_audio, "reference_audio")
            voice = Voice("", reference=clip, transcript=options.reference_text or "")
        if options.description and voice.description:
            raise InvalidRequest(
                f"the voice {voice.name!r} has a description of its own: leave yours out", "instructions"
            )
        request = SpeechRequest(
            text="",
            generation=_generation(options, voice),
            reference=voice.reference,
            prompt=voice.reference if voice.transcript else None,
            prompt_text=voice.transcript,
            description=options.description or voice.description,
        )
        return Manner(request, output, options.speed or 1.0, options.normalize)

    async def parts(self, text: str, param: str = "input") -> list[Part]:
        """A whole text in parts that the model can speak.

        Raises:
            InvalidRequest: the text is too long, or there is nothing to say.
        """
        if len(text) > self.max_input_chars:
            raise InvalidRequest(
                f"the text has {len(text)} characters, the limit is {self.max_input_chars}: send it in parts",
                param,
            )
        return await asyncio.to_thread(parts, text, PART_CHARS) or [Part(text, "none")]

    def speak(self, manner: Manner, parts: AsyncIterator[Part], *, streamed: bool = True) -> Spoken:
        """Speak parts as they come.

        Raises:
            EngineUnavailable, Overloaded: the engine takes no request.
        """
        pipeline = self._service.pipeline
        utterance = Utterance(pipeline, manner.request)
        written_out = _written_out(parts) if manner.normalize else parts
        audio = self._encoders.encode(
            utterance.speak(written_out),
            pipeline.sample_rate,
            manner.output,
            speed=manner.speed,
            streamed=streamed,
        )
        return Spoken(utterance, audio)


def _generation(options: SpeechOptions, voice: Voice) -> Generation:
    seed = voice.seed if options.seed is None else options.seed
    cfg = voice.cfg if options.cfg_value is None else options.cfg_value
    return Generation(
        seed=draw_seed() if seed is None else seed,
        cfg=limits.DEFAULT_CFG if cfg is None else cfg,
        steps=options.inference_timesteps,
        temperature=options.temperature,
        min_patches=options.min_patches,
        max_patches=options.max_patches,
    )


async def one_by_one(parts: Sequence[Part]) -> AsyncGenerator[Part, None]:
    """Parts that are all there."""
    for part in parts:
        yield part


async def _written_out(parts: AsyncIterator[Part]) -> AsyncGenerator[Part, None]:
    async for part in parts:
        yield replace(part, text=await asyncio.to_thread(normalise, part.text) or part.text)
