"""Causal convolutions whose past is an argument: the pieces that AudioVAE's encoder and decoder share.

Invariant: a layer's output depends on its input and on the frames before it, which a `LeftContext` supplies.
The weights keep nothing between calls. Signals are float32 `[B, channels, frames]`.
"""

from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

RESIDUAL_DILATIONS = (1, 3, 9)  # of the residual units that follow each other in a block
KERNEL_SIZE = 7  # of every convolution that neither changes the rate nor is pointwise
SNAKE_EPSILON = 1e-9  # keeps a channel with alpha = 0 finite


class LeftContext(Protocol):
    """Where a causal convolution finds the frames that came before its input."""

    def extend(self, signal: Tensor, frames: int) -> Tensor:
        """`[B, C, L]` to `[B, C, frames + L]`: the signal behind its last `frames` predecessors."""


class ZeroContext:
    """Silence before the signal: nothing came before it."""

    def extend(self, signal: Tensor, frames: int) -> Tensor:
        """Pad `[B, C, L]` with `frames` zeros on the left."""
        return pad(signal, (frames, 0)) if frames else signal


class StreamingContext:
    """The left contexts of one step over a batch of streams, handed out in execution order.

    Layers run in the same order every step, so each finds what it left in the step before.

    Attributes:
        updated: float32 `[B, state_size]`, complete once every layer has run: the rows of the next step.
    """

    def __init__(self, rows: Tensor) -> None:
        self.updated = torch.empty_like(rows)
        self._rows = rows
        self._offset = 0

    def extend(self, signal: Tensor, frames: int) -> Tensor:
        """Prepend this layer's stored frames to `[B, C, L]` and keep the last `frames` of the result."""
        if not frames:
            return signal
        batch, channels, _ = signal.shape
        segment = slice(self._offset, self._offset + channels * frames)
        self._offset = segment.stop
        past = self._rows[:, segment].view(batch, channels, frames)
        extended = torch.cat((past, signal), dim=-1)
        self.updated[:, segment].view(batch, channels, frames).copy_(extended[..., -frames:])
        return extended


class CausalConv1d(nn.Conv1d):
    """Convolution over its input and the frames before it: `stride` times fewer frames come out."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        *,
        stride: int = 1,
        dilation: int = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        super().__init__(
            in_channels, out_channels, kernel_size, stride, dilation=dilation, groups=groups, bias=bias
        )
        self.context_frames = (kernel_size - 1) * dilation + 1 - stride

    def forward(self, signal: Tensor, context: LeftContext) -> Tensor:  # type: ignore[override]
        """`[B, in, L]` to `[B, out, L / stride]`."""
        return super().forward(context.extend(signal, self.context_frames))


class CausalConvTranspose1d(nn.ConvTranspose1d):
    """Upsampling by `stride` with a kernel of two strides: a frame sounds in its own span and the next.

    One earlier frame is all the past it needs. `padding=stride` drops the span before the first frame, which
    the step before has emitted, and the span after the last, which still lacks the next frame's share.
    """

    context_frames = 1

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__(in_channels, out_channels, 2 * stride, stride, padding=stride)

    def forward(self, signal: Tensor, context: LeftContext) -> Tensor:  # type: ignore[override]
        """`[B, in, L]` to `[B, out, L * stride]`."""
        return super().forward(context.extend(signal, self.context_frames))


class Snake1d(nn.Module):
    """Periodic activation `x + sin(alpha x)^2 / alpha` with a learnt alpha per channel.

    Source: Snake (arXiv 2006.08195).
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(1, channels, 1))

    def forward(self, signal: Tensor) -> Tensor:
        """`[B, C, L]` to `[B, C, L]`."""
        wave = torch.sin(self.alpha * signal).square()
        return torch.addcdiv(signal, wave, self.alpha + SNAKE_EPSILON)


class CausalStack(nn.ModuleList):
    """Layers one after the other. Activations need no past, all others get the context."""

    def forward(self, signal: Tensor, context: LeftContext) -> Tensor:
        """`[B, channels, L]` through every layer."""
        for layer in self:
            signal = layer(signal) if isinstance(layer, Snake1d) else layer(signal, context)
        return signal


class ResidualUnit(nn.Module):
    """A dilated and a pointwise convolution beside the identity."""

    def __init__(self, channels: int, dilation: int, depthwise: bool) -> None:
        super().__init__()
        groups = channels if depthwise else 1
        self.block = CausalStack(
            [
                Snake1d(channels),
                CausalConv1d(channels, channels, KERNEL_SIZE, dilation=dilation, groups=groups),
                Snake1d(channels),
                CausalConv1d(channels, channels, 1),
            ]
        )

    def forward(self, signal: Tensor, context: LeftContext) -> Tensor:
        """`[B, channels, L]` to the same shape."""
        return signal + self.block(signal, context)


def residual_units(channels: int, depthwise: bool) -> list[nn.Module]:
    """The residual units of one block, of growing dilation."""
    return [ResidualUnit(channels, dilation, depthwise) for dilation in RESIDUAL_DILATIONS]


def context_size(module: nn.Module) -> int:
    """Floats of left context that all convolutions in `module` keep for one stream."""
    return sum(
        layer.in_channels * layer.context_frames
        for layer in module.modules()
        if isinstance(layer, CausalConv1d | CausalConvTranspose1d)
    )
