"""From a request to a stream of patches: the order of the pipeline's stages.

text and audio -> `voices.reference` (latents) -> `models.voxcpm2.prompt` (ids) -> `engine` (patches)
"""

import unicodedata
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.errors import InvalidRequest
from app.pipeline.generation import Generation, SpeechPatch
from app.voices.reference import AudioClip, ReferenceCache, StoredClip
from models.voxcpm2.prompt import Conditioning, Patches, Prompt, PromptBuilder
from models.voxcpm2.tokenizer import TextTokenizer

if TYPE_CHECKING:
    from app.pipeline.engine import SpeechEngine


@dataclass(frozen=True)
class SpeechRequest:
    """One text to speak.

    Attributes:
        text: what to say.
        generation: how.
        reference: a voice to imitate.
        prompt: audio to continue, which says `prompt_text`.
        anchor: `reference` in the form of latents `[N, patch_size, feat_dim]`, where there is none.
        description: of the voice or its manner. It goes before all text, in parentheses.
    """

    text: str
    generation: Generation
    reference: AudioClip | StoredClip | None = None
    prompt: AudioClip | StoredClip | None = None
    prompt_text: str = ""
    anchor: Patches | None = None
    description: str = ""


class SpeechPipeline:
    """Speech from one engine."""

    def __init__(self, engine: "SpeechEngine", tokenizer: TextTokenizer) -> None:
        config = engine.config
        self.engine = engine
        self._references = ReferenceCache(engine)
        self._builder = PromptBuilder(
            tokenizer, config.lm_config.vocab_size, (config.patch_size, config.feat_dim)
        )

    @property
    def sample_rate(self) -> int:
        """Rate of the PCM in Hz."""
        return self.engine.config.sample_rate

    @property
    def errored(self) -> bool:
        """Whether the engine is dead."""
        return self.engine.errored

    @property
    def running(self) -> int:
        """Requests in the engine."""
        return self.engine.running

    async def warm_up(self) -> None:
        """Speak one patch by the way that requests take."""
        request = SpeechRequest("Hello.", Generation(seed=0, max_patches=1))
        prompt = await self.prepare(request)
        async with aclosing(self.speak(prompt, request.generation)) as patches:
            async for _ in patches:
                pass

    async def shutdown(self) -> None:
        """End the engine."""
        await self.engine.shutdown()

    async def prepare(self, request: SpeechRequest) -> Prompt:
        """Lay a request out, its audio encoded.

        Raises:
            InvalidRequest: there is nothing to say, audio and its text do not come together, a description
                comes with audio that is only continued, or the request is longer than the model's context.
        """
        if not any(map(_is_visible, request.text)):
            raise InvalidRequest("the text is empty: give at least one word", "input")
        if (request.prompt is None) != (not request.prompt_text):
            raise InvalidRequest("prompt audio and prompt text belong together: give both or neither")
        if request.description and request.prompt is not None and request.reference is None:
            raise InvalidRequest(
                "a description would be read aloud where audio is only continued: give the audio as a "
                "reference too, or leave the description out",
                "voice_description",
            )
        conditioning = Conditioning(
            reference=await self._references.encode(request.reference, "right")
            if request.reference
            else request.anchor,
            prompt=await self._references.encode(request.prompt, "left") if request.prompt else None,
            prompt_text=(f"({request.description})" if request.description else "") + request.prompt_text,
        )
        try:
            prompt = self._builder.build(request.text, conditioning)
            prompt.require_room(self.engine.max_model_len)
        except ValueError as error:
            raise InvalidRequest(str(error), "input") from error
        return prompt

    async def speak(self, prompt: Prompt, generation: Generation) -> AsyncGenerator[SpeechPatch, None]:
        """Patches of a prepared request, each as soon as it is there."""
        async with aclosing(self.engine.generate(prompt, generation)) as patches:
            async for patch in patches:
                yield patch


def _is_visible(character: str) -> bool:
    """Neither space nor control nor formatting: Unicode's categories Z and C."""
    return unicodedata.category(character)[0] not in "ZC"
