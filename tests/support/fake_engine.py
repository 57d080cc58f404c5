"""A speech engine without a model: what it says depends on the seed alone, and it fails when told to."""

import asyncio
from collections.abc import AsyncGenerator

import numpy as np
import numpy.typing as npt

from app.pipeline.generation import Generation, SpeechPatch
from models.voxcpm2.config import read_config
from models.voxcpm2.prompt import Patches, Prompt
from tests.support.golden import CHECKPOINT


class FakeEngine:
    """The surface of `SpeechEngine` that the service uses.

    Args:
        patches: length of each answer, unless the request bounds it lower.
        delay_s: before each patch.
        fail_at: number of the patch in whose place `error` is raised.

    Attributes:
        requests: prompt and parameters of every answer that was begun.
        encoded: samples of every clip, as they came.
    """

    def __init__(
        self,
        patches: int = 6,
        delay_s: float = 0.0,
        fail_at: int | None = None,
        error: Exception | None = None,
    ) -> None:
        self.config = read_config(CHECKPOINT)
        self.max_model_len = 512
        self.errored = False
        self.running = 0
        self.made = 0
        self.shut_down = False
        self.requests: list[tuple[Prompt, Generation]] = []
        self.encoded: list[npt.NDArray[np.float32]] = []
        self._patches = patches
        self._delay_s = delay_s
        self._fail_at = fail_at
        self._error = error

    async def generate(self, prompt: Prompt, generation: Generation) -> AsyncGenerator[SpeechPatch, None]:
        self.requests.append((prompt, generation))
        self.running += 1
        try:
            for index in range(min(self._patches, generation.max_patches, prompt.patch_limit)):
                await asyncio.sleep(self._delay_s)
                if index == self._fail_at and self._error:
                    raise self._error
                self.made += 1
                yield self._patch(generation.seed, index)
        finally:
            self.running -= 1

    async def encode_audio(self, samples: npt.NDArray[np.float32]) -> Patches:
        """Each patch is the mean of its samples, over and over: patches of different audio differ."""
        self.encoded.append(samples)
        means = samples.reshape(-1, self.config.patch_input_samples).mean(axis=1)
        shape = (means.size, self.config.patch_size, self.config.feat_dim)
        return np.broadcast_to(means[:, None, None], shape).copy()

    async def stats(self) -> list[dict[str, int]]:
        return [{"running": self.running}]

    async def shutdown(self) -> None:
        self.shut_down = True

    def _patch(self, seed: int, index: int) -> SpeechPatch:
        generator = np.random.default_rng((seed, index))
        noise = generator.uniform(-1.2, 1.2, self.config.patch_output_samples).astype(np.float32)
        latents = generator.normal(size=(self.config.patch_size, self.config.feat_dim)).astype(np.float32)
        return SpeechPatch(index, noise, latents, np.zeros(2, np.float32))
