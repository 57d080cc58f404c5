"""Loading: each tensor lands where it belongs, on every rank, in any order; what is lost is named."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from vllm.config import VllmConfig

from models.checkpoint import CheckpointError
from models.mimo_v2.config import MiMoV2Config
from models.mimo_v2.fp8_qkv import dequantize_blocks
from models.mimo_v2.mtp import MiMoV2MTP
from models.mimo_v2.weights import Slot, checkpoint_slots
from tests.support.mimo_v2 import (
    FLASH_CONFIG,
    PRO_CONFIG,
    build,
    derive,
    engine_config,
    read,
    split_fused_qkv,
    tensor_parallel,
    uniform_scales,
)

pytestmark = pytest.mark.usefixtures("process_groups")

SHARDED_DIMENSION = {"down_proj": 1, "o_proj": 1}  # of the others it is the first


@pytest.fixture(scope="module")
def flash_engine(flash: Path) -> VllmConfig:
    return engine_config(flash)


@pytest.fixture(scope="module")
def pro_engine(pro: Path) -> VllmConfig:
    return engine_config(pro)


def shuffled(tensors: dict[str, Tensor], seed: int = 0) -> list[tuple[str, Tensor]]:
    items = list(tensors.items())
    random.Random(seed).shuffle(items)
    return items


def load(config: VllmConfig, tensors: dict[str, Tensor], rank: int = 0, size: int = 1) -> nn.Module:
    with tensor_parallel(rank, size):
        model = build(config)
        loaded = model.load_weights(shuffled(tensors))
    assert loaded == {name for name, _ in model.named_parameters()}
    return model


def parameters(model: nn.Module) -> dict[str, Tensor]:
    return {name: parameter.data for name, parameter in model.named_parameters()}


def plain_qkv(
    tensors: dict[str, Tensor], attention: str, config: MiMoV2Config, rank: int, size: int
) -> Tensor:
    """The rank's fused projection, put together from whole float32 projections by definition."""
    full_or_sliding = config.layers[int(attention.split(".")[2])].attention
    heads = full_or_sliding.num_heads // size
    kv_heads = max(1, full_or_sliding.num_kv_heads // size)
    first_kv = rank * full_or_sliding.num_kv_heads // size
    sections = []
    for part, width, first, count in (
        ("q_proj", full_or_sliding.head_dim, rank * heads, heads),
        ("k_proj", full_or_sliding.head_dim, first_kv, kv_heads),
        ("v_proj", full_or_sliding.v_head_dim, first_kv, kv_heads),
    ):
        whole = tensors[f"{attention}.{part}.weight"].float()
        sections.append(whole[first * width : (first + count) * width])
    return torch.cat(sections)


@pytest.mark.parametrize(("rank", "size"), [(0, 1), (0, 2), (1, 2), (0, 4), (3, 4)])
def test_split_checkpoint(flash: Path, flash_engine: VllmConfig, rank: int, size: int) -> None:
    tensors = read(flash)
    ours = parameters(load(flash_engine, tensors, rank, size))
    for i, layer in enumerate(FLASH_CONFIG.layers):
        attention = f"model.layers.{i}.self_attn"
        expected = plain_qkv(tensors, attention, FLASH_CONFIG, rank, size)
        assert torch.equal(ours[f"{attention}.qkv_proj.weight"], expected)
        output = tensors[f"{attention}.o_proj.weight"].float().chunk(size, dim=1)[rank]
        assert torch.equal(ours[f"{attention}.o_proj.weight"], output)
        if layer.attention.has_sinks:
            sinks = tensors[f"{attention}.attention_sink_bias"].float().chunk(size)[rank]
            assert torch.equal(ours[f"{attention}.attention_sink_bias"], sinks)
        if layer.moe is not None:
            mlp = f"model.layers.{i}.mlp"
            experts = ours[f"{mlp}.experts.routed_experts.w13_weight"]
            for expert in range(layer.moe.num_experts):
                parts = [
                    tensors[f"{mlp}.experts.{expert}.{p}.weight"].float() for p in ("gate_proj", "up_proj")
                ]
                assert torch.equal(experts[expert], torch.cat([part.chunk(size)[rank] for part in parts]))
            bias = ours[f"{mlp}.gate.e_score_correction_bias"]
            assert bias.dtype == torch.float32
            assert torch.equal(bias, tensors[f"{mlp}.gate.e_score_correction_bias"])


@pytest.mark.parametrize(("rank", "size"), [(0, 1), (0, 2), (1, 2), (1, 4)])
def test_fused_and_split_fp8_checkpoints_agree(
    pro: Path, pro_engine: VllmConfig, rank: int, size: int
) -> None:
    fused = uniform_scales(read(pro))
    split = split_fused_qkv(fused, PRO_CONFIG)
    assert set(fused) != set(split)
    ours, theirs = (parameters(load(pro_engine, tensors, rank, size)) for tensors in (fused, split))
    for name, tensor in ours.items():
        assert torch.equal(tensor, theirs[name]), name


def test_fp8_weights_are_dequantised(pro: Path, pro_engine: VllmConfig) -> None:
    tensors = read(pro)
    ours = parameters(load(pro_engine, tensors))
    expert = "model.layers.1.mlp.experts.2.down_proj"
    values = dequantize_blocks(tensors[f"{expert}.weight"], tensors[f"{expert}.weight_scale_inv"])
    assert torch.equal(ours["model.layers.1.mlp.experts.routed_experts.w2_weight"][2], values)


def test_fused_projection_that_is_not_fp8(flash: Path, flash_engine: VllmConfig) -> None:
    """Rows lie in groups as they do in fp8."""
    tensors = read(flash)
    attention, groups = "model.layers.1.self_attn", FLASH_CONFIG.full.num_kv_heads
    expected = plain_qkv(tensors, attention, FLASH_CONFIG, 1, 2)
    parts = [tensors.pop(f"{attention}.{part}.weight") for part in ("q_proj", "k_proj", "v_proj")]
    chunks = zip(*(part.chunk(groups) for part in parts), strict=True)
    tensors[f"{attention}.qkv_proj.weight"] = torch.cat([torch.cat(group) for group in chunks])
    ours = parameters(load(flash_engine, tensors, 1, 2))
    assert torch.equal(ours[f"{attention}.qkv_proj.weight"], expected)


def test_a_weight_and_its_scale_in_different_calls(pro: Path, pro_engine: VllmConfig) -> None:
    tensors = read(pro)
    model: Any = build(pro_engine).model
    weight, scale = (f"layers.1.self_attn.qkv_proj.{leaf}" for leaf in ("weight", "weight_scale_inv"))
    assert model.load_weights([(scale, tensors[f"model.{scale}"])]) == set()
    assert model.load_weights([(weight, tensors[f"model.{weight}"])]) == {weight}


def without(name: str) -> Callable[[dict[str, Tensor]], None]:
    def change(tensors: dict[str, Tensor]) -> None:
        del tensors[name]

    return change


def cut(name: str, dimension: int) -> Callable[[dict[str, Tensor]], None]:
    def change(tensors: dict[str, Tensor]) -> None:
        tensors[name] = tensors[name].narrow(dimension, 0, tensors[name].shape[dimension] // 2)

    return change


def added(name: str) -> Callable[[dict[str, Tensor]], None]:
    def change(tensors: dict[str, Tensor]) -> None:
        tensors[name] = torch.zeros(3)

    return change


EXPERT = "model.layers.2.mlp.experts.1"
ATTENTION = "model.layers.1.self_attn"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (without(f"{EXPERT}.up_proj.weight"), f"no {EXPERT}.up_proj.weight"),
        (without(f"{ATTENTION}.k_proj.weight"), f"no {ATTENTION}.k_proj.weight"),
        (without(f"{ATTENTION}.attention_sink_bias"), f"no {ATTENTION}.attention_sink_bias"),
        (without("model.layers.2.mlp.gate.e_score_correction_bias"), "gate.e_score_correction_bias"),
        (without("model.norm.weight"), "no model.norm.weight"),
        (without("lm_head.weight"), "no lm_head.weight"),
        (cut(f"{EXPERT}.down_proj.weight", 1), f"{EXPERT}.down_proj.weight has shape"),
        (cut(f"{ATTENTION}.q_proj.weight", 0), f"{ATTENTION}.q_proj.weight has shape"),
        (cut(f"{ATTENTION}.attention_sink_bias", 0), f"{ATTENTION}.attention_sink_bias has shape"),
        (cut("lm_head.weight", 0), "lm_head.weight has shape"),
        (added("model.layers.9.mlp.up_proj.weight"), "model.layers.9.mlp.up_proj.weight is not part"),
        (added(f"{ATTENTION}.q_proj.bias"), f"{ATTENTION}.q_proj.bias is not part"),
        (
            added("model.layers.0.self_attn.attention_sink_bias"),
            "layers.0.self_attn.attention_sink_bias is not",
        ),
        (added("visual.proj.weight"), "visual.proj.weight is not part"),
        (added("model.mtp.layers.0.surprise.weight"), "model.mtp.layers.0.surprise.weight is not part"),
        (added(f"{ATTENTION}.o_proj.weight_scale_inv"), f"{ATTENTION}.o_proj.weight_scale_inv"),
    ],
)
def test_lost_tensors_are_named(
    flash: Path, flash_engine: VllmConfig, change: Callable[[dict[str, Tensor]], None], named: str
) -> None:
    tensors = read(flash)
    change(tensors)
    with pytest.raises(CheckpointError) as error:
        build(flash_engine).load_weights(shuffled(tensors))
    assert named in str(error.value)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (without(f"{EXPERT}.up_proj.weight_scale_inv"), f"no {EXPERT}.up_proj.weight_scale_inv"),
        (without(f"{EXPERT}.up_proj.weight"), f"no {EXPERT}.up_proj.weight"),
        (without(f"{ATTENTION}.qkv_proj.weight_scale_inv"), f"no {ATTENTION}.qkv_proj.weight_scale_inv"),
        (without(f"{ATTENTION}.qkv_proj.weight"), f"no {ATTENTION}.qkv_proj.weight"),
        (cut(f"{EXPERT}.up_proj.weight_scale_inv", 0), f"{EXPERT}.up_proj.weight_scale_inv has shape"),
        (cut(f"{ATTENTION}.qkv_proj.weight", 0), f"{ATTENTION}.qkv_proj.weight has shape"),
        (
            cut(f"{ATTENTION}.qkv_proj.weight_scale_inv", 0),
            f"{ATTENTION}.qkv_proj.weight_scale_inv has shape",
        ),
        (added(f"{ATTENTION}.q_proj.weight"), f"{ATTENTION}.q_proj.weight"),
    ],
)
def test_lost_fp8_tensors_are_named(
    pro: Path, pro_engine: VllmConfig, change: Callable[[dict[str, Tensor]], None], named: str
) -> None:
    tensors = read(pro)
    change(tensors)
    with pytest.raises(CheckpointError) as error:
        build(pro_engine).load_weights(shuffled(tensors))
    assert named in str(error.value)


