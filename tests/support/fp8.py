"""Block-fp8 projections on disk and what each head's rows are worth, to check shards head by head."""

from dataclasses import dataclass

import torch
from torch import Tensor

from models.mimo_v2.fp8_qkv import BLOCK, QkvLayout, dequantize_blocks

FP8 = torch.float8_e4m3fn


@dataclass
class OnDisk:
    """Codes and scales, and what each head's rows dequantise to and which scale row they use."""

    weight: Tensor
    scale: Tensor
    values: dict[tuple[str, int], Tensor]
    scale_rows: dict[tuple[str, int], Tensor]

    def expected(self, heads: list[tuple[str, int]]) -> tuple[Tensor, Tensor]:
        return torch.cat([self.values[h] for h in heads]), torch.cat([self.scale_rows[h] for h in heads])


def rank_heads(layout: QkvLayout, tp_rank: int, tp_size: int) -> list[tuple[str, int]]:
    """The heads of a rank: its query heads, and every KV head that one of them attends to."""
    count = layout.num_heads // tp_size
    q = range(tp_rank * count, (tp_rank + 1) * count)
    kv = sorted({head // (layout.num_heads // layout.num_kv_heads) for head in q})
    return [("q", h) for h in q] + [("k", h) for h in kv] + [("v", h) for h in kv]


def expand(scale: Tensor, shape: torch.Size, block: tuple[int, int] = BLOCK) -> Tensor:
    """The scale of each value, by index."""
    rows, columns = torch.arange(shape[0]) // block[0], torch.arange(shape[1]) // block[1]
    return scale[rows][:, columns]


def rounding(values: Tensor, scale_of_each: Tensor) -> Tensor:
    """The most that rounding to e4m3 may change each value.

    Three mantissa bits: half a step is 2**-4 of the power of two below |x|. Subnormals are 2**-9 scale apart.
    The factor is for float32 (2**-24 an operation), scaling before and after; the addend for its subnormals.
    """
    return torch.maximum(values.abs() * 2**-4, scale_of_each * 2**-10) * (1 + 2**-20) + 2**-148


def assert_shard(
    weight: Tensor, scale: Tensor, disk: OnDisk, heads: list[tuple[str, int]], block: tuple[int, int] = BLOCK
) -> int:
    """Check one rank's shard against its heads; returns how many rows of blocks mix several scales."""
    expected, sources = disk.expected(heads)
    assert (weight.dtype, scale.dtype) == (FP8, torch.float32)
    assert weight.shape == expected.shape
    assert scale.shape == (-(-len(expected) // block[0]), -(-expected.shape[1] // block[1]))
    got = dequantize_blocks(weight, scale, block)
    assert ((got - expected).abs() <= rounding(expected, expand(scale, expected.shape, block))).all()
    mixed = 0
    for start in range(0, len(expected), block[0]):
        rows = slice(start, start + block[0])
        if sources[rows].unique().numel() == 1:
            assert torch.equal(got[rows], expected[rows])
            assert torch.equal(scale[start // block[0]], disk.scale[sources[start]])
        else:
            mixed += 1
    return mixed
