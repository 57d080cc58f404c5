"""Fused fp8 qkv shards against head-by-head references, however groups, blocks and ranks meet."""

import itertools
import math
from functools import lru_cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from models.mimo_v2.fp8_qkv import (
    BLOCK,
    Fp8QkvLoader,
    QkvLayout,
    _shard_fp8_qkv_proj,
    dequantize_blocks,
    gather_rows,
    quantize_blocks,
    rank_rows,
    shard_fp8_qkv_proj,
)
from tests.support.fp8 import FP8, OnDisk, assert_shard, expand, rank_heads, rounding

PRO = QkvLayout(128, 8, 192, 128)
FULL = QkvLayout(64, 4, 192, 128)
SLIDING = QkvLayout(64, 8, 192, 128, num_groups=4)  # two KV heads per group

GRID = [
    (PRO, (1, 2, 4, 8, 16)),
    (FULL, (1, 2, 4, 8, 16)),
    (SLIDING, (1, 2, 4, 8, 16)),
    (QkvLayout(64, 8, 192, 128), (1, 2, 4, 8, 16)),  # 1856 rows per group: 14.5 blocks
    (QkvLayout(4, 1, 192, 128), (1, 2, 4)),
    (QkvLayout(4, 4, 128, 128), (1, 2, 4)),  # every head is one block
    (QkvLayout(8, 2, 24, 16), (1, 2, 4, 8)),  # a whole group is little more than a block
    (QkvLayout(8, 4, 24, 16, num_groups=2), (1, 2, 4, 8)),
    (QkvLayout(6, 3, 40, 72), (1, 3, 6)),  # V larger than K
    (QkvLayout(4, 2, 100, 60), (1, 2, 4)),
    (QkvLayout(2, 2, 3, 1), (1, 2)),
    (QkvLayout(6, 6, 64, 32, num_groups=1), (1, 2, 3, 6)),  # plain [Q | K | V]
]
LAYOUTS = [layout for layout, _ in GRID]
CASES = [(layout, tp_size) for layout, sizes in GRID for tp_size in sizes]


def case_id(value: object) -> str:
    if isinstance(value, QkvLayout):
        heads = f"{value.num_heads}q{value.num_kv_heads}kv{value.head_dim}+{value.v_head_dim}"
        return f"{heads}in{value.groups}"
    return f"{value}"


cases = pytest.mark.parametrize(("layout", "tp_size"), CASES, ids=case_id)


def group_heads(layout: QkvLayout, group: int) -> list[tuple[str, int]]:
    """The heads of a group, in the order of its rows."""

    def share(kind: str, total: int) -> list[tuple[str, int]]:
        count = total // layout.groups
        return [(kind, group * count + i) for i in range(count)]

    return share("q", layout.num_heads) + share("k", layout.num_kv_heads) + share("v", layout.num_kv_heads)


