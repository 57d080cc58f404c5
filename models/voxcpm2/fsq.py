"""Finite scalar quantisation: the bottleneck between the base LM and everything acoustic."""

import torch
from torch import Tensor, nn


class FiniteScalarQuantizer(nn.Module):
    """Project to a few dimensions, squash to (-1, 1), round to multiples of 1/scale, project back.

    Source: FSQ (arXiv 2309.15505) with a tanh bound and `2 * scale + 1` levels.
    """

    def __init__(self, hidden_size: int, latent_dim: int, scale: int) -> None:
        super().__init__()
        self.in_proj = nn.Linear(hidden_size, latent_dim)
        self.out_proj = nn.Linear(latent_dim, hidden_size)
        self.scale = scale

    def forward(self, hidden: Tensor) -> Tensor:
        """`[..., hidden_size]` to `[..., hidden_size]`."""
        bounded = torch.tanh(self.in_proj(hidden))
        return self.out_proj(torch.round(bounded * self.scale) / self.scale)
