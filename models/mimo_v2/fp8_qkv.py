"""Sharding the fused block-fp8 `qkv_proj` of the Pro format over tensor-parallel ranks.

On disk (shapes of released checkpoints, K heads of 192 rows and V heads of 128):

    qkv_proj.weight              float8_e4m3fn  [rows, hidden]
    qkv_proj.weight_scale_inv    float32        [scale rows, ceil(hidden / 128)], value = code * scale

    checkpoint            heads  KV heads  groups  rows           scale rows
    MiMo-V2.5-Pro           128         8       8  8 x 3392       8 x 27 = 216, not ceil(27136 / 128) = 212
    MiMo-V2.5, full          64         4       4  4 x 3392       4 x 27 = 108
    MiMo-V2.5, sliding       64         8       4  4 x 3712       4 x 29 = 116

* The tensor was exported from a tensor-parallel job and is the concatenation of that job's ranks, here called
  groups. A group is `[Q | K | V]`: all its query heads, then all its K heads, then all its V heads.
* There are `num_key_value_heads` groups: of the config's full-attention layers, for the sliding-window layers
  as well. A layer with more KV heads than that has several per group, so groups are not KV heads in general.
* Each group was quantised by itself. Its first row starts a row of blocks and its last row of blocks may be
  partial: with 3392 rows, 26.5 blocks and 27 scale rows. K and V heads begin inside a block (K at 192 = 1.5
  blocks), so a block can hold rows of both.
* A scale tensor with `ceil(rows / 128)` rows is read as one grid over the whole tensor. Where both counts
  are equal the grid is per group; if the groups are whole blocks, the two are the same.

A rank of `QKVParallelLinear` wants `[its query heads | its K heads | its V heads]` with one grid of blocks
that starts at its first row and has `ceil(rank rows / 128)` scale rows. Invariant: a block of the rank whose
rows come from one block on disk is copied, code for code and scale for scale; only a block that mixes several
is quantised anew, at an error bounded in `_requantize`.

The split form (`q_proj`, `k_proj`, `v_proj`, each with its own grid) is in `fp8_split_qkv`.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

BLOCK = (128, 128)  # rows x columns that share a scale; `weight_block_size` of the checkpoints
E4M3_MAX = 448.0  # largest finite float8_e4m3fn
SMALLEST_SCALE = torch.finfo(torch.float32).tiny  # of an all-zero block, which has no scale of its own

WEIGHT = "weight"
SCALE = "weight_scale_inv"


@dataclass(frozen=True)
class QkvLayout:
    """How a layer's fused qkv rows are laid out on disk. Sizes are in rows per head.

    Raises:
        ValueError: the heads cannot be divided among KV heads and groups.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    v_head_dim: int
    num_groups: int | None = None  # the config's `num_key_value_heads`; None: one group per KV head

    def __post_init__(self) -> None:
        if self.num_heads % self.num_kv_heads or self.num_kv_heads % self.groups:
            raise ValueError(
                f"qkv_proj: {self.num_heads} query heads over {self.num_kv_heads} KV heads in "
                f"{self.groups} groups: each count must be a multiple of the next"
            )

    @property
    def groups(self) -> int:
        """The number of `[Q | K | V]` groups on disk."""
        return self.num_kv_heads if self.num_groups is None else self.num_groups

    @property
    def section_rows(self) -> list[int]:
        """Rows of Q, of K and of V in one group."""
        heads, kv_heads = self.num_heads // self.groups, self.num_kv_heads // self.groups
        return [heads * self.head_dim, kv_heads * self.head_dim, kv_heads * self.v_head_dim]

    @property
    def rows(self) -> int:
        """Rows of the whole tensor."""
        return self.groups * sum(self.section_rows)