@lru_cache(maxsize=16)
def on_disk(
    layout: QkvLayout,
    hidden: int = 136,
    block: tuple[int, int] = BLOCK,
    seed: int = 0,
    per_group: bool = True,
    power_of_two: bool = False,
) -> OnDisk:
    """Random heads, each of its own magnitude, so that no scale of another head can stand in for its own."""
    generator = torch.Generator().manual_seed(seed)
    order = [group_heads(layout, g) for g in range(layout.groups)]
    magnitude = torch.rand(len(order), len(order[0]), generator=generator) * 8 - 4
    groups = []
    for group, heads in enumerate(order):
        parts = []
        for place, (kind, _) in enumerate(heads):
            size = layout.v_head_dim if kind == "v" else layout.head_dim
            parts.append(torch.randn(size, hidden, generator=generator) * 2 ** magnitude[group, place])
        groups.append(torch.cat(parts))

    pieces = groups if per_group else [torch.cat(groups)]
    weights, scales, values, scale_rows, seen = [], [], [], [], 0
    for piece in pieces:
        weight, scale = quantize_blocks(piece, block)
        if power_of_two:
            scale = torch.exp2(torch.log2(scale).ceil())
        weights.append(weight)
        scales.append(scale)
        values.append(dequantize_blocks(weight, scale, block))
        scale_rows.append(seen + torch.arange(len(piece)) // block[0])
        seen += len(scale)
    flat_heads = [head for heads in order for head in heads]
    sizes = [layout.v_head_dim if kind == "v" else layout.head_dim for kind, _ in flat_heads]
    return OnDisk(
        torch.cat([w.view(torch.uint8) for w in weights]).view(FP8),
        torch.cat(scales),
        dict(zip(flat_heads, torch.cat(values).split(sizes), strict=True)),
        dict(zip(flat_heads, torch.cat(scale_rows).split(sizes), strict=True)),
    )


@cases
def test_a_shard_is_its_heads(layout: QkvLayout, tp_size: int) -> None:
    disk = on_disk(layout)
    for tp_rank in range(tp_size):
        weight, scale = shard_fp8_qkv_proj(disk.weight, disk.scale, layout, tp_rank, tp_size)
        assert_shard(weight, scale, disk, rank_heads(layout, tp_rank, tp_size))


# Where both grids have as many rows, the one per group is meant.
ONE_GRID = [case for case in CASES if -(-case[0].rows // 128) < len(on_disk(case[0], hidden=1).scale)]


@pytest.mark.parametrize(("layout", "tp_size"), ONE_GRID, ids=case_id)
def test_a_shard_of_one_grid_over_all_groups_is_its_heads(layout: QkvLayout, tp_size: int) -> None:
    disk = on_disk(layout, hidden=12, per_group=False)
    assert len(disk.scale) == -(-layout.rows // 128)
    for tp_rank in range(tp_size):
        weight, scale = shard_fp8_qkv_proj(disk.weight, disk.scale, layout, tp_rank, tp_size)
        assert_shard(weight, scale, disk, rank_heads(layout, tp_rank, tp_size))


@cases
def test_all_ranks_reconstruct_the_whole(layout: QkvLayout, tp_size: int) -> None:
    disk = on_disk(layout, hidden=12)
    whole, bound = torch.full(disk.weight.shape, torch.nan), torch.zeros(disk.weight.shape)
    times = torch.zeros(layout.rows, dtype=torch.int64)
    for tp_rank in range(tp_size):
        rows = rank_rows(layout, tp_rank, tp_size)
        weight, scale = shard_fp8_qkv_proj(disk.weight, disk.scale, layout, tp_rank, tp_size)
        whole[rows] = dequantize_blocks(weight, scale)
        bound[rows] = expand(scale, weight.shape)
        times[rows] += 1
    order = [head for group in range(layout.groups) for head in group_heads(layout, group)]
    expected, _ = disk.expected(order)
    assert ((whole - expected).abs() <= rounding(expected, bound)).all()
    replicas = max(1, tp_size // layout.num_kv_heads)
    kinds = [kind for kind, head in order for _ in range(len(disk.values[kind, head]))]
    assert times.tolist() == [1 if kind == "q" else replicas for kind in kinds]


@pytest.mark.parametrize("layout", LAYOUTS, ids=case_id)
def test_one_group_per_rank_is_a_plain_chunk(layout: QkvLayout) -> None:
    disk = on_disk(layout)
    rows, scale_rows = layout.rows // layout.groups, len(disk.scale) // layout.groups
    for tp_rank in range(layout.groups):
        weight, scale = shard_fp8_qkv_proj(disk.weight, disk.scale, layout, tp_rank, layout.groups)
        assert torch.equal(weight.view(torch.uint8), disk.weight.view(torch.uint8)[tp_rank * rows :][:rows])
        assert torch.equal(scale, disk.scale[tp_rank * scale_rows :][:scale_rows])
        assert weight.untyped_storage().data_ptr() == disk.weight.untyped_storage().data_ptr()  # not a copy


@pytest.mark.parametrize(
    ("layout", "tp_size", "blocks", "mixed"),
    [
        # Per pair of heads, K has 3 blocks: one whole, two of parts. V heads begin half-way in a block.
        (PRO, 1, 8 * 24 + 12 + 8, 8 + 8),
        (PRO, 4, 2 * 24 + 3 + 2, 2 + 2),
        (PRO, 8, 27, 0),
        # Half a group's query heads: 12 whole blocks, then K and V as on disk.
        (PRO, 16, 15, 0),
        (SLIDING, 1, 4 * 24 + 4 * 3 + 4 * 2, 0),
        (SLIDING, 4, 29, 0),
        (QkvLayout(4, 4, 128, 128), 1, 12, 0),
    ],
    ids=case_id,
)
def test_only_blocks_that_mix_scales_are_quantised_anew(
    layout: QkvLayout, tp_size: int, blocks: int, mixed: int
) -> None:
    disk = on_disk(layout)
    weight, scale = shard_fp8_qkv_proj(disk.weight, disk.scale, layout, 0, tp_size)
    assert len(scale) == blocks
    assert assert_shard(weight, scale, disk, rank_heads(layout, 0, tp_size)) == mixed


@pytest.mark.parametrize(("layout", "tp_size"), [(PRO, 8), (PRO, 16), (SLIDING, 2)], ids=case_id)
def test_whole_blocks_are_copied_bit_for_bit(layout: QkvLayout, tp_size: int) -> None:
    """Every code, NaN and -0 too, and every scale, zero too."""
    bits = torch.randint(256, (layout.rows, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    scale = torch.arange(layout.groups * math.ceil(layout.rows / layout.groups / 128)).float()[:, None]
    row = torch.arange(layout.rows)
    group_rows, group_scales = layout.rows // layout.groups, len(scale) // layout.groups
    scale_rows = row // group_rows * group_scales + row % group_rows // 128
    for tp_rank in range(tp_size):
        rows = rank_rows(layout, tp_rank, tp_size)
        weight, got_scale = shard_fp8_qkv_proj(bits.view(FP8), scale, layout, tp_rank, tp_size)
        assert torch.equal(weight.view(torch.uint8), bits[rows])
        assert torch.equal(got_scale[:, 0], scale_rows[rows][::128].float())


@pytest.mark.parametrize("tp_size", [1, 2, 4])
def test_power_of_two_scales_lose_nothing(tp_size: int) -> None:
    """Above the subnormals, moving by a power of two changes only the exponent."""
    layout = QkvLayout(8, 4, 24, 16)
    disk = on_disk(layout, power_of_two=True)
    for tp_rank in range(tp_size):
        weight, scale = shard_fp8_qkv_proj(disk.weight, disk.scale, layout, tp_rank, tp_size)
        assert torch.equal(torch.log2(scale), torch.log2(scale).round())
        expected, _ = disk.expected(rank_heads(layout, tp_rank, tp_size))
        error = (dequantize_blocks(weight, scale) - expected).abs()
        normal = expected.abs() >= expand(scale, expected.shape) * 2**-6
        assert normal.float().mean() > 0.9
        assert error[normal].max() == 0


def test_rows_of_the_smallest_scale_that_holds_all_keep_their_codes() -> None:
    codes = torch.tensor([[5.0, 208.0, 0.0], [448.0, 13.0, 0.0], [416.0, 11.0, 0.0], [448.0, 7.0, 0.0]])
    scale = torch.tensor([[2.9, 3.0], [0.7, 1.0], [2.0, 0.5], [0.1, 0.0]])
    got, got_scale = gather_rows(codes.to(FP8), scale, torch.arange(4), torch.arange(4), (4, 2))
    assert got_scale[0, 0] == 2.0  # 0.7 cannot hold 416 * 2; 416 * 2 / 448 could, but would change row 2
    assert torch.equal(got[2].float(), codes[2])
    assert not torch.equal(got[0].float(), codes[0])


@pytest.mark.parametrize("arbitrary", [0.0, 2.0**-20, 1.0, 1e38])
def test_zeros_may_have_any_scale(arbitrary: float) -> None:
    """Exporters give all-zero blocks some scale, such as 1, which must not flatten or overflow the others."""
    codes = torch.tensor([[448.0, -3.0, 0.0], [0.0, 0.0, 0.0], [7.0, 0.0, 0.0]])
    scale = torch.tensor([[2.0**-9, 1.0], [arbitrary, arbitrary], [2.0**-10, 1.0]])
    got, got_scale = gather_rows(codes.to(FP8), scale, torch.arange(3), torch.arange(3), (3, 2))
    expected = dequantize_blocks(codes.to(FP8), scale, (1, 2))
    assert torch.equal(dequantize_blocks(got, got_scale, (3, 2)), expected)
    assert got_scale[0, 0] == 2.0**-9
    assert (got_scale > 0).all()


@st.composite
def small_cases(draw: st.DrawFn) -> tuple[QkvLayout, int, int, tuple[int, int], int]:
    groups, kv_per_group, heads_per_kv = draw(st.tuples(*[st.integers(1, 4)] * 3))
    kv_heads = groups * kv_per_group
    heads = kv_heads * heads_per_kv
    head_dim, v_head_dim, hidden = draw(st.tuples(*[st.integers(1, 13)] * 3))
    layout = QkvLayout(heads, kv_heads, head_dim, v_head_dim, groups)
    sizes = [n for n in range(1, heads + 1) if heads % n == 0 and (kv_heads % n == 0 or n % kv_heads == 0)]
    block = draw(st.tuples(st.integers(1, 9), st.integers(1, 9)))
    return layout, draw(st.sampled_from(sizes)), hidden, block, draw(st.integers(0, 2**16))


@settings(max_examples=200, deadline=None)
@given(small_cases())
def test_any_layout(case: tuple[QkvLayout, int, int, tuple[int, int], int]) -> None:
    layout, tp_size, hidden, block, seed = case
    disk = on_disk(layout, hidden, block, seed)
    for tp_rank in range(tp_size):
        weight, scale = shard_fp8_qkv_proj(disk.weight, disk.scale, layout, tp_rank, tp_size, block)
        assert_shard(weight, scale, disk, rank_heads(layout, tp_rank, tp_size), block)


@pytest.mark.parametrize(("layout", "rows", "scale_rows"), [(PRO, 27136, 216), (SLIDING, 14848, 116)])
def test_released_shapes(layout: QkvLayout, rows: int, scale_rows: int) -> None:
    disk = on_disk(layout, hidden=1)
    assert (layout.rows, len(disk.weight), len(disk.scale)) == (rows, rows, scale_rows)


def test_arguments_are_left_as_they_were() -> None:
    disk = on_disk(FULL)
    weight, scale = disk.weight.view(torch.uint8).clone(), disk.scale.clone()
    shard_fp8_qkv_proj(disk.weight, disk.scale, FULL, 0, 1)
    assert torch.equal(disk.weight.view(torch.uint8), weight)
    assert torch.equal(disk.scale, scale)


@settings(max_examples=100, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 20), st.integers(1, 20)),
    block=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    exponent=st.integers(-140, 80),
    seed=st.integers(0, 2**16),
)
def test_quantising_rounds_to_nearest(
    shape: tuple[int, int], block: tuple[int, int], exponent: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(shape, generator=generator) * torch.exp2(4 * torch.randn(shape, generator=generator))
    values = values.mul(torch.rand(shape, generator=generator) > 0.5).mul(2.0**exponent)
    weight, scale = quantize_blocks(values, block)
    error = (dequantize_blocks(weight, scale, block) - values).abs()
    assert (error <= rounding(values, expand(scale, values.shape, block))).all()


def test_quantised_blocks_span_the_whole_range() -> None:
    values = torch.randn(5, 7, generator=torch.Generator().manual_seed(0))
    weight, scale = quantize_blocks(values, (2, 3))
    assert (weight.shape, scale.shape) == ((5, 7), (3, 3))
    for i, j in itertools.product(range(3), range(3)):
        part = (slice(2 * i, 2 * i + 2), slice(3 * j, 3 * j + 3))
        assert scale[i, j] == values[part].abs().max() / 448
        assert weight[part].float().abs().max() == 448
        torch.testing.assert_close(
            dequantize_blocks(weight, scale, (2, 3))[part], weight[part].float() * scale[i, j]
        )


def test_zero_blocks_quantise_to_zeros() -> None:
    weight, scale = quantize_blocks(torch.zeros(3, 3), (2, 2))
    assert (scale > 0).all()
    assert torch.equal(dequantize_blocks(weight, scale, (2, 2)), torch.zeros(3, 3))


def test_the_known_name_is_the_same_function() -> None:
    assert _shard_fp8_qkv_proj is shard_fp8_qkv_proj


# The loader -----------------------------------------------------------------------------------------------

TINY = QkvLayout(8, 4, 24, 16)
PREFIXES = ("model.layers.0.self_attn.qkv_proj", "model.layers.11.self_attn.qkv_proj")


def tensors_of_two_layers() -> dict[str, Tensor]:
    tensors = {}
    for seed, prefix in enumerate(PREFIXES):
        disk = on_disk(TINY, seed=seed)
        tensors |= {f"{prefix}.weight": disk.weight, f"{prefix}.weight_scale_inv": disk.scale}
    return tensors


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))), ids=str)
def test_halves_arrive_in_any_order(order: tuple[int, ...]) -> None:
    tensors = tensors_of_two_layers()
    names = list(tensors)
    loader = Fp8QkvLoader(tp_rank=1, tp_size=2)
    got: dict[str, Tensor] = {}
    arrived: set[str] = set()
    for name in (names[i] for i in order):
        shards = loader.add(name, tensors[name], TINY)
        arrived.add(name)
        prefix = name.rpartition(".")[0]
        complete = {f"{prefix}.weight", f"{prefix}.weight_scale_inv"}
        assert shards.keys() == (complete if complete <= arrived else set())
        halves = {p for p in PREFIXES if sum(a.startswith(f"{p}.") for a in arrived) == 1}
        assert loader.pending() == sorted(
            n for n in names if n.rpartition(".")[0] in halves and n not in arrived
        )
        got |= shards
    loader.require_complete()
    for prefix in PREFIXES:
        weight, scale = shard_fp8_qkv_proj(
            tensors[f"{prefix}.weight"], tensors[f"{prefix}.weight_scale_inv"], TINY, 1, 2
        )
        assert torch.equal(got[f"{prefix}.weight"].view(torch.uint8), weight.view(torch.uint8))
        assert torch.equal(got[f"{prefix}.weight_scale_inv"], scale)


@pytest.mark.parametrize("missing", ["weight", "weight_scale_inv"])
def test_a_missing_half_is_named(missing: str) -> None:
    present = "weight" if missing == "weight_scale_inv" else "weight_scale_inv"
    tensors = tensors_of_two_layers()
    loader = Fp8QkvLoader(0, 1)
    for name in tensors:
        if name != f"{PREFIXES[1]}.{missing}":
            loader.add(name, tensors[name], TINY)
    assert loader.pending() == [f"{PREFIXES[1]}.{missing}"]
    with pytest.raises(ValueError, match=rf"layers\.11\.self_attn\.qkv_proj\.{missing} never arrived"):
        loader.require_complete()
    with pytest.raises(ValueError, match=rf"layers\.11\.self_attn\.qkv_proj\.{present} arrived twice"):
        loader.add(f"{PREFIXES[1]}.{present}", tensors[f"{PREFIXES[1]}.{present}"], TINY)


@pytest.mark.parametrize(
    ("name", "dtype", "accepted"),
    [
        ("model.layers.3.self_attn.qkv_proj.weight", FP8, True),
        ("model.layers.3.self_attn.qkv_proj.weight", torch.float8_e5m2, True),  # refused by name in `add`
        ("model.layers.3.self_attn.qkv_proj.weight_scale_inv", torch.float32, True),
        ("model.mtp.layers.0.self_attn.qkv_proj.weight_scale_inv", torch.bfloat16, True),
        ("model.layers.3.self_attn.qkv_proj.weight", torch.bfloat16, False),
        ("model.layers.3.self_attn.qkv_proj.weight", torch.uint8, False),
        ("model.layers.3.self_attn.qkv_proj.bias", torch.bfloat16, False),
        ("model.layers.3.self_attn.k_proj.weight_scale_inv", torch.float32, False),
        ("model.layers.3.self_attn.o_proj.weight", FP8, False),
    ],
)
def test_what_the_loader_takes(name: str, dtype: torch.dtype, accepted: bool) -> None:
    assert Fp8QkvLoader.accepts(name, torch.zeros(2, 2).to(dtype)) is accepted


ROWS, COLUMNS, SCALES = TINY.rows, 136, (4, 2)  # 88 rows per group, a block each


@pytest.mark.parametrize(
    ("weight", "scale", "message"),
    [
        (
            torch.zeros(ROWS + 1, COLUMNS, dtype=FP8),
            torch.zeros(SCALES),
            r"qkv_proj\.weight has shape \(353, 136\), not \(352, hidden size\): 4 groups of \[48, 24, 16\]",
        ),
        (
            torch.zeros(ROWS, dtype=FP8),
            torch.zeros(SCALES),
            r"qkv_proj\.weight has shape \(352,\), not \(352, hidden",
        ),
        (
            torch.zeros(ROWS, COLUMNS).to(torch.float8_e5m2),
            torch.zeros(SCALES),
            r"qkv_proj\.weight of shape \(352, 136\) is torch.float8_e5m2, not torch.float8_e4m3fn",
        ),
        (
            torch.zeros(ROWS, COLUMNS, dtype=FP8),
            torch.zeros(SCALES, dtype=torch.bfloat16),
            r"qkv_proj\.weight_scale_inv of shape \(4, 2\) is torch.bfloat16, not torch.float32",
        ),
        *(
            (
                torch.zeros(ROWS, COLUMNS, dtype=FP8),
                torch.zeros(shape),
                rf"qkv_proj\.weight_scale_inv has shape \({shape[0]}, {shape[1]}\), but .*qkv_proj\.weight "
                rf"of shape \(352, 136\) needs \(4, 2\) .* or \(3, 2\)",
            )
            for shape in [(4, 1), (2, 2), (5, 2), (4, 3)]
        ),
    ],
)
def test_wrong_tensors_are_named_with_both_shapes(weight: Tensor, scale: Tensor, message: str) -> None:
    loader = Fp8QkvLoader(0, 1)
    loader.add(f"{PREFIXES[0]}.weight", weight, TINY)
    with pytest.raises(ValueError, match=r"model\.layers\.0\.self_attn\." + message):
        loader.add(f"{PREFIXES[0]}.weight_scale_inv", scale, TINY)


@pytest.mark.parametrize(("tp_rank", "tp_size"), [(0, 3), (0, 16), (2, 2), (-1, 2)])
def test_impossible_ranks_are_refused(tp_rank: int, tp_size: int) -> None:
    with pytest.raises(
        ValueError, match=rf"rank {tp_rank} of tensor-parallel size {tp_size} .* 8 query heads"
    ):
        rank_rows(TINY, tp_rank, tp_size)


def test_kv_heads_must_divide_among_ranks() -> None:
    with pytest.raises(ValueError, match="6 KV heads"):
        rank_rows(QkvLayout(12, 6, 8, 8), 0, 4)


@pytest.mark.parametrize("counts", [(6, 4, None), (8, 4, 3), (8, 4, 8)])
def test_impossible_layouts_are_refused(counts: tuple[int, int, int | None]) -> None:
    heads, kv_heads, groups = counts
    with pytest.raises(ValueError, match="each count must be a multiple of the next"):
        QkvLayout(heads, kv_heads, 8, 8, groups)
