"""Local encoder: one patch of latent frames in, one embedding out."""

import torch
from torch import Tensor, nn

from models.voxcpm2.config import VoxCPM2ModelConfig
from models.voxcpm2.minicpm4_local import MiniCPM4Local


class LocalEncoder(nn.Module):
    """A learnt token in front of the projected frames gathers the patch; its final state is the embedding."""

    def __init__(self, config: VoxCPM2ModelConfig) -> None:
        super().__init__()
        hidden_size = config.encoder_config.hidden_dim
        self.special_token = nn.Parameter(torch.zeros(1, 1, 1, hidden_size))
        self.in_proj = nn.Linear(config.feat_dim, hidden_size)
        self.encoder = MiniCPM4Local(config.local_encoder, length=1 + config.patch_size)

    def forward(self, patches: Tensor) -> Tensor:
        """Patches `[N, patch_size, feat_dim]` to embeddings `[N, encoder hidden]`."""
        token = self.special_token[0].expand(patches.shape[0], 1, -1)
        hidden = self.encoder(torch.cat((token, self.in_proj(patches)), dim=1))
        return hidden[:, 0]
