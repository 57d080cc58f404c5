"""AudioVAE's encoder: a waveform in, one latent vector per `encoder_hop` samples out.

    samples [B, 1, N] -> convolution -> blocks -> convolution -> mean [B, D, N / hop]

Each block downsamples by its rate and doubles the channels.
"""

from torch import Tensor, nn

from models.voxcpm2.causal_conv import (
    KERNEL_SIZE,
    CausalConv1d,
    CausalStack,
    LeftContext,
    Snake1d,
    residual_units,
)
from models.voxcpm2.config import AudioVAEConfig

LATENT_KERNEL_SIZE = 3


class EncoderBlock(nn.Module):
    """Residual units, then `stride` times fewer frames of twice the channels."""

    def __init__(self, channels: int, stride: int, depthwise: bool) -> None:
        super().__init__()
        self.block = CausalStack(
            [
                *residual_units(channels, depthwise),
                Snake1d(channels),
                CausalConv1d(channels, 2 * channels, 2 * stride, stride=stride),
            ]
        )

    def forward(self, signal: Tensor, context: LeftContext) -> Tensor:
        """`[B, C, L]` to `[B, 2C, L / stride]`."""
        return self.block(signal, context)


class Encoder(nn.Module):
    """The mean of the latent distribution.

    `fc_logvar`, its variance, serves training only. It is here so that the module has exactly the tensors of
    a checkpoint.
    """

    def __init__(self, config: AudioVAEConfig) -> None:
        super().__init__()
        self.block = CausalStack([CausalConv1d(1, config.encoder_dim, KERNEL_SIZE)])
        channels = config.encoder_dim
        for stride in config.encoder_rates:
            self.block.append(EncoderBlock(channels, stride, config.depthwise))
            channels *= 2
        self.fc_mu = CausalConv1d(channels, config.latent_dim, LATENT_KERNEL_SIZE)
        self.fc_logvar = CausalConv1d(channels, config.latent_dim, LATENT_KERNEL_SIZE)

    def forward(self, samples: Tensor, context: LeftContext) -> Tensor:
        """Samples `[B, 1, N]`, N a multiple of the hop, to means `[B, D, N / hop]`."""
        return self.fc_mu(self.block(samples, context), context)