def rank_rows(layout: QkvLayout, tp_rank: int, tp_size: int) -> Tensor:
    """The rows on disk of a rank's `[Q | K | V]`, in the rank's order, int64 [rank rows].

    Above `num_kv_heads` ranks, consecutive ranks share a KV head and split its query heads, as in
    `QKVParallelLinear`.

    Raises:
        ValueError: the heads cannot be divided among the ranks.
    """
    few, many = sorted((layout.num_kv_heads, tp_size))
    if not 0 <= tp_rank < tp_size or layout.num_heads % tp_size or many % few:
        raise ValueError(
            f"qkv_proj: rank {tp_rank} of tensor-parallel size {tp_size} cannot be given its share of "
            f"{layout.num_heads} query heads and {layout.num_kv_heads} KV heads: the size must divide the "
            "query heads, and divide the KV heads or be a multiple of them"
        )
    grouped = torch.arange(layout.rows).view(layout.groups, -1)
    q, k, v = torch.split(grouped, layout.section_rows, dim=1)
    heads = layout.num_heads // tp_size
    kv_heads = max(1, layout.num_kv_heads // tp_size)
    kv_start = tp_rank * layout.num_kv_heads // tp_size
    return torch.cat(
        [
            q.reshape(-1, layout.head_dim)[tp_rank * heads :][:heads].flatten(),
            k.reshape(-1, layout.head_dim)[kv_start:][:kv_heads].flatten(),
            v.reshape(-1, layout.v_head_dim)[kv_start:][:kv_heads].flatten(),
        ]
    )


def shard_fp8_qkv_proj(
    weight: Tensor,
    scale: Tensor,
    layout: QkvLayout,
    tp_rank: int,
    tp_size: int,
    block: tuple[int, int] = BLOCK,
    name: str = "qkv_proj",
) -> tuple[Tensor, Tensor]:
    """A rank's share of a fused qkv projection, `[Q | K | V]`, and the block scales that fit it.

    Args:
        weight: float8_e4m3fn [layout.rows, hidden], on any device.
        scale: float32 [scale rows, ceil(hidden / block)], in either grid of the module docstring.
        layout: of the layer.
        tp_rank: of this rank.
        tp_size: ranks in all.
        block: rows and columns that share a scale.
        name: of the projection, for errors.

    Returns:
        float8_e4m3fn [rank rows, hidden] and float32 [ceil(rank rows / block), ceil(hidden / block)]. They
        are views of the arguments when the rank's share is exactly one group.

    Raises:
        ValueError: a shape or dtype is wrong, or the heads cannot be divided among the ranks.
    """
    scale_rows = _scale_row_of_each_row(weight, scale, layout, block, name)
    rows = rank_rows(layout, tp_rank, tp_size)
    grid_per_group = scale.shape[0] == layout.groups * _blocks(sum(layout.section_rows), block[0])
    if tp_size == layout.groups and grid_per_group:
        return weight.chunk(tp_size)[tp_rank], scale.chunk(tp_size)[tp_rank]
    return gather_rows(weight, scale, rows, scale_rows[rows], block)


_shard_fp8_qkv_proj = shard_fp8_qkv_proj


def gather_rows(
    weight: Tensor, scale: Tensor, rows: Tensor, scale_rows: Tensor, block: tuple[int, int] = BLOCK
) -> tuple[Tensor, Tensor]:
    """Rows of a block-fp8 tensor in a new order, with a grid of blocks that starts at the first of them.

    Besides the result, memory is needed for one row of blocks at a time.

    Args:
        weight: float8_e4m3fn [rows on disk, columns].
        scale: float32 [scale rows, ceil(columns / block)].
        rows: int64 [n], on the CPU: the rows to take.
        scale_rows: int64 [n], on the CPU: for each of them its row in `scale`.
        block: rows and columns that share a scale.

    Returns:
        float8_e4m3fn [n, columns] and float32 [ceil(n / block), ceil(columns / block)].
    """
    # As bytes: not every device can index float8, and no code may change on the way.
    codes = weight.view(torch.uint8).index_select(0, rows.to(weight.device)).view(weight.dtype)
    scales = []
    row_blocks = zip(torch.split(codes, block[0]), torch.split(scale_rows, block[0]), strict=True)
    for part, sources in row_blocks:
        if (sources == sources[0]).all():
            scales.append(scale[int(sources[0])])
        else:
            requantized, block_scale = _requantize(part, scale[sources.to(scale.device)], block[1])
            part.copy_(requantized)
            scales.append(block_scale)
    return codes, torch.stack(scales)


def _requantize(codes: Tensor, scales: Tensor, columns: int) -> tuple[Tensor, Tensor]:
    """Put rows of different scales on one scale per `columns` columns: the smallest of theirs that holds all.

    Rows of that scale keep their codes, which a new scale from the largest value would not grant, and
    power-of-two scales stay so. A value x of another row is off by at most max(2**-4 |x|, 2**-10 scale): half
    a step of three mantissa bits, or half a step of the subnormals.

    Args:
        codes: float8_e4m3fn [rows, hidden], at most one row of blocks.
        scales: float32 [rows, ceil(hidden / columns)]: each row's own.
        columns: that share a scale.

    Returns:
        float8_e4m3fn [rows, hidden] and float32 [ceil(hidden / columns)].
    """
    values = dequantize_blocks(codes, scales, (1, columns))
    amax = torch.stack([part.abs().amax() for part in torch.split(values, columns, dim=1)])
    # The scale that the largest value was stored with holds all, so there is one.
    fitting = torch.where(scales * E4M3_MAX >= amax, scales, torch.inf)
    scale = fitting.amin(dim=0).clamp(min=SMALLEST_SCALE)
    return (values / _expand(scale, columns, dim=0, size=codes.shape[1])).to(codes.dtype), scale


def dequantize_blocks(weight: Tensor, scale: Tensor, block: tuple[int, int] = BLOCK) -> Tensor:
    """The values of a block-fp8 tensor with one grid of scales, float32 [rows, columns].

    Args:
        weight: float8_e4m3fn [rows, columns].
        scale: float32 [ceil(rows / block), ceil(columns / block)].
        block: rows and columns that share a scale.
    """
    rows, columns = weight.shape
    return weight.float() * _expand(_expand(scale, block[0], 0, rows), block[1], 1, columns)


def quantize_blocks(values: Tensor, block: tuple[int, int] = BLOCK) -> tuple[Tensor, Tensor]:
    """Quantise a matrix to block-fp8, each block's largest magnitude to 448, rounding to nearest even.

    An all-zero block gives zeros with the smallest normal scale. A finite value x is off by at most
    max(2**-4 |x|, 2**-10 scale), as in `_requantize`.

    Args:
        values: floating point [rows, columns].
        block: rows and columns that share a scale; the last ones may be partial.

    Returns:
        float8_e4m3fn [rows, columns] and float32 [ceil(rows / block), ceil(columns / block)].
    """
    rows, columns = values.shape
    values = values.float()
    row_amax = torch.stack([part.abs().amax(dim=0) for part in torch.split(values, block[0])])
    amax = torch.stack([part.amax(dim=1) for part in torch.split(row_amax, block[1], dim=1)], dim=1)
    scale = (amax / E4M3_MAX).clamp(min=SMALLEST_SCALE)
    codes = values / _expand(_expand(scale, block[0], 0, rows), block[1], 1, columns)
    return codes.clamp(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn), scale


def require_dtypes(weight: Tensor, scale: Tensor, name: str) -> None:
    """Raise `ValueError` unless a projection `name` has e4m3 codes and float32 scales."""
    for kind, tensor, dtype in ((WEIGHT, weight, torch.float8_e4m3fn), (SCALE, scale, torch.float32)):
        if tensor.dtype != dtype:
            raise ValueError(f"{name}.{kind} of shape {tuple(tensor.shape)} is {tensor.dtype}, not {dtype}")


class Fp8QkvLoader:
    """Pairs each fused qkv weight with its scale, in whatever order and calls they arrive, and shards them.

    Its state is the halves whose other half is still to come, so it has to live as long as the loading does.
    """

    def __init__(self, tp_rank: int, tp_size: int, block: tuple[int, int] = BLOCK) -> None:
        self._tp_rank = tp_rank
        self._tp_size = tp_size
        self._block = block
        self._halves: dict[str, dict[str, Tensor]] = {}

    @staticmethod
    def accepts(name: str, tensor: Tensor) -> bool:
        """Whether a tensor of the checkpoint is one half of a fused fp8 qkv projection, so one for `add`."""
        is_fp8 = tensor.is_floating_point() and tensor.itemsize == 1
        return name.endswith(f"qkv_proj.{SCALE}") or (is_fp8 and name.endswith(f"qkv_proj.{WEIGHT}"))

    def add(self, name: str, tensor: Tensor, layout: QkvLayout) -> dict[str, Tensor]:
        """Take one half; once the other is here too, return this rank's share of both by parameter name.

        Returns:
            Empty while a half is missing, else `{prefix.weight: ..., prefix.weight_scale_inv: ...}`, as
            `shard_fp8_qkv_proj` returns them.

        Raises:
            ValueError: a shape or dtype is wrong, or the same half came twice; the tensor is named.
        """
        assert self.accepts(name, tensor), name
        prefix, _, kind = name.rpartition(".")
        halves = self._halves.setdefault(prefix, {})
        if kind in halves:
            raise ValueError(f"{name} arrived twice before {prefix}.{_other(kind)}")
        halves[kind] = tensor
        if len(halves) == 1:
            return {}
        del self._halves[prefix]
        weight, scale = shard_fp8_qkv_proj(
            halves[WEIGHT], halves[SCALE], layout, self._tp_rank, self._tp_size, self._block, name=prefix
        )
        return {f"{prefix}.{WEIGHT}": weight, f"{prefix}.{SCALE}": scale}

    def pending(self) -> list[str]:
        """Names of the tensors whose other half is here and that have not arrived, sorted."""
        return sorted(f"{prefix}.{_other(kind)}" for prefix, half in self._halves.items() for kind in half)

    def require_complete(self) -> None:
        """Call when the checkpoint is read.

        Raises:
            ValueError: a weight came without its scale or a scale without its weight; the missing are named.
        """
        if self._halves:
            raise ValueError(
                f"fused fp8 qkv_proj: {', '.join(self.pending())} never arrived, though the other half of "
                "each pair did: the checkpoint is incomplete"
            )


def _other(kind: str) -> str:
    return SCALE if kind == WEIGHT else WEIGHT


def _scale_row_of_each_row(
    weight: Tensor, scale: Tensor, layout: QkvLayout, block: tuple[int, int], name: str
) -> Tensor:
    """For each row on disk its row in the scale tensor, int64 [layout.rows]; `ValueError` if one is wrong."""
    require_dtypes(weight, scale, name)
    if weight.dim() != 2 or weight.shape[0] != layout.rows:
        raise ValueError(
            f"{name}.{WEIGHT} has shape {tuple(weight.shape)}, not ({layout.rows}, hidden size): "
            f"{layout.groups} groups of {layout.section_rows} Q, K and V rows"
        )
    group_rows = sum(layout.section_rows)
    per_group = (layout.groups * _blocks(group_rows, block[0]), _blocks(weight.shape[1], block[1]))
    whole = (_blocks(layout.rows, block[0]), per_group[1])
    rows = torch.arange(layout.rows)
    if scale.shape == per_group:
        return rows // group_rows * _blocks(group_rows, block[0]) + rows % group_rows // block[0]
    if scale.shape == whole:
        return rows // block[0]
    raise ValueError(
        f"{name}.{SCALE} has shape {tuple(scale.shape)}, but {name}.{WEIGHT} of shape {tuple(weight.shape)} "
        f"needs {per_group} with blocks of {block} per group, or {whole} with blocks over the whole tensor"
    )


def _blocks(size: int, block: int) -> int:
    """Blocks that cover `size`; the last may be partial."""
    return -(-size // block)


def _expand(scale: Tensor, block: int, dim: int, size: int) -> Tensor:
    """Repeat each scale for the rows or columns of its block, `size` in all."""
    return scale.repeat_interleave(block, dim=dim).narrow(dim, 0, size)
