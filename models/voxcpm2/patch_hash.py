"""`content_ids.prompt_ids` for generated patches: on the device, without a host synchronisation."""

import torch
from torch import Tensor

from models.voxcpm2.content_ids import HASH_MASK, HASH_SHIFT, ID_LIMIT, multipliers


class PatchHasher:
    """Hashes patches of `patch_values` floats into ids from `text_vocab_size` on."""

    def __init__(self, patch_values: int, text_vocab_size: int, device: torch.device) -> None:
        self.multipliers = torch.from_numpy(multipliers(patch_values).copy()).to(device)
        self.text_vocab_size = text_vocab_size

    def __call__(self, patches: Tensor) -> Tensor:
        """Ids of patches `[N, patch_size, feat_dim]` of any float dtype: int64 `[N]`."""
        bits = patches.float().flatten(1).contiguous().view(torch.int32).to(torch.int64)
        mixed = (bits * self.multipliers).sum(dim=1)
        return self.text_vocab_size + ((mixed >> HASH_SHIFT) & HASH_MASK) % (ID_LIMIT - self.text_vocab_size)
