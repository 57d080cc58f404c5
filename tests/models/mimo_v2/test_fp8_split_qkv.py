"""Split fp8 projections against head-by-head references, however heads, blocks and ranks meet."""

import itertools
import random
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.model_executor.layers.quantization import fp8 as vllm_fp8

from models.checkpoint import CheckpointError
from models.mimo_v2.attention import MiMoV2Attention
from models.mimo_v2.config import parse_config
from models.mimo_v2.fp8_qkv import BLOCK, SCALE, WEIGHT, QkvLayout, dequantize_blocks, quantize_blocks
from models.mimo_v2.fp8_split_qkv import Fp8SplitQkvLoader, shard_fp8_split_qkv
from models.mimo_v2.make_checkpoint import CONFIGS, SIZES
from models.mimo_v2.manifest import SPLIT_QKV
from models.mimo_v2.mlp import MiMoV2MLP
from models.mimo_v2.weights import WeightLoader
from tests.support.fp8 import FP8, OnDisk, assert_shard, rank_heads
from tests.support.mimo_v2 import engine_config, tensor_parallel


def split(num_heads: int, num_kv_heads: int, head_dim: int, v_head_dim: int) -> QkvLayout:
    return QkvLayout(num_heads, num_kv_heads, head_dim, v_head_dim, num_groups=1)


FULL, SLIDING = split(64, 4, 192, 128), split(64, 8, 192, 128)  # Flash
GRID = [
    (FULL, (1, 2, 4, 8, 16)),
    (SLIDING, (1, 2, 4, 8, 16)),
    (split(4, 4, 128, 128), (1, 2, 4)),
    (split(8, 2, 24, 16), (1, 2, 4, 8)),
    (split(6, 3, 40, 72), (1, 3, 6)),  # V larger than K
    (split(4, 2, 100, 60), (1, 2, 4)),
    (split(2, 2, 3, 1), (1, 2)),
]
CASES = [(layout, tp_size) for layout, sizes in GRID for tp_size in sizes]


def case_id(value: object) -> str:
    if isinstance(value, QkvLayout):
        return f"{value.num_heads}q{value.num_kv_heads}kv{value.head_dim}+{value.v_head_dim}"
    return f"{value}"


@lru_cache(maxsize=8)
def on_disk(
    layout: QkvLayout, hidden: int = 136, block: tuple[int, int] = BLOCK, seed: int = 0
) -> tuple[OnDisk, list[Tensor], list[Tensor]]:
    """Random heads, each of its own magnitude; and the three weights and scales."""
    generator = torch.Generator().manual_seed(seed)
    counts = (layout.num_heads, layout.num_kv_heads, layout.num_kv_heads)
    sizes = (layout.head_dim, layout.head_dim, layout.v_head_dim)
    weights, scales, values, sources, seen = [], [], {}, {}, 0
    for kind, count, size in zip("qkv", counts, sizes, strict=True):
        magnitude = torch.exp2(torch.rand(count, 1, 1, generator=generator) * 8 - 4)
        heads = torch.randn(count, size, hidden, generator=generator) * magnitude
        weight, scale = quantize_blocks(heads.flatten(0, 1), block)
        rows = seen + torch.arange(count * size) // block[0]
        for head, (found, used) in enumerate(
            zip(dequantize_blocks(weight, scale, block).split(size), rows.split(size), strict=True)
        ):
            values[kind, head], sources[kind, head] = found, used
        seen += len(scale)
        weights.append(weight)
        scales.append(scale)
    whole = torch.cat([weight.view(torch.uint8) for weight in weights]).view(FP8)
    return OnDisk(whole, torch.cat(scales), values, sources), weights, scales


@pytest.mark.parametrize(("layout", "tp_size"), CASES, ids=case_id)
def test_a_shard_is_its_heads(layout: QkvLayout, tp_size: int) -> None:
    disk, weights, scales = on_disk(layout)
    for tp_rank in range(tp_size):
        weight, scale = shard_fp8_split_qkv(weights, scales, layout, tp_rank, tp_size)
        assert_shard(weight, scale, disk, rank_heads(layout, tp_rank, tp_size))


