"""Local diffusion transformer: the velocity of one noisy patch.

A sequence is `[mu (2) | time (1) | condition (patch) | noisy (patch)]`. Only the time and the noisy frames
change from one Euler step to the next, so `embed_context` and `embed_times` run once per solve and
`forward` once per step.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.voxcpm2.config import VoxCPM2ModelConfig
from models.voxcpm2.minicpm4_local import MiniCPM4Local

MU_TOKENS = 2  # one projected from the base LM, one from the residual LM
TIME_TOKENS = 1
TIME_SCALE = 1000.0  # time in [0, 1] is spread over the range that sinusoids were made for
MAX_PERIOD = 10000.0


def sinusoidal_embedding(values: Tensor, dim: int) -> Tensor:
    """Sines, then cosines, of `values` `[N]` at `dim / 2` log-spaced frequencies: `[N, dim]`, same dtype."""
    half = dim // 2
    exponents = torch.arange(half, dtype=values.dtype, device=values.device)
    frequencies = torch.exp(exponents * -(math.log(MAX_PERIOD) / (half - 1)))
    angles = TIME_SCALE * values.unsqueeze(-1) * frequencies
    return torch.cat((angles.sin(), angles.cos()), dim=-1)


class TimeMLP(nn.Module):
    """Two linear layers with SiLU between them."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.linear_1 = nn.Linear(hidden_size, hidden_size)
        self.linear_2 = nn.Linear(hidden_size, hidden_size)

    def forward(self, embedding: Tensor) -> Tensor:
        """`[..., H]` to `[..., H]`."""
        return self.linear_2(F.silu(self.linear_1(embedding)))


class LocalDiT(nn.Module):
    """The velocity field of the flow, conditioned on `mu`, on the previous patch and on the time."""

    def __init__(self, config: VoxCPM2ModelConfig) -> None:
        super().__init__()
        self.hidden_size = config.dit_config.hidden_dim
        self.patch_size = config.patch_size
        self.mean_mode = config.dit_config.dit_mean_mode
        self.in_proj = nn.Linear(config.feat_dim, self.hidden_size)
        self.cond_proj = nn.Linear(config.feat_dim, self.hidden_size)
        self.out_proj = nn.Linear(self.hidden_size, config.feat_dim)
        self.time_mlp = TimeMLP(self.hidden_size)
        self.delta_time_mlp = TimeMLP(self.hidden_size)
        self.decoder = MiniCPM4Local(config.local_dit, length=MU_TOKENS + TIME_TOKENS + 2 * config.patch_size)

    def embed_times(self, times: Tensor, widths: Tensor) -> Tensor:
        """Time tokens of a whole schedule.

        Args:
            times: `[N, steps]`, 1 (noise) to 0 (data).
            widths: step widths, same shape; they count in mean mode only, else they are taken as 0.

        Returns:
            `[N, steps, H]`.
        """
        n, steps = times.shape
        widths = widths if self.mean_mode else torch.zeros_like(widths)
        time = self.time_mlp(sinusoidal_embedding(times.reshape(-1), self.hidden_size))
        width = self.delta_time_mlp(sinusoidal_embedding(widths.reshape(-1), self.hidden_size))
        return (time + width).view(n, steps, self.hidden_size)

    def embed_context(self, mu: Tensor, condition: Tensor) -> tuple[Tensor, Tensor]:
        """The tokens that stay the same over a solve.

        Args:
            mu: `[N, 2 * H]`.
            condition: previous patch `[N, patch_size, feat_dim]`.

        Returns:
            mu tokens `[N, 2, H]` and condition tokens `[N, patch_size, H]`.
        """
        return mu.view(-1, MU_TOKENS, self.hidden_size), self.cond_proj(condition)

    def forward(self, noisy: Tensor, time: Tensor, context: tuple[Tensor, Tensor]) -> Tensor:
        """Velocity of `noisy` `[N, patch_size, feat_dim]` at time tokens `[N, H]`: same shape as `noisy`."""
        mu, condition = context
        tokens = torch.cat((mu, time.unsqueeze(1), condition, self.in_proj(noisy)), dim=1)
        return self.out_proj(self.decoder(tokens)[:, -self.patch_size :])
