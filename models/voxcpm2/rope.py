"""Float32 rotary embedding (LongRoPE) and RMS normalisation, shared by the paged and the local stacks.

Both compute in float32 whatever the model's dtype, as the reference does: in bfloat16 the rotation of
late positions and the variance of wide rows lose the digits that an autoregressive loop then amplifies.
"""

import math

import torch
from torch import Tensor, nn

from models.voxcpm2.config import TransformerConfig


class RMSNorm(nn.Module):
    """`x / rms(x) * weight` over the last dimension, the quotient in float32."""

    def __init__(self, hidden_size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size))
        self.eps = eps

    def forward(self, hidden: Tensor) -> Tensor:
        """Normalise `[..., hidden_size]`; dtype is kept."""
        variance = hidden.float().pow(2).mean(dim=-1, keepdim=True)
        return (hidden * torch.rsqrt(variance + self.eps)).to(hidden.dtype) * self.weight


class LongRoPE(nn.Module):
    """Cosines and sines of all positions, float32 `[max_position_embeddings, head_dim]`.

    Frequency i is divided by `short_factor[i]`, or by `long_factor[i]` where the model's range exceeds the
    one it was first trained on; the tables carry the attention scale of that extension.
    Source: LongRoPE (arXiv 2402.13753), as configured by MiniCPM4.
    """

    cos: Tensor
    sin: Tensor

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        scaling = config.rope_scaling
        extended = config.max_position_embeddings > scaling.original_max_position_embeddings
        factors = torch.tensor(scaling.long_factor if extended else scaling.short_factor, dtype=torch.float32)
        exponents = torch.arange(0, config.head_dim, 2).float() / config.head_dim
        positions = torch.arange(config.max_position_embeddings).float()
        angles = torch.outer(positions, 1.0 / factors) * (1.0 / config.rope_theta**exponents)
        angles = torch.cat((angles, angles), dim=-1)
        growth = config.max_position_embeddings / scaling.original_max_position_embeddings
        scale = math.sqrt(1 + math.log(growth) / math.log(scaling.original_max_position_embeddings))
        self.register_buffer("cos", angles.cos() * scale, persistent=False)
        self.register_buffer("sin", angles.sin() * scale, persistent=False)

    def forward(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Tables of int64 `positions` `[N]`: two float32 `[N, head_dim]`."""
        return self.cos[positions], self.sin[positions]


def rotate(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate `heads` `[..., N, heads, head_dim]` by tables `[N, head_dim]`, in float32; dtype is kept."""
    x = heads.float()
    first, second = x.chunk(2, dim=-1)
    turned = torch.cat((-second, first), dim=-1)
    return (x * cos.unsqueeze(-2) + turned * sin.unsqueeze(-2)).to(heads.dtype)
