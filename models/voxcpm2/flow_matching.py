"""Conditional flow matching: from noise to a patch by Euler steps with classifier-free guidance.

One solve serves requests with different guidance and step counts: `cfg`, times and widths are rows of
tensors, and a row with fewer steps than the batch ends in steps of width 0.
Sources: flow matching (arXiv 2210.02747), CFG-Zero* (arXiv 2503.18886), sway sampling (arXiv 2410.06885).
"""

import math
from functools import cache

import torch
from torch import Tensor

from models.voxcpm2.local_dit import LocalDiT

ZERO_INIT_FRACTION = 0.04  # of the grid points; CFG-Zero*: the first steps have velocity 0
NORM_EPSILON = 1e-8


def zero_init_steps(num_steps: int) -> int:
    """Steps at the start whose velocity is 0: they move nothing and need no DiT call."""
    return max(1, int((num_steps + 1) * ZERO_INIT_FRACTION))


@cache
def time_schedule(num_steps: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Times and widths of the Euler steps that call the DiT.

    The grid is `linspace(1, 0, num_steps + 1)` warped by `t + cos(pi/2 t) - 1 + t`. A time is the previous
    one less its width, not the grid point itself: the sums are the reference's, rounding included.

    Args:
        num_steps: Euler steps, `MIN_STEPS` or more.
        dtype: the model's; the grid is rounded to it at every operation.

    Returns:
        Two `[num_steps - zero_init_steps(num_steps)]` tensors of `dtype`.
    """
    grid = torch.linspace(1, 0, num_steps + 1, dtype=dtype)
    grid = grid + (torch.cos(math.pi / 2 * grid) - 1 + grid)
    times, widths = [], []
    time = grid[0]
    for target in grid[1:]:
        width = time - target
        times.append(time)
        widths.append(width)
        time = time - width
    skipped = zero_init_steps(num_steps)
    return torch.stack(times[skipped:]), torch.stack(widths[skipped:])


def guide(conditional: Tensor, unconditional: Tensor, cfg: Tensor) -> Tensor:
    """CFG-Zero* guidance: the unconditional velocity is rescaled onto the conditional one before mixing.

    Args:
        conditional: `[N, patch_size, feat_dim]`.
        unconditional: same shape.
        cfg: guidance of each row, float32 `[N]`.

    Returns:
        The shape and dtype of `conditional`.
    """
    positive, negative = conditional.flatten(1), unconditional.flatten(1)
    dot = (positive * negative).sum(dim=1, keepdim=True)
    norm = (negative**2).sum(dim=1, keepdim=True) + NORM_EPSILON
    scaled = unconditional * (dot / norm).unsqueeze(-1)
    return scaled + (cfg.view(-1, 1, 1) * (conditional - scaled)).to(conditional.dtype)


def solve(
    dit: LocalDiT, noise: Tensor, mu: Tensor, condition: Tensor, times: Tensor, widths: Tensor, cfg: Tensor
) -> Tensor:
    """One patch for each row, in a single batch.

    Args:
        dit: the velocity field.
        noise: start, `[N, patch_size, feat_dim]`, already times the temperature.
        mu: conditioning of the two LMs, `[N, 2 * H]`; guidance contrasts it with zeros.
        condition: previous patch, shape of `noise`.
        times: `[N, steps]` of `time_schedule`.
        widths: `[N, steps]`, 0 where a row has fewer steps than the batch.
        cfg: float32 `[N]`.

    Returns:
        Patches, shape and dtype of `noise`.
    """
    context = dit.embed_context(torch.cat((mu, torch.zeros_like(mu))), torch.cat((condition, condition)))
    time_tokens = dit.embed_times(times, widths).repeat(2, 1, 1)
    x = noise
    for step in range(times.shape[1]):
        velocities = dit(torch.cat((x, x)), time_tokens[:, step], context)
        conditional, unconditional = velocities.chunk(2)
        x = x - widths[:, step].view(-1, 1, 1) * guide(conditional, unconditional, cfg)
    return x
