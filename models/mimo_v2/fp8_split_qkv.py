"""Sharding block-fp8 `q_proj`, `k_proj` and `v_proj`, as Flash stores them, over tensor-parallel ranks.

Each of the three has its own grid of blocks on disk; a rank of `QKVParallelLinear` has one grid over its
`[Q | K | V]`. vLLM's own loader moves whole rows of scales, and where a rank's rows of a projection are no
whole blocks, rows get a neighbour's scale, unnoticed. Flash's K heads are 1.5 blocks, and a rank has one of
them from as many ranks on as there are KV heads: 4 in full layers, 8 in sliding ones.

Invariant, that of `fp8_qkv`: a block of the rank whose rows come from one block on disk is copied, code for
code and scale for scale; only a block that mixes several is quantised anew.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from models.mimo_v2.fp8_qkv import (
    BLOCK,
    SCALE,
    WEIGHT,
    QkvLayout,
    gather_rows,
    rank_rows,
    require_dtypes,
)
from models.mimo_v2.manifest import FUSED_QKV, SPLIT_QKV


def shard_fp8_split_qkv(
    weights: Sequence[Tensor],
    scales: Sequence[Tensor],
    layout: QkvLayout,
    tp_rank: int,
    tp_size: int,
    block: tuple[int, int] = BLOCK,
) -> tuple[Tensor, Tensor]:
    """A rank's share of three split projections, `[Q | K | V]`, and the block scales that fit it.

    Args:
        weights: of Q, K and V: float8_e4m3fn [rows of `layout.section_rows`, hidden], on one device.
        scales: of Q, K and V: float32 [ceil(rows / block), ceil(hidden / block)].
        layout: of the layer, in one group.
        tp_rank: of this rank.
        tp_size: ranks in all.
        block: rows and columns that share a scale.

    Returns:
        float8_e4m3fn [rank rows, hidden] and float32 [ceil(rank rows / block), ceil(hidden / block)].

    Raises:
        ValueError: the heads cannot be divided among the ranks.
    """
    assert [len(weight) for weight in weights] == layout.section_rows
    scale_rows, first = [], 0
    for weight, scale in zip(weights, scales, strict=True):
        scale_rows.append(first + torch.arange(len(weight)) // block[0])
        first += len(scale)
    # As bytes: not every device can join float8.
    codes = torch.cat([weight.view(torch.uint8) for weight in weights]).view(weights[0].dtype)
    rows = rank_rows(layout, tp_rank, tp_size)
    return gather_rows(codes, torch.cat(list(scales)), rows, torch.cat(scale_rows)[rows], block)


class Fp8SplitQkvLoader:
    """Collects the six tensors of an attention, in whatever order and calls they arrive, and shards them.

    Its state is the tensors that wait for others of their attention, so it has to live as long as the loading
    does.
    """

    def __init__(self, tp_rank: int, tp_size: int, block: tuple[int, int] = BLOCK) -> None:
        self._tp_rank = tp_rank
        self._tp_size = tp_size
        self._block = block
        self._arrived: dict[str, dict[str, Tensor]] = {}  # by attention, then by name below it

    def add(self, name: str, tensor: Tensor, layout: QkvLayout) -> dict[str, Tensor]:
        """Take one tensor, of the right shape; with the last of six, return this rank's share.

        Returns:
            Empty while some are missing, else what `shard_fp8_split_qkv` returns, by the names of the fused
            parameters.

        Raises:
            ValueError: a dtype is wrong; the tensor is named.
        """
        parent, part, leaf = name.rsplit(".", 2)
        arrived = self._arrived.setdefault(parent, {})
        assert f"{part}.{leaf}" not in arrived, name
        arrived[f"{part}.{leaf}"] = tensor
        if len(arrived) < 2 * len(SPLIT_QKV):
            return {}
        del self._arrived[parent]
        weights, scales = ([arrived[f"{part}.{leaf}"] for part in SPLIT_QKV] for leaf in (WEIGHT, SCALE))
        for part, weight, scale in zip(SPLIT_QKV, weights, scales, strict=True):
            require_dtypes(weight, scale, f"{parent}.{part}")
        weight, scale = shard_fp8_split_qkv(
            weights, scales, layout, self._tp_rank, self._tp_size, self._block
        )
        return {f"{parent}.{FUSED_QKV}.{WEIGHT}": weight, f"{parent}.{FUSED_QKV}.{SCALE}": scale}
