"""Who is running: the host's record of each request and the pool of slots they hold."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from models.voxcpm2.prompt import SpeechParams


@dataclass
class SpeechRequest:
    """One request in the engine, from its first step to its end, preemptions included.

    Attributes:
        slot: row of every slot-indexed tensor.
        params: what the caller asked for.
        prompt_length: positions of the prompt; all later positions are audio.
        num_steps: DiT calls of its schedule.
        num_patches: patches emitted so far.
        computed: positions from the first that were computed at some time.
        generator: of its noise; advances by one patch for each patch emitted and by nothing else, so that
            audio depends on the seed alone.
    """

    slot: int
    params: SpeechParams
    prompt_length: int
    num_steps: int
    num_patches: int = 0
    computed: int = 0
    generator: torch.Generator = field(default_factory=torch.Generator)

    def conditioning_positions(self) -> npt.NDArray[np.int64]:
        """Positions of the prompt's audio, in order."""
        return np.concatenate([np.arange(s.start, s.start + s.length) for s in self.params.spans])

    def context_length(self) -> int:
        """Patches that warm the decoder: none unless the prompt ends in audio."""
        spans = self.params.spans
        if not spans or spans[-1].start + spans[-1].length != self.prompt_length:
            return 0
        return min(self.params.context_patches, sum(span.length for span in spans))

    def draw_noise(self, patch_size: int, feat_dim: int) -> Tensor:
        """The start of the next patch: float32 `[patch_size, feat_dim]`; frames are drawn last."""
        noise = torch.randn((1, feat_dim, patch_size), generator=self.generator)
        return noise[0].T * self.params.temperature

    def draw_vae_noise(self, lengths: tuple[int, ...]) -> Tensor:
        """Noise of the decoder's noise blocks in their order: float32 `[sum(lengths)]`."""
        return torch.cat([torch.randn((1, 1, n), generator=self.generator).flatten() for n in lengths])


class SlotPool:
    """Slots and the requests that hold them; also where in each slot's sequence audio lies.

    Attributes:
        is_audio: bool `[slots + 1, positions]`, on the host.
    """

    def __init__(self, slots: int, max_model_len: int) -> None:
        self._free = list(range(slots - 1, -1, -1))
        self._requests: dict[str, SpeechRequest] = {}
        self.is_audio: npt.NDArray[np.bool_] = np.zeros((slots + 1, max_model_len + 1), dtype=np.bool_)

    def __len__(self) -> int:
        return len(self._requests)

    def __getitem__(self, request_id: str) -> SpeechRequest:
        return self._requests[request_id]

    @property
    def free_slots(self) -> int:
        """Slots that nobody holds."""
        return len(self._free)

    def admit(
        self, request_id: str, prompt_length: int, params: SpeechParams, num_steps: int
    ) -> SpeechRequest:
        """Take a slot for a new request and mark where its audio lies."""
        assert request_id not in self._requests, f"{request_id} is already running"
        assert self._free, "more requests started than slots: only first-come scheduling bounds them"
        request = SpeechRequest(self._free.pop(), params, prompt_length, num_steps)
        request.generator.manual_seed(params.seed)
        mask = self.is_audio[request.slot]
        mask[:prompt_length] = False
        mask[prompt_length:] = True
        for span in params.spans:
            mask[span.start : span.start + span.length] = True
        self._requests[request_id] = request
        return request

    def release(self, request_id: str) -> None:
        """Give the slot back. Requests that were aborted before they started hold none."""
        if request := self._requests.pop(request_id, None):
            self._free.append(request.slot)