def test_a_tensor_twice(flash: Path, flash_engine: VllmConfig) -> None:
    items = list(read(flash).items())
    with pytest.raises(CheckpointError, match="twice"):
        build(flash_engine).load_weights([*items, items[0]])


def test_the_draft_takes_its_own(flash: Path, flash_engine: VllmConfig) -> None:
    tensors = read(flash)
    draft = draft_model(flash_engine)
    assert draft.load_weights(shuffled(tensors)) == {name for name, _ in draft.named_parameters()}
    ours = parameters(draft)
    norm = "model.mtp.layers.0.enorm.weight"
    assert torch.equal(ours[norm], tensors[norm].float())


@pytest.mark.parametrize("name", ["eh_proj.weight", "self_attn.v_proj.weight", "mlp.gate_proj.weight"])
def test_the_draft_names_what_it_misses(flash: Path, flash_engine: VllmConfig, name: str) -> None:
    tensors = read(flash)
    del tensors[f"model.mtp.layers.0.{name}"]
    with pytest.raises(CheckpointError, match=rf"no model\.mtp\.layers\.0\.{name}"):
        draft_model(flash_engine).load_weights(tensors.items())


def test_the_draft_of_a_pro_checkpoint(pro: Path, pro_engine: VllmConfig) -> None:
    draft = draft_model(pro_engine)
    assert draft.load_weights(shuffled(read(pro))) == {name for name, _ in draft.named_parameters()}


