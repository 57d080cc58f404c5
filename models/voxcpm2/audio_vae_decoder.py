"""AudioVAE's decoder: latents in, `decoder_hop` samples per latent frame out, strictly causal.

    latents [B, D, T] -> convolution -> (rate condition -> block)... -> convolution -> tanh -> [B, T * hop]

Each block upsamples by its rate and halves the channels. Noise blocks add noise shaped by the signal.
"""

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate
from operator import mul

import torch
from torch import Tensor, nn

from models.checkpoint import CheckpointError
from models.voxcpm2.causal_conv import (
    KERNEL_SIZE,
    CausalConv1d,
    CausalConvTranspose1d,
    CausalStack,
    Snake1d,
    StreamingContext,
    residual_units,
)
from models.voxcpm2.config import AudioVAEConfig


class DecoderContext(StreamingContext):
    """What one decode step consumes in execution order: left contexts, and noise for the noise blocks."""

    def __init__(self, rows: Tensor, noise: Tensor | None) -> None:
        super().__init__(rows)
        self._noise = noise
        self._drawn = 0

    def draw_noise(self, samples: int) -> Tensor:
        """The next `[B, 1, samples]` of the step's noise."""
        assert self._noise is not None
        start, self._drawn = self._drawn, self._drawn + samples
        return self._noise[:, None, start : self._drawn]


class NoiseBlock(nn.Module):
    """Adds noise, the same for all channels, scaled by a projection of the signal."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.linear = CausalConv1d(channels, channels, 1, bias=False)

    def forward(self, signal: Tensor, context: DecoderContext) -> Tensor:
        """`[B, C, L]` to the same shape."""
        noise = context.draw_noise(signal.shape[-1])
        return torch.addcmul(signal, noise, self.linear(signal, context))


class DecoderBlock(nn.Module):
    """`stride` times more frames of half the channels, then residual units."""

    def __init__(self, channels: int, stride: int, depthwise: bool, use_noise_block: bool) -> None:
        super().__init__()
        out_channels = channels // 2
        self.block = CausalStack(
            [
                Snake1d(channels),
                CausalConvTranspose1d(channels, out_channels, stride),
                *([NoiseBlock(out_channels)] if use_noise_block else []),
                *residual_units(out_channels, depthwise),
            ]
        )

    def forward(self, signal: Tensor, context: DecoderContext) -> Tensor:
        """`[B, C, L]` to `[B, C // 2, L * stride]`."""
        return self.block(signal, context)


class SampleRateCondition(nn.Module):
    """Tells a block the output rate. A decoder has one rate, so its row of each table is a constant.

    Raises:
        CheckpointError: concatenation without the layer that reduces the channels again.
    """

    def __init__(self, channels: int, buckets: int, bucket: int, config: AudioVAEConfig) -> None:
        super().__init__()
        if config.cond_type == "concat" and not config.cond_out_layer:
            raise CheckpointError(
                "audio_vae_config has cond_type 'concat' without cond_out_layer: set cond_out_layer to true"
            )
        self.cond_type = config.cond_type
        self.bucket = bucket
        width = channels
        if self.cond_type == "add":
            self.cond_embed = nn.Embedding(buckets, channels)
        elif self.cond_type == "concat":
            self.cond_embed = nn.Embedding(buckets, config.cond_dim)
            width += config.cond_dim
        else:
            self.scale_embed = nn.Embedding(buckets, channels)
            self.bias_embed = nn.Embedding(buckets, channels)
        self.out_layer: nn.Module = nn.Identity()
        if config.cond_out_layer:
            self.out_layer = nn.Sequential(Snake1d(width), nn.Conv1d(width, channels, 1))

    def forward(self, signal: Tensor) -> Tensor:
        """`[B, C, L]` to the same shape."""
        if self.cond_type == "add":
            signal = signal + self._row(self.cond_embed)
        elif self.cond_type == "concat":
            condition = self._row(self.cond_embed).expand(signal.shape[0], -1, signal.shape[-1])
            signal = torch.cat((signal, condition), dim=1)
        else:
            signal = torch.addcmul(self._row(self.bias_embed), signal, self._row(self.scale_embed))
        return self.out_layer(signal)

    def _row(self, table: nn.Embedding) -> Tensor:
        return table.weight[None, self.bucket, :, None]


class Decoder(nn.Module):
    """Latents to samples in [-1, 1]."""

    def __init__(self, config: AudioVAEConfig) -> None:
        super().__init__()
        self._upsampling = tuple(accumulate(config.decoder_rates, mul)) if config.use_noise_block else ()
        channels = config.decoder_dim
        self.model = nn.ModuleList(_stem(config))
        # Keyed by the index of the block it precedes, as in the released naming.
        self.sr_cond_model = nn.ModuleDict()
        for index, stride in enumerate(config.decoder_rates, start=len(self.model)):
            if config.sr_bin_boundaries is not None:
                self.sr_cond_model[str(index)] = SampleRateCondition(
                    channels,
                    buckets=len(config.sr_bin_boundaries) + 1,
                    bucket=bisect_left(config.sr_bin_boundaries, config.out_sample_rate),
                    config=config,
                )
            self.model.append(DecoderBlock(channels, stride, config.depthwise, config.use_noise_block))
            channels //= 2
        self.model.extend([Snake1d(channels), CausalConv1d(channels, 1, KERNEL_SIZE)])

    def noise_lengths(self, frames: int) -> tuple[int, ...]:
        """Samples of noise that each noise block takes for `frames` latent frames, in drawing order."""
        return tuple(frames * factor for factor in self._upsampling)

    def forward(self, latents: Tensor, context: DecoderContext) -> Tensor:
        """Latents `[B, D, T]` to samples `[B, T * hop]`."""
        *stem_and_blocks, activation, head = self.model
        signal = latents
        for index, layer in enumerate(stem_and_blocks):
            if str(index) in self.sr_cond_model:
                signal = self.sr_cond_model[str(index)](signal)
            signal = layer(signal, context)
        return torch.tanh(head(activation(signal), context)).squeeze(1)


def _stem(config: AudioVAEConfig) -> Iterator[nn.Module]:
    if config.depthwise:
        yield CausalConv1d(config.latent_dim, config.latent_dim, KERNEL_SIZE, groups=config.latent_dim)
        yield CausalConv1d(config.latent_dim, config.decoder_dim, 1)
    else:
        yield CausalConv1d(config.latent_dim, config.decoder_dim, KERNEL_SIZE)
