"""The speech engine: an asynchronous vLLM engine that answers with patches.

Life: `SpeechEngine.start` (a minute, in a thread), any number of concurrent `generate`, `shutdown`. A
generator that is closed or cancelled aborts its request. The engine's death ends every generator with
`EngineDead` and sets `errored` for good.
"""

import asyncio
import contextlib
import itertools
import logging
from collections.abc import AsyncGenerator, Coroutine
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
from vllm import SamplingParams
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.inputs.engine import tokens_input
from vllm.outputs import RequestOutput
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError

from app.errors import EngineDead, GenerationFailed, dead_message
from app.pipeline.build import build, shared_arguments
from app.pipeline.generation import Generation, SpeechPatch
from app.pipeline.options import EngineOptions
from models import compat
from models.plugin import VOXCPM2_FORMAT, register
from models.runtime.audio_channel import AUDIO_ENDPOINT, AudioReceiver, ReceivedPatch
from models.voxcpm2.config import VoxCPM2ModelConfig, read_config
from models.voxcpm2.prompt import Patches, Prompt, SpeechParams
from models.voxcpm2.weights import check_checkpoint

logger = logging.getLogger(__name__)

LAST_PATCHES_TIMEOUT_S = 30.0  # between the engine's word that a request is finished and its last patch
DEAD = dead_message("speech")
FAILED = "the speech engine failed on this request: see the log"
ALIVE_INTERVAL_S = 1.0  # between looks at whether the engine lives, while its encoder is waited for
SHUTDOWN_TIMEOUT_S = 20.0  # for the engine's processes to leave by themselves; then they are killed


