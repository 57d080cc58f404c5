"""Token ids of audio positions: content hashes of their latents. Free of torch.

vLLM caches a prefix by its token ids. A patch has no id of its own, so it gets a hash of its float32 bits:
equal ids then mean equal latents, and prefix caching and recompute after preemption are right without
knowing about audio. Ids start above the text vocabulary and use the rest of the int32 range, so that two
different patches share one with a probability of 5e-10; they are never embedded.

The hash is a multiply-and-shift sum. This is its numpy form, for prompts; `patch_hash.py` has the same for
generated patches, on the device.
"""

import hashlib
from functools import cache

import numpy as np
import numpy.typing as npt

ID_LIMIT = 2**31 - 1  # token ids are int32
HASH_SHIFT = 33  # the upper 31 bits of a multiply-and-shift sum are the well-mixed ones
HASH_MASK = 2**31 - 1
_DOMAIN = b"voxserve audio token"


@cache
def multipliers(size: int) -> npt.NDArray[np.int64]:
    """Odd 64-bit constants, one for each value of a patch."""
    return np.frombuffer(hashlib.shake_256(_DOMAIN).digest(8 * size), dtype="<i8") | 1


def prompt_ids(patches: npt.NDArray[np.float32], text_vocab_size: int) -> npt.NDArray[np.int64]:
    """Ids of patches `[N, patch_size, feat_dim]`: `[N]`, in `[text_vocab_size, 2**31 - 1)`."""
    values = np.ascontiguousarray(patches, dtype=np.float32).reshape(len(patches), -1)
    mixed = (values.view(np.int32).astype(np.int64) * multipliers(values.shape[1])).sum(axis=1)
    hashed: npt.NDArray[np.int64] = (mixed >> HASH_SHIFT) & HASH_MASK
    return text_vocab_size + hashed % (ID_LIMIT - text_vocab_size)
