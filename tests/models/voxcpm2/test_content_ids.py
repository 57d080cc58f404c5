"""Content hashes: both forms agree, every bit counts, and ids are spread over their whole range."""

import hashlib

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from models.voxcpm2.content_ids import ID_LIMIT, multipliers, prompt_ids
from models.voxcpm2.patch_hash import PatchHasher

VOCABULARY = 73448
SHAPE = (4, 64)
HASHER = PatchHasher(SHAPE[0] * SHAPE[1], VOCABULARY, torch.device("cpu"))


def random_patches(count: int, shape: tuple[int, int] = SHAPE) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((count, *shape), dtype=np.float32)


@given(
    patches=npst.arrays(
        np.float32, st.tuples(st.integers(1, 3), st.just(2), st.just(3)), elements=st.floats(width=32)
    )
)
def test_both_forms_agree(patches: np.ndarray) -> None:
    hasher = PatchHasher(6, VOCABULARY, torch.device("cpu"))
    got = hasher(torch.from_numpy(patches))
    assert got.dtype == torch.int64
    assert got.tolist() == prompt_ids(patches, VOCABULARY).tolist()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_both_forms_agree_in_any_dtype(dtype: torch.dtype) -> None:
    patches = torch.from_numpy(random_patches(64)).to(dtype)
    assert HASHER(patches).tolist() == prompt_ids(patches.float().numpy(), VOCABULARY).tolist()


def test_a_strided_view_hashes_as_its_copy() -> None:
    frames_last = torch.from_numpy(random_patches(5)).transpose(1, 2).contiguous().transpose(1, 2)
    assert not frames_last.is_contiguous()
    assert HASHER(frames_last).tolist() == HASHER(frames_last.contiguous()).tolist()
    strided = frames_last.numpy()
    assert prompt_ids(strided, VOCABULARY).tolist() == prompt_ids(strided.copy("C"), VOCABULARY).tolist()


def test_every_single_bit_counts() -> None:
    patch = random_patches(1)
    (own,) = prompt_ids(patch, VOCABULARY)
    bits = patch.reshape(-1).view(np.uint32)
    flipped = np.repeat(bits[None], bits.size * 32, axis=0)
    rows = np.arange(len(flipped))
    flipped[rows, rows // 32] ^= np.uint32(1) << (rows % 32).astype(np.uint32)
    ids = prompt_ids(flipped.view(np.float32).reshape(-1, *SHAPE), VOCABULARY)
    assert (ids != own).all()


def test_values_that_change_places_change_the_id() -> None:
    patch = random_patches(1)
    swapped = patch[:, ::-1].copy()
    assert prompt_ids(patch, VOCABULARY)[0] != prompt_ids(swapped, VOCABULARY)[0]


def test_distribution_over_many_patches() -> None:
    """Of 1e5 ids in 2^31 some 2.3 pairs collide by chance; 20 would be no chance (p < 1e-10)."""
    ids = prompt_ids(random_patches(100_000, (4, 16)), VOCABULARY)
    assert ids.min() >= VOCABULARY
    assert ids.max() < ID_LIMIT
    assert len(ids) - len(np.unique(ids)) < 20
    counts, _ = np.histogram(ids, bins=64, range=(VOCABULARY, ID_LIMIT))
    expected = len(ids) / 64
    chi_squared = ((counts - expected) ** 2 / expected).sum()
    assert chi_squared < 130  # 63 degrees of freedom: p = 1e-6


def test_neighbouring_patches_are_spread_as_well() -> None:
    """Patches that differ in the low bits of one value: what quantised or silent audio looks like."""
    patches = np.zeros((4096, *SHAPE), np.float32)
    patches[:, 3, 63] = 1 + np.arange(4096) * np.float32(2**-23)
    ids = prompt_ids(patches, VOCABULARY)
    assert len(np.unique(ids)) == len(ids)
    counts, _ = np.histogram(ids, bins=16, range=(VOCABULARY, ID_LIMIT))
    assert counts.min() > 100


@pytest.mark.parametrize("vocabulary", [1, 512, 2**30, ID_LIMIT - 1])
def test_range_follows_the_vocabulary(vocabulary: int) -> None:
    ids = prompt_ids(random_patches(1000), vocabulary)
    assert ids.min() >= vocabulary
    assert ids.max() < ID_LIMIT


def python_id(patch: np.ndarray, vocabulary: int) -> int:
    """The hash in Python's unbounded integers, cut to 64 bits at the end."""
    bits = patch.reshape(-1).view(np.int32).tolist()
    digest = hashlib.shake_256(b"voxserve audio token").digest(8 * len(bits))
    constants = [int.from_bytes(digest[i : i + 8], "little") | 1 for i in range(0, len(digest), 8)]
    mixed = sum(bit * constant for bit, constant in zip(bits, constants, strict=True)) % 2**64
    return vocabulary + (mixed >> 33) % (2**31 - 1 - vocabulary)


def test_ids_are_those_of_the_formula() -> None:
    patches = random_patches(50)
    assert prompt_ids(patches, VOCABULARY).tolist() == [python_id(patch, VOCABULARY) for patch in patches]


def test_multipliers_are_odd_and_all_different() -> None:
    constants = multipliers(SHAPE[0] * SHAPE[1])
    assert (constants % 2 == 1).all()
    assert len(np.unique(constants)) == len(constants)