class SpeechEngine:
    """Speech from one checkpoint."""

    def __init__(
        self,
        llm: AsyncLLM,
        receiver: AudioReceiver,
        config: VoxCPM2ModelConfig,
        sockets: TemporaryDirectory[str],
    ) -> None:
        self._llm: AsyncLLM | None = llm
        self._receiver = receiver
        self._sockets = sockets
        self._names = itertools.count()
        self.config = config
        self.max_model_len: int = llm.model_config.max_model_len

    @classmethod
    async def start(cls, checkpoint: Path, options: EngineOptions) -> "SpeechEngine":
        """Load `checkpoint` into a new engine and wait until it takes requests.

        Raises:
            CheckpointError: the checkpoint is unusable.
            EngineDead: the engine's process ended before it was ready.
        """
        config = read_config(checkpoint)
        config.require_divisible(options.tensor_parallel_size)
        await asyncio.to_thread(check_checkpoint, checkpoint)  # in a worker its message would be lost
        sockets = TemporaryDirectory(prefix="voxserve-")
        endpoint = f"ipc://{sockets.name}/audio"
        receiver = AudioReceiver(endpoint)
        try:
            llm = await asyncio.to_thread(_build, checkpoint, options, endpoint)
        except BaseException as error:
            await receiver.close()
            sockets.cleanup()
            if not isinstance(error, Exception):
                raise
            raise EngineDead(f"the speech engine did not start: {error}") from error
        return cls(llm, receiver, config, sockets)

    @property
    def errored(self) -> bool:
        """Whether the engine is dead."""
        return self._llm is None or self._llm.errored or self._receiver.failed

    @property
    def running(self) -> int:
        """Requests in the engine, as the API process sees it."""
        return self._receiver.open_channels

    async def generate(self, prompt: Prompt, generation: Generation) -> AsyncGenerator[SpeechPatch, None]:
        """Patches of one request, each as soon as it is there, in order and complete.

        Close the generator (`aclosing`) to abort the request.

        Raises:
            EngineDead: the engine died.
            GenerationFailed: this request broke.
        """
        name = f"speech-{next(self._names)}"
        patches = self._receiver.open(name)
        finished = asyncio.create_task(self._run(name, prompt, generation))
        try:
            received = 0
            while True:
                patch = await self._next_patch(patches, finished, received)
                if patch is None:
                    return
                if patch.index != received:
                    raise GenerationFailed(f"patch {received} was lost on the way from the engine: try again")
                received += 1
                yield self._unpack(patch)
        finally:
            self._receiver.close_channel(name)
            finished.cancel()
            with contextlib.suppress(asyncio.CancelledError, EngineDead, GenerationFailed):
                await finished

    async def encode_audio(self, samples: npt.NDArray[np.float32]) -> Patches:
        """VAE-encode conditioning audio.

        Args:
            samples: float32 mono at the AudioVAE's input rate, a whole number of patches.

        Returns:
            float32 `[patches, patch_size, feat_dim]`.
        """
        assert samples.size % self.config.patch_input_samples == 0
        name = f"reference-{next(self._names)}"
        latents = self._receiver.open(name)
        try:
            await self._call("encode_audio", name, np.ascontiguousarray(samples, np.float32).tobytes())
            row = (await self._while_alive(latents.get())).row
        finally:
            self._receiver.close_channel(name)
        if not row.size:
            raise GenerationFailed("the engine could not encode the audio: see the log")
        return row.reshape(-1, self.config.patch_size, self.config.feat_dim)

    async def stats(self) -> list[dict[str, int]]:
        """Counters of the request state, one record a worker."""
        return await self._call("speech_stats")

    async def run_dummy_step(self) -> None:
        """A forward without requests, as vLLM runs them to profile memory."""
        await self._call("execute_dummy_batch")

    async def reset_prefix_cache(self) -> bool:
        """Forget all cached prefixes."""
        return await self._live.reset_prefix_cache()

    @property
    def _live(self) -> AsyncLLM:
        """The engine, or `EngineDead`."""
        if self._llm is None or self.errored:
            raise EngineDead(DEAD)
        return self._llm

    async def shutdown(self) -> None:
        """End the engine's processes. Running generators end with an error. Idempotent."""
        if self._llm is None:
            return
        llm, self._llm = self._llm, None
        compat.stop_outputs(llm, EngineDeadError())
        await asyncio.to_thread(llm.shutdown, SHUTDOWN_TIMEOUT_S)
        await self._receiver.close()
        self._sockets.cleanup()

    async def _while_alive(self, arrival: Coroutine[None, None, ReceivedPatch]) -> ReceivedPatch:
        """Wait for something to come, but not from a dead engine."""
        waiting = asyncio.create_task(arrival)
        try:
            while not waiting.done():
                await asyncio.wait((waiting,), timeout=ALIVE_INTERVAL_S)
                if self.errored:
                    raise EngineDead(DEAD)
            return waiting.result()
        finally:
            waiting.cancel()

    async def _call(self, method: str, *args: Any) -> list[Any]:
        llm = self._live
        try:
            return await llm.collective_rpc(method, args=args)
        except EngineDeadError as error:
            raise EngineDead(DEAD) from error
        except Exception as error:  # vLLM sends a worker's error as a bare Exception
            logger.exception("%s failed in the engine", method)
            raise GenerationFailed(FAILED) from error

    async def _run(self, name: str, prompt: Prompt, generation: Generation) -> int:
        """Drive the request to its end; returns how many tokens, hence patches, it made."""
        llm = self._live
        last: RequestOutput | None = None
        try:
            async for output in llm.generate(
                tokens_input(prompt.token_ids, cache_salt=prompt.cache_salt),
                self._sampling(name, prompt, generation),
                name,
            ):
                last = output
        except EngineDeadError as error:
            raise EngineDead(DEAD) from error
        except asyncio.CancelledError:
            raise
        except Exception as error:
            logger.exception("the engine failed on a request")
            raise GenerationFailed(FAILED) from error
        if last is None or last.outputs[0].finish_reason not in ("stop", "length"):
            raise GenerationFailed("the speech engine ended this request early: try again")
        return len(last.outputs[0].token_ids)

    def _sampling(self, name: str, prompt: Prompt, generation: Generation) -> SamplingParams:
        params = SpeechParams(
            seed=generation.seed,
            cfg=generation.cfg,
            steps=generation.steps,
            temperature=generation.temperature,
            min_patches=generation.min_patches,
            channel=name,
            spans=prompt.spans,
            latents=prompt.latents.tobytes(),
            context_patches=generation.context_patches,
        )
        room = self.max_model_len - len(prompt.token_ids)
        return SamplingParams(
            temperature=0.0,  # of token sampling, which there is none; the solver has its own
            max_tokens=min(prompt.patch_limit, generation.max_patches, room),
            stop_token_ids=[self.config.lm_config.eos_token_id],
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
            extra_args=params.to_extra_args(),
        )

    @staticmethod
    async def _next_patch(
        patches: asyncio.Queue[ReceivedPatch], finished: asyncio.Task[int], received: int
    ) -> ReceivedPatch | None:
        """The next patch, or None once the engine is done and all have come."""
        if not patches.empty():
            return patches.get_nowait()
        arrival = asyncio.create_task(patches.get())
        try:
            await asyncio.wait((arrival, finished), return_when=asyncio.FIRST_COMPLETED)
            if not arrival.done():
                if received >= finished.result():
                    return None
                await asyncio.wait((arrival,), timeout=LAST_PATCHES_TIMEOUT_S)
            if not arrival.done():
                raise GenerationFailed("the last of the audio did not arrive from the engine: try again")
            return arrival.result()
        finally:
            arrival.cancel()

    def _unpack(self, patch: ReceivedPatch) -> SpeechPatch:
        samples = self.config.patch_output_samples
        shape = (self.config.patch_size, self.config.feat_dim)
        pcm, latents, stop_logits = np.split(patch.row, (samples, samples + shape[0] * shape[1]))
        return SpeechPatch(patch.index, pcm, latents.reshape(shape), stop_logits)


def _build(checkpoint: Path, options: EngineOptions, endpoint: str) -> AsyncLLM:
    register()
    arguments = AsyncEngineArgs(
        model=str(checkpoint),
        config_format=VOXCPM2_FORMAT,
        load_format=VOXCPM2_FORMAT,
        skip_tokenizer_init=True,
        worker_cls="models.runtime.worker.SpeechWorker",
        additional_config={AUDIO_ENDPOINT: endpoint},
        dtype=read_config(checkpoint).dtype if options.dtype == "auto" else options.dtype,
        enforce_eager=True,
        async_scheduling=False,  # a stop must be known before the next step draws from a request's generator
        scheduling_policy="fcfs",  # bounds the requests that hold slots by max_num_seqs
        **shared_arguments(options),
    )
    return build(arguments, options)