def draft_model(config: VllmConfig) -> nn.Module:
    from vllm.config import set_current_vllm_config

    config.compilation_config.static_forward_context.clear()
    with set_current_vllm_config(config):
        return MiMoV2MTP(vllm_config=config)


def test_tied_embeddings(flash: Path, tmp_path: Path) -> None:
    def tie(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        del tensors["lm_head.weight"]
        return tensors

    tied = derive(flash, tmp_path / "tied", tie)
    file = tied / "config.json"
    file.write_text(file.read_text().replace('"tie_word_embeddings": false', '"tie_word_embeddings": true'))
    config = engine_config(tied)
    model: Any = load(config, read(tied))
    assert model.lm_head.weight is model.model.embed_tokens.weight
    with pytest.raises(CheckpointError, match=r"lm_head\.weight is not part"):
        build(config).load_weights(read(flash).items())


def test_slots_of_redundant_experts() -> None:
    """A logical expert that has two physical ones fills both."""
    experts = [
        ("experts.routed_experts.w2_", "experts.0.down_proj.", 0, "w2"),
        ("experts.routed_experts.w2_", "experts.0.down_proj.", 1, "w2"),
    ]
    parameter = "layers.1.mlp.experts.routed_experts.w2_weight"
    slots = checkpoint_slots([parameter, "norm.weight"], experts)
    assert slots == {
        "layers.1.mlp.experts.0.down_proj.weight": [Slot(parameter, "w2", 0), Slot(parameter, "w2", 1)],
        "norm.weight": [Slot("norm.weight")],
    }
