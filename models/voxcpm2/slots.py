"""Everything a running request owns on the device, and the inputs and outputs of one step.

A request holds one slot, a row of preallocated tensors, from its first step to its end. Weights hold no
request state. A slot is set up entirely on entry; nothing of its last owner is ever read.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from models.voxcpm2.config import VoxCPM2ModelConfig
from models.voxcpm2.limits import MAX_STEPS
from models.voxcpm2.manifest import STOP_CLASSES


@dataclass(frozen=True)
class SlotState:
    """Slot-indexed state; the last slot is a dummy for warm-up and padding.

    Attributes:
        latents: `[slots, positions, patch_size, feat_dim]`, model dtype. The latents of every audio position
            of a sequence, conditioning and generated alike, by absolute position: the input of a decode
            step, of a prefill and of a recompute after preemption are all reads of it.
        vae: `[slots, state_size]`, float32, left contexts of the AudioVAE decoder.
        times, widths: `[slots, MAX_STEPS]`, model dtype, schedule of the CFM solver, padded with width 0.
        cfg: `[slots]`, float32, guidance.
    """

    latents: Tensor
    vae: Tensor
    times: Tensor
    widths: Tensor
    cfg: Tensor

    @classmethod
    def allocate(
        cls,
        config: VoxCPM2ModelConfig,
        vae_state_size: int,
        slots: int,
        max_model_len: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> "SlotState":
        """State of `slots` requests of up to `max_model_len` positions, and the dummy slot."""
        rows = slots + 1
        return cls(
            latents=torch.zeros(
                rows, max_model_len + 1, config.patch_size, config.feat_dim, dtype=dtype, device=device
            ),
            vae=torch.zeros(rows, vae_state_size, device=device, dtype=torch.float32),
            times=torch.zeros(rows, MAX_STEPS, dtype=dtype, device=device),
            widths=torch.zeros(rows, MAX_STEPS, dtype=dtype, device=device),
            cfg=torch.ones(rows, dtype=torch.float32, device=device),
        )


@dataclass(frozen=True)
class StepInputs:
    """What a step computes beyond token ids and positions. `T` positions, of which `R` emit a patch.

    Attributes:
        is_audio: bool `[T]`, positions whose embedding comes from latents.
        audio_rows: int64 `[A]`, the indices of those positions.
        audio_slots, audio_positions: int64 `[A]`, where their latents lie.
        last_rows: int64 `[R]`, indices of the positions that emit the next patch.
        slots, last_positions: int64 `[R]`, their slot and absolute position.
        may_stop: bool `[R]`, whether the stop flag counts for this patch.
        noise: `[R, patch_size, feat_dim]`, model dtype, times the request's temperature.
        vae_noise: float32 `[R, samples]`, or None for a decoder without noise blocks.
        num_steps: DiT calls of the longest schedule among the `R` rows.
    """

    is_audio: Tensor
    audio_rows: Tensor
    audio_slots: Tensor
    audio_positions: Tensor
    last_rows: Tensor
    slots: Tensor
    last_positions: Tensor
    may_stop: Tensor
    noise: Tensor
    vae_noise: Tensor | None
    num_steps: int


@dataclass(frozen=True)
class StepOutputs:
    """Preallocated results of a step; rows beyond its `R` are left as they were.

    Attributes:
        packed: float32 `[max_rows, samples + patch_size * feat_dim + 2]`: PCM, latents and stop logits side
            by side, so that one copy brings a step to the host.
        token_ids: int64 `[max_rows]`, content hash of the patch, or the end id.
    """

    packed: Tensor
    token_ids: Tensor

    @classmethod
    def allocate(cls, config: VoxCPM2ModelConfig, max_rows: int, device: torch.device) -> "StepOutputs":
        """Outputs of up to `max_rows` patches a step."""
        return cls(
            packed=torch.zeros(max_rows, packed_width(config), dtype=torch.float32, device=device),
            token_ids=torch.zeros(max_rows, dtype=torch.int64, device=device),
        )


def packed_width(config: VoxCPM2ModelConfig) -> int:
    """Floats of one row of `StepOutputs.packed`."""
    return config.patch_output_samples + config.patch_size * config.feat_dim + STOP_CLASSES
