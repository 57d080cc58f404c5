"""What a request may ask for, and what an engine answers. Free of torch and vLLM."""

import secrets
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from models.voxcpm2 import limits

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Generation:
    """Parameters of one request; defaults are the reference's."""

    seed: int
    cfg: float = limits.DEFAULT_CFG
    steps: int = limits.DEFAULT_STEPS
    temperature: float = 1.0
    min_patches: int = limits.DEFAULT_MIN_PATCHES
    max_patches: int = limits.MAX_PATCHES
    context_patches: int = limits.CONTEXT_PATCHES


@dataclass(frozen=True)
class SpeechPatch:
    """One step of speech.

    Attributes:
        index: from 0.
        pcm: float32 samples in [-1, 1] at the checkpoint's rate.
        latents: float32 `[patch_size, feat_dim]`.
        stop_logits: float32 `[2]`; the second is the stop class.
    """

    index: int
    pcm: Floats
    latents: Floats
    stop_logits: Floats


def draw_seed() -> int:
    """A seed for a request that gives none; below 2^53, so that JSON readers of doubles keep it exact."""
    return secrets.randbelow(2**53)
