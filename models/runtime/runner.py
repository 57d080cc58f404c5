"""The life of speech requests inside a worker, free of any particular vLLM model runner.

A runner calls, once a step and in this order: `update` (who came and went), `prepare` (the forward's inputs)
and, after the forward, `emit` (the tokens; patches go out on the audio channel).
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from vllm.config import VllmConfig
from vllm.distributed import get_tensor_model_parallel_rank

from models.runtime.audio_channel import AUDIO_ENDPOINT, AudioSender, PatchLabel
from models.runtime.reference_encoder import ReferenceEncoder
from models.runtime.request_state import SlotPool, SpeechRequest
from models.voxcpm2.flow_matching import time_schedule
from models.voxcpm2.limits import MAX_STEPS
from models.voxcpm2.prompt import SpeechParams
from models.voxcpm2.scaffold import VoxCPM2ForTextToSpeech
from models.voxcpm2.slots import SlotState, StepInputs, StepOutputs

NewRequest = tuple[str, int, dict[str, Any] | None]  # id, prompt length, extra_args


class SpeechStats(TypedDict):
    """Counters of a worker's request state.

    Attributes:
        running, free_slots: requests that hold a slot, and slots that nobody holds.
        patches, steps: emitted and run since the start.
        cached_positions: prompt positions that a prefix-cache hit spared.
        recomputed_positions: positions computed again after a preemption.
    """

    running: int
    free_slots: int
    patches: int
    steps: int
    cached_positions: int
    recomputed_positions: int


class SpeechRunner:
    """Slots, requests and step inputs of one worker."""

    def __init__(self, model: VoxCPM2ForTextToSpeech, vllm_config: VllmConfig, device: torch.device) -> None:
        torch.backends.cudnn.allow_tf32 = False  # the AudioVAE is float32: TF32 would leave it 10 bits
        model.precompute_fused_qkv()
        self.model = model
        self.device = device
        self.config = model.config
        self.dtype = vllm_config.model_config.dtype
        self.slots = vllm_config.scheduler_config.max_num_seqs
        max_model_len = vllm_config.model_config.max_model_len
        self.pool = SlotPool(self.slots, max_model_len)
        self.state = SlotState.allocate(
            self.config, model.audio_vae.decoder_state_size, self.slots, max_model_len, self.dtype, device
        )
        self.outputs = StepOutputs.allocate(self.config, self.slots, device)
        self.vae_noise_lengths = model.audio_vae.noise_lengths(self.config.patch_size)
        endpoint = vllm_config.additional_config.get(AUDIO_ENDPOINT)
        publishes = endpoint is not None and get_tensor_model_parallel_rank() == 0
        self._sender = AudioSender(endpoint) if publishes else None
        self._encoder = ReferenceEncoder(model, device, endpoint) if publishes else None
        self._emitting: list[SpeechRequest] = []
        self._emitting_rows: Tensor = torch.empty(0, dtype=torch.int64)
        self._patches = self._steps = self._cached_positions = self._recomputed_positions = 0

    # -- requests come and go ------------------------------------------------------------------------------

    def update(self, finished: Iterable[str], new: Sequence[NewRequest]) -> None:
        """Free the slots of finished requests, then set up those of new ones."""
        for request_id in finished:
            self.pool.release(request_id)
        if new:
            self._enter([self._admit(*request) for request in new])

    def _admit(self, request_id: str, prompt_length: int, extra_args: dict[str, Any] | None) -> SpeechRequest:
        params = SpeechParams.from_extra_args(extra_args)
        num_steps = len(time_schedule(params.steps, self.dtype)[0])
        return self.pool.admit(request_id, prompt_length, params, num_steps)

    def _enter(self, requests: Sequence[SpeechRequest]) -> None:
        """Set slots up entirely, with one upload for each kind of state, however many requests enter."""
        slots = self._to_device(np.array([request.slot for request in requests]))
        schedules = torch.zeros(len(requests), 2, MAX_STEPS, dtype=self.dtype)
        for row, request in enumerate(requests):
            schedules[row, :, : request.num_steps] = torch.stack(
                time_schedule(request.params.steps, self.dtype)
            )
        schedules = schedules.to(self.device, non_blocking=True)
        self.state.times[slots], self.state.widths[slots] = schedules[:, 0], schedules[:, 1]
        self.state.cfg[slots] = torch.tensor([r.params.cfg for r in requests]).to(self.device)
        self.state.vae[slots] = 0
        conditioned = [request for request in requests if request.params.spans]
        if conditioned:
            self._write_latents(conditioned)
            self._warm_decoders(conditioned)

    def _write_latents(self, requests: Sequence[SpeechRequest]) -> None:
        """Put conditioning patches where the prompt has them."""
        floats = torch.frombuffer(
            bytearray(b"".join(r.params.latents for r in requests)), dtype=torch.float32
        )
        patches = floats.view(-1, self.config.patch_size, self.config.feat_dim)
        positions = [request.conditioning_positions() for request in requests]
        slots = np.repeat([request.slot for request in requests], [len(p) for p in positions])
        where = self._to_device(slots), self._to_device(np.concatenate(positions))
        self.state.latents[where] = patches.to(self.device, self.dtype)

    def _warm_decoders(self, requests: Sequence[SpeechRequest]) -> None:
        """Where speech continues a prompt, let the decoder hear the prompt's last patches first."""
        by_length: dict[int, list[SpeechRequest]] = defaultdict(list)
        for request in requests:
            by_length[request.context_length()].append(request)
        by_length.pop(0, None)
        for length, group in by_length.items():
            slots = self._to_device(np.array([request.slot for request in group]))
            positions = np.stack([request.conditioning_positions()[-length:] for request in group])
            patches = self.state.latents[slots.unsqueeze(1), self._to_device(positions)]
            noise = self._vae_noise(
                group, self.model.audio_vae.noise_lengths(length * self.config.patch_size)
            )
            self.model.prime_decoder(patches, self.state, slots, noise)

    # -- one step ------------------------------------------------------------------------------------------

    def prepare(
        self,
        request_ids: Sequence[str],
        starts: npt.NDArray[np.int32],
        lengths: npt.NDArray[np.int32],
        emits: npt.NDArray[np.bool_],
    ) -> dict[str, Any]:
        """Keyword arguments of the model's forward.

        Args:
            request_ids: requests of the step, in the batch's order.
            starts: first position computed for each.
            lengths: positions computed for each.
            emits: whether a request's last position is the last of its sequence, so that a patch follows.
        """
        requests = [self.pool[request_id] for request_id in request_ids]
        slots = np.array([request.slot for request in requests], dtype=np.int64)
        ends = np.cumsum(lengths, dtype=np.int64)
        token_slots = np.repeat(slots, lengths)
        positions = np.arange(ends[-1]) - np.repeat(ends - lengths - starts, lengths)
        is_audio = self.pool.is_audio[token_slots, positions]
        audio_rows = np.flatnonzero(is_audio)
        rows = np.flatnonzero(emits)
        self._emitting = [requests[row] for row in rows]
        self._emitting_rows = self._to_device(rows)
        self._count(requests, starts, lengths)
        return self._arguments(
            StepInputs(
                is_audio=self._to_device(is_audio),
                audio_rows=self._to_device(audio_rows),
                audio_slots=self._to_device(token_slots[audio_rows]),
                audio_positions=self._to_device(positions[audio_rows]),
                last_rows=self._to_device(ends[rows] - 1),
                slots=self._to_device(slots[rows]),
                last_positions=self._to_device(positions[ends[rows] - 1]),
                may_stop=self._to_device(
                    np.array([r.num_patches > r.params.min_patches for r in self._emitting], dtype=np.bool_)
                ),
                noise=self._noise(self._emitting),
                vae_noise=self._vae_noise(self._emitting, self.vae_noise_lengths),
                num_steps=max((request.num_steps for request in self._emitting), default=0),
            )
        )

    def prepare_dummy(self, num_tokens: int) -> dict[str, Any]:
        """Arguments of a forward without requests, as dear as a real one: profiling sizes memory by it."""
        rows = min(num_tokens, self.slots)
        every = torch.arange(num_tokens, device=self.device)
        dummy_slot = torch.full((num_tokens,), self.slots, device=self.device)
        zeros = torch.zeros(num_tokens, dtype=torch.int64, device=self.device)
        patch = (self.config.patch_size, self.config.feat_dim)
        vae_samples = sum(self.vae_noise_lengths)
        return self._arguments(
            StepInputs(
                is_audio=torch.ones(num_tokens, dtype=torch.bool, device=self.device),
                audio_rows=every,
                audio_slots=dummy_slot,
                audio_positions=zeros,
                last_rows=every[:rows],
                slots=dummy_slot[:rows],
                last_positions=zeros[:rows],
                may_stop=torch.zeros(rows, dtype=torch.bool, device=self.device),
                noise=torch.zeros(rows, *patch, dtype=self.dtype, device=self.device),
                vae_noise=torch.zeros(rows, vae_samples, device=self.device) if vae_samples else None,
                num_steps=1,
            )
        )

    def emit(self, num_requests: int) -> Tensor:
        """Send this step's patches out.

        Returns:
            Next token of each request of the batch, int64 `[num_requests]`; 0 where a prefill goes on, which
            the runner discards.
        """
        tokens = torch.zeros(num_requests, dtype=torch.int64, device=self.device)
        count = len(self._emitting)
        if not count:
            return tokens
        tokens[self._emitting_rows] = self.outputs.token_ids[:count]
        if self._sender is not None:
            labels = [PatchLabel(r.params.channel, r.num_patches) for r in self._emitting]
            self._sender.send(labels, self.outputs.packed[:count].cpu().numpy())
        for request in self._emitting:
            request.num_patches += 1
        self._patches += count
        return tokens

    # -- beside the steps ----------------------------------------------------------------------------------

    def encode_audio(self, channel: str, pcm: bytes) -> None:
        """Begin to encode float32 samples at the AudioVAE's input rate, a whole number of patches.

        Returns at once; steps go on. Latents come on `channel`, as its patch 0: float32, patch after patch,
        or nothing if the encoder failed.
        """
        if self._encoder is not None:
            self._encoder.submit(channel, pcm)

    def stats(self) -> SpeechStats:
        """Counters of the request state."""
        return SpeechStats(
            running=len(self.pool),
            free_slots=self.pool.free_slots,
            patches=self._patches,
            steps=self._steps,
            cached_positions=self._cached_positions,
            recomputed_positions=self._recomputed_positions,
        )

    def _count(
        self,
        requests: Sequence[SpeechRequest],
        starts: npt.NDArray[np.int32],
        lengths: npt.NDArray[np.int32],
    ) -> None:
        self._steps += 1
        for request, start, length in zip(requests, starts.tolist(), lengths.tolist(), strict=True):
            if not request.computed:
                self._cached_positions += start
            self._recomputed_positions += max(0, min(request.computed, start + length) - start)
            request.computed = max(request.computed, start + length)

    # -- pieces --------------------------------------------------------------------------------------------

    def _arguments(self, step: StepInputs) -> dict[str, Any]:
        return {"state": self.state, "step": step, "outputs": self.outputs}

    def _to_device(self, values: npt.NDArray[Any]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values)).to(self.device, non_blocking=True)

    def _noise(self, requests: Sequence[SpeechRequest]) -> Tensor:
        patch = (self.config.patch_size, self.config.feat_dim)
        noise = torch.empty(len(requests), *patch)
        for row, request in enumerate(requests):
            noise[row] = request.draw_noise(*patch)
        return noise.to(self.device, self.dtype)

    def _vae_noise(self, requests: Sequence[SpeechRequest], lengths: tuple[int, ...]) -> Tensor | None:
        if not lengths:
            return None
        noise = torch.empty(len(requests), sum(lengths))
        for row, request in enumerate(requests):
            noise[row] = request.draw_vae_noise(lengths)
        return noise.to(self.device)
