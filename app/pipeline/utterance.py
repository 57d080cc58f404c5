"""One utterance of many parts: computed ahead, spoken in turn, in one voice.

Parts come as they are known, from a text that is there or from one that is still being written. Up to
`PARTS_AT_ONCE` of them are in the engine at the same time. A request without audio of its own is anchored:
the speech of its first parts is the reference of those that follow, so that they keep the voice that the seed
drew. Until the anchor is long enough, a part waits for the one before.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, replace

import numpy as np

from app.pipeline.generation import Floats, SpeechPatch
from app.pipeline.speech import SpeechPipeline, SpeechRequest
from app.text.long_text import Part, Pause
from models.voxcpm2 import limits

PARTS_AT_ONCE = 2  # the next part is computed while one is spoken; more would take slots from other requests
ANCHOR_PATCHES = 25  # 4 s at 160 ms: enough of a voice to imitate it
MAX_ANCHOR_PATCHES = 60  # 10 s: more costs positions of every part, and adds nothing

# Seconds of silence after a part, beside the little that the model leaves at its end.
PAUSES_S: dict[Pause, float] = {"paragraph": 0.4, "sentence": 0.15, "clause": 0.05, "none": 0.0}

logger = logging.getLogger(__name__)


@dataclass
class Progress:
    """What was spoken so far; one record for headers, events and the log.

    Attributes:
        patches: spoken, of all parts.
        samples: spoken, pauses included.
        first_s: seconds from the beginning to the first samples; None before.
    """

    patches: int = 0
    samples: int = 0
    first_s: float | None = None


class Utterance:
    """One utterance.

    Args:
        pipeline: speaks the parts.
        request: how to speak, and in which voice; its text is not used. Part i has the seed `seed + i`.
            `max_patches` bounds the whole, `min_patches` holds for each part.
    """

    def __init__(self, pipeline: SpeechPipeline, request: SpeechRequest) -> None:
        self.progress = Progress()
        self._pipeline = pipeline
        self._request = request
        self._anchored = request.reference is None and request.prompt is None
        self._begun: list[_SpokenPart] = []
        self._room = asyncio.Semaphore(PARTS_AT_ONCE)

    async def speak(self, parts: AsyncIterator[Part]) -> AsyncGenerator[Floats, None]:
        """Float32 samples at the pipeline's rate, a patch or a pause at a time.

        Raises:
            InvalidRequest: a part cannot be spoken; of the first, before any samples.
        """
        began = time.monotonic()
        outcome = "failed"
        turns: asyncio.Queue[_SpokenPart | None] = asyncio.Queue()
        beginning = asyncio.create_task(self._begin(parts, turns))
        try:
            async with aclosing(self._in_turn(turns, beginning)) as samples:
                async for piece in samples:
                    if self.progress.first_s is None:
                        self.progress.first_s = time.monotonic() - began
                    self.progress.samples += piece.size
                    yield piece
            outcome = "complete"
        except (asyncio.CancelledError, GeneratorExit):
            outcome = "cancelled"
            raise
        finally:
            await _cancel(beginning, *(part.task for part in self._begun))
            self._log(outcome, time.monotonic() - began)

    @property
    def seconds(self) -> float:
        """Of audio, so far."""
        return self.progress.samples / self._pipeline.sample_rate

    @property
    def text_tokens(self) -> int:
        """Of the parts begun."""
        return sum(part.text_tokens for part in self._begun)

    async def _begin(self, parts: AsyncIterator[Part], turns: "asyncio.Queue[_SpokenPart | None]") -> None:
        """Start parts as they come, as far ahead as they may be."""
        try:
            async for part in parts:
                await self._room.acquire()
                request = self._request_of(part, await self._anchor())
                spoken = _SpokenPart(self._pipeline, request, part.pause)
                self._begun.append(spoken)
                turns.put_nowait(spoken)
        finally:
            turns.put_nowait(None)

    def _request_of(self, part: Part, anchor: Floats | None) -> SpeechRequest:
        generation = self._request.generation
        seed = (generation.seed + len(self._begun)) % (limits.MAX_SEED + 1)
        return replace(
            self._request, text=part.text, anchor=anchor, generation=replace(generation, seed=seed)
        )

    async def _anchor(self) -> Floats | None:
        """Patches `[N, patch_size, feat_dim]` of as many first parts as are enough, once they are there."""
        if not self._anchored:
            return None
        latents: list[Floats] = []
        for part in self._begun:
            await asyncio.wait([part.task])
            latents += part.latents
            if len(latents) >= ANCHOR_PATCHES:
                break
        return np.stack(latents[:MAX_ANCHOR_PATCHES]) if latents else None

    async def _in_turn(
        self, turns: "asyncio.Queue[_SpokenPart | None]", beginning: asyncio.Task[None]
    ) -> AsyncGenerator[Floats, None]:
        pause: Pause = "none"
        while (part := await turns.get()) is not None:
            async for patch in part.patches():
                if pause != "none":
                    yield np.zeros(round(PAUSES_S[pause] * self._pipeline.sample_rate), np.float32)
                    pause = "none"
                self.progress.patches += 1
                yield patch.pcm
                if self.progress.patches >= self._request.generation.max_patches:
                    return
            pause = part.pause
            self._room.release()
        await beginning  # raises what ended it

    def _log(self, outcome: str, elapsed_s: float) -> None:
        progress = self.progress
        logger.info(
            "speech %s: %d parts, %d patches, %.2f s of audio in %.3f s, the first after %.3f s",
            outcome,
            len(self._begun),
            progress.patches,
            self.seconds,
            elapsed_s,
            progress.first_s or 0.0,
        )


class _SpokenPart:
    """A part in the engine: computed by a task of its own, read when its turn comes.

    What waits to be read is bounded by the length that the engine allows a part.
    """

    def __init__(self, pipeline: SpeechPipeline, request: SpeechRequest, pause: Pause) -> None:
        self.pause = pause
        self.latents: list[Floats] = []
        self.text_tokens = 0
        self._waiting: asyncio.Queue[SpeechPatch | None] = asyncio.Queue()
        self.task = asyncio.create_task(self._compute(pipeline, request))

    async def patches(self) -> AsyncGenerator[SpeechPatch, None]:
        """All of them; an error of the task is raised in the place of what it did not make."""
        while (patch := await self._waiting.get()) is not None:
            yield patch
        await self.task

    async def _compute(self, pipeline: SpeechPipeline, request: SpeechRequest) -> None:
        try:
            prompt = await pipeline.prepare(request)
            self.text_tokens = len(prompt.token_ids) - sum(span.length for span in prompt.spans)
            async with aclosing(pipeline.speak(prompt, request.generation)) as patches:
                async for patch in patches:
                    self.latents.append(patch.latents)
                    self._waiting.put_nowait(patch)
        finally:
            self._waiting.put_nowait(None)


async def _cancel(*tasks: asyncio.Task[None]) -> None:
    """End tasks, and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