@pytest.mark.parametrize(
    ("layout", "tp_size", "blocks", "mixed"),
    [
        (FULL, 1, (12288 + 768 + 512) // 128, 0),
        (FULL, 2, (6144 + 384 + 256) // 128, 0),
        # One K head of 1.5 blocks: that of an even rank starts a block on disk, and its last half-block is
        # followed by V; that of an odd rank starts in the middle of one.
        (FULL, 4, 27, 1),
        (FULL, 8, 15, 1),
        (FULL, 16, 9, 1),
        (SLIDING, 4, (3072 + 384 + 256) // 128, 0),
        (SLIDING, 8, 15, 1),
        (SLIDING, 16, 9, 1),
    ],
    ids=case_id,
)
def test_only_blocks_that_mix_scales_are_quantised_anew(
    layout: QkvLayout, tp_size: int, blocks: int, mixed: int
) -> None:
    disk, weights, scales = on_disk(layout)
    weight, scale = shard_fp8_split_qkv(weights, scales, layout, 0, tp_size)
    assert len(scale) == blocks
    assert assert_shard(weight, scale, disk, rank_heads(layout, 0, tp_size)) == mixed


@pytest.mark.parametrize(("layout", "tp_size"), [(FULL, 1), (FULL, 2), (SLIDING, 4)], ids=case_id)
def test_whole_blocks_are_copied_bit_for_bit(layout: QkvLayout, tp_size: int) -> None:
    """Every code, NaN and -0 too, and every scale, zero too."""
    generator = torch.Generator().manual_seed(0)
    bits = [
        torch.randint(256, (rows, 3), dtype=torch.uint8, generator=generator) for rows in layout.section_rows
    ]
    scales = [torch.arange(len(part) // 128).float()[:, None] for part in bits]
    for tp_rank in range(tp_size):
        shares = [layout.num_heads, layout.num_kv_heads, layout.num_kv_heads]
        assert all(count % tp_size == 0 for count in shares)
        weight, scale = shard_fp8_split_qkv(
            [part.view(FP8) for part in bits], scales, layout, tp_rank, tp_size
        )
        assert torch.equal(
            weight.view(torch.uint8), torch.cat([part.chunk(tp_size)[tp_rank] for part in bits])
        )
        assert torch.equal(scale, torch.cat([part.chunk(tp_size)[tp_rank] for part in scales]))


@st.composite
def small_cases(draw: st.DrawFn) -> tuple[QkvLayout, int, int, tuple[int, int], int]:
    kv_heads, heads_per_kv = draw(st.tuples(st.integers(1, 8), st.integers(1, 4)))
    heads = kv_heads * heads_per_kv
    head_dim, v_head_dim, hidden = draw(st.tuples(*[st.integers(1, 13)] * 3))
    sizes = [n for n in range(1, heads + 1) if heads % n == 0 and (kv_heads % n == 0 or n % kv_heads == 0)]
    block = draw(st.tuples(st.integers(1, 9), st.integers(1, 9)))
    layout = split(heads, kv_heads, head_dim, v_head_dim)
    return layout, draw(st.sampled_from(sizes)), hidden, block, draw(st.integers(0, 2**16))


@settings(max_examples=200, deadline=None)
@given(small_cases())
def test_any_layout(case: tuple[QkvLayout, int, int, tuple[int, int], int]) -> None:
    layout, tp_size, hidden, block, seed = case
    disk, weights, scales = on_disk(layout, hidden, block, seed)
    for tp_rank in range(tp_size):
        weight, scale = shard_fp8_split_qkv(weights, scales, layout, tp_rank, tp_size, block)
        assert_shard(weight, scale, disk, rank_heads(layout, tp_rank, tp_size), block)


TINY = split(8, 4, 24, 16)
PARENT = "model.layers.3.self_attn"


def tensors_of(layout: QkvLayout, parent: str, hidden: int) -> dict[str, Tensor]:
    _, weights, scales = on_disk(layout, hidden)
    named = {f"{parent}.{part}.weight": weight for part, weight in zip(SPLIT_QKV, weights, strict=True)}
    return named | {
        f"{parent}.{part}.weight_scale_inv": scale for part, scale in zip(SPLIT_QKV, scales, strict=True)
    }


@pytest.mark.parametrize("order", list(itertools.permutations(range(6)))[::47], ids=str)
def test_tensors_arrive_in_any_order(order: tuple[int, ...]) -> None:
    tensors = tensors_of(TINY, PARENT, 136)
    names = list(tensors)
    loader = Fp8SplitQkvLoader(tp_rank=1, tp_size=2)
    *early, last = (loader.add(names[i], tensors[names[i]], TINY) for i in order)
    assert early == [{}] * 5
    _, weights, scales = on_disk(TINY)
    weight, scale = shard_fp8_split_qkv(weights, scales, TINY, 1, 2)
    assert torch.equal(last[f"{PARENT}.qkv_proj.weight"].float(), weight.float())
    assert torch.equal(last[f"{PARENT}.qkv_proj.weight_scale_inv"], scale)


@pytest.mark.parametrize(
    ("name", "dtype"), [("q_proj.weight", torch.float8_e5m2), ("v_proj.weight_scale_inv", torch.bfloat16)]
)
def test_wrong_dtypes_are_named(name: str, dtype: torch.dtype) -> None:
    tensors = tensors_of(TINY, PARENT, 136)
    tensors[f"{PARENT}.{name}"] = tensors[f"{PARENT}.{name}"].float().to(dtype)
    loader = Fp8SplitQkvLoader(0, 1)
    *early, (last, tensor) = tensors.items()
    for early_name, other in early:
        assert loader.add(early_name, other, TINY) == {}
    with pytest.raises(ValueError, match=rf"layers\.3\.self_attn\.{name} .* is {dtype}, not"):
        loader.add(last, tensor, TINY)


# Through the loader, into the parameters of vLLM's own block-fp8 layer ------------------------------------

HIDDEN = 256  # two columns of blocks
FLASH_HEADS = {
    "hidden_size": HIDDEN,
    "num_attention_heads": 64,
    "num_key_value_heads": 4,
    "head_dim": 192,
    "v_head_dim": 128,
    "swa_num_attention_heads": 64,
    "swa_num_key_value_heads": 8,
    "swa_head_dim": 192,
    "swa_v_head_dim": 128,
    "quantization_config": CONFIGS["pro-fp8"]["quantization_config"],
}
CONFIG = parse_config({**SIZES, **CONFIGS["flash"], **FLASH_HEADS})
ATTENTIONS = {"full": CONFIG.full, "sliding": CONFIG.sliding}
LAYOUTS = {"full": FULL, "sliding": SLIDING}


@pytest.fixture
def no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let vLLM make block-fp8 layers, which are never run, on CPUs that have no kernel for them."""
    monkeypatch.setattr(vllm_fp8, "init_fp8_linear_kernel", lambda **_: SimpleNamespace())


def fp8_config() -> vllm_fp8.Fp8Config:
    return vllm_fp8.Fp8Config(
        is_checkpoint_fp8_serialized=True, activation_scheme="dynamic", weight_block_size=list(BLOCK)
    )


def loader_of(config: VllmConfig, kind: str, rank: int, size: int) -> tuple[WeightLoader, nn.Module]:
    """A rank's attention of Flash, and its loader."""
    config.compilation_config.static_forward_context.clear()
    module = nn.Module()
    with tensor_parallel(rank, size), set_current_vllm_config(config):
        module.self_attn = MiMoV2Attention(
            CONFIG, ATTENTIONS[kind], config, "self_attn", fp8_config(), fp8_config()
        )
        rows = zip(SPLIT_QKV, LAYOUTS[kind].section_rows, strict=True)
        shapes = {f"self_attn.{part}.weight": (count, HIDDEN) for part, count in rows}
        return WeightLoader(module, CONFIG, shapes), module


@pytest.fixture(scope="module")
def vllm_config(flash: Path) -> VllmConfig:
    return engine_config(flash)


@pytest.mark.usefixtures("process_groups", "no_kernel")
@pytest.mark.parametrize("kind", list(LAYOUTS))
@pytest.mark.parametrize(("rank", "size"), [(0, 1), (1, 2), (0, 4), (3, 4), (5, 8), (15, 16)])
def test_a_layer_of_flash_is_filled(vllm_config: VllmConfig, kind: str, rank: int, size: int) -> None:
    loader, module = loader_of(vllm_config, kind, rank, size)
    tensors = list(tensors_of(LAYOUTS[kind], "self_attn", HIDDEN).items())
    random.Random(rank).shuffle(tensors)
    *early, last = [loader.load(name, tensor) for name, tensor in tensors]
    assert not any(early)
    assert last == {"self_attn.qkv_proj.weight", "self_attn.qkv_proj.weight_scale_inv"}
    weight, scale = (module.get_parameter(f"self_attn.qkv_proj.{leaf}").data for leaf in (WEIGHT, SCALE))
    disk, _, _ = on_disk(LAYOUTS[kind], HIDDEN)
    assert_shard(weight, scale, disk, rank_heads(LAYOUTS[kind], rank, size))


@pytest.mark.usefixtures("process_groups", "no_kernel")
@pytest.mark.parametrize("lost", ["k_proj.weight_scale_inv", "v_proj.weight"])
def test_what_is_missing_is_named(vllm_config: VllmConfig, lost: str) -> None:
    loader, _ = loader_of(vllm_config, "full", 0, 4)
    for name, tensor in tensors_of(FULL, "self_attn", HIDDEN).items():
        if name != f"self_attn.{lost}":
            assert loader.load(name, tensor) == set()
    with pytest.raises(CheckpointError) as error:
        loader.require_complete()
    assert f"self_attn.{lost}" in str(error.value)


@pytest.mark.usefixtures("process_groups", "no_kernel")
def test_a_wrong_dtype_stops_the_loading(vllm_config: VllmConfig) -> None:
    """Such as that of a projection that was not quantised though the configuration says so."""
    loader, _ = loader_of(vllm_config, "full", 0, 4)
    *early, (last, scale) = tensors_of(FULL, "self_attn", HIDDEN).items()
    for name, tensor in early:
        loader.load(name, tensor.bfloat16() if name == "self_attn.q_proj.weight" else tensor)
    with pytest.raises(CheckpointError, match=r"self_attn\.q_proj\.weight .* is torch\.bfloat16"):
        loader.load(last, scale)


@pytest.mark.usefixtures("process_groups", "no_kernel")
@pytest.mark.parametrize(("size", "fits"), [(256, True), (200, False)])
def test_dense_projections_must_be_whole_blocks(vllm_config: VllmConfig, size: int, fits: bool) -> None:
    """vLLM's own layer loads gate and up, which share one grid of blocks."""
    config = replace(CONFIG, intermediate_size=size)
    module = nn.Module()
    with set_current_vllm_config(vllm_config):
        module.mlp = MiMoV2MLP(config, "mlp", fp8_config())
        loader = WeightLoader(module, config, {"mlp.up_proj.weight": (size, HIDDEN)})
    scale = torch.arange(4.0).view(2, 2)
    if fits:
        loader.load("mlp.up_proj.weight_scale_inv", scale)
        assert torch.equal(module.get_parameter("mlp.gate_up_proj.weight_scale_inv")[2:], scale)
        return
    with pytest.raises(
        CheckpointError, match=r"mlp\.up_proj\.weight_scale_inv: 200 rows .* multiples of 128"
    ):
        loader.load("mlp.up_proj.weight_scale_inv", scale)
