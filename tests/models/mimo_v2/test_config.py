"""Both families of field names, read into the same configuration."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from transformers import MiMoV2FlashConfig

from models.checkpoint import CheckpointError
from models.mimo_v2.config import parse_config
from models.mimo_v2.hf_config import MiMoV2HFConfig
from models.mimo_v2.make_checkpoint import CONFIGS, SIZES

FLASH: dict[str, Any] = {**SIZES, **CONFIGS["flash"]}
PRO: dict[str, Any] = {**SIZES, **CONFIGS["pro-fp8"]}


def test_hub_fields() -> None:
    config = parse_config(FLASH)
    assert [layer.attention.window for layer in config.layers] == [None, 48, 48, 48, 48, None]
    assert [layer.moe is not None for layer in config.layers] == [False, True, True, True, True, True]
    assert config.full.num_kv_heads == 2
    assert config.sliding.num_kv_heads == 4
    assert not config.full.has_sinks
    assert config.sliding.has_sinks
    assert config.full.rope_theta == 5_000_000
    assert config.sliding.rope_theta == 10_000
    assert config.num_experts == 8
    assert config.layers[1].moe is not None
    assert config.layers[1].moe.scale == 1.0


def test_transformers_fields_say_the_same() -> None:
    shared = {name: FLASH[name] for name in (
        "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
        "num_key_value_heads", "head_dim", "v_head_dim", "sliding_window", "max_position_embeddings",
        "attention_value_scale", "n_routed_experts", "num_experts_per_tok", "moe_intermediate_size",
    )}  # fmt: skip
    theirs = MiMoV2FlashConfig(**shared).to_dict()
    assert "hybrid_layer_pattern" not in theirs
    assert parse_config(theirs) == parse_config(FLASH)


def test_hub_fields_win_over_the_defaults_that_transformers_adds() -> None:
    changed = {**FLASH, "hybrid_layer_pattern": [1, 0, 1, 0, 1, 0], "moe_layer_freq": [1, 0, 1, 0, 1, 0]}
    loaded = MiMoV2FlashConfig(**changed).to_dict()
    assert loaded["layer_types"][0] == "full_attention"
    assert parse_config(loaded) == parse_config(changed)


def test_a_pro_configuration_passes_through_transformers() -> None:
    assert parse_config(MiMoV2HFConfig(**PRO).to_dict()) == parse_config(PRO)


def test_a_saved_file_reads_the_same(tmp_path: Path) -> None:
    MiMoV2HFConfig(**PRO).save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    assert parse_config(saved) == parse_config(PRO)


def test_first_layers_alone() -> None:
    config = parse_config({**FLASH, "num_hidden_layers": 2})
    assert config == replace(parse_config(FLASH), layers=parse_config(FLASH).layers[:2])
    assert parse_config({**FLASH, "num_hidden_layers": 0}).layers == ()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("hidden_size", None),
        ("hidden_size", "128"),
        ("hidden_size", 0),
        ("hidden_act", "gelu"),
        ("scoring_func", "softmax"),
        ("topk_method", "greedy"),
        ("n_shared_experts", 1),
        ("hybrid_layer_pattern", [0, 1]),
        ("hybrid_layer_pattern", [0, 1, 2, 0, 0, 0]),
        ("moe_layer_freq", 1),
        ("layernorm_epsilon", None),
        ("rope_theta", None),
        ("partial_rotary_factor", 0.33),
        ("v_head_dim", 128),
        ("num_key_value_heads", 3),
        ("n_group", 3),
        ("topk_group", 2),
        ("num_experts_per_tok", 9),
        ("norm_topk_prob", 1),
        ("rope_scaling", {"rope_type": "yarn", "factor": 4.0}),
        ("quantization_config", {"weight_block_size": [128]}),
    ],
)
def test_errors_name_the_field(field: str, value: object) -> None:
    with pytest.raises(CheckpointError) as error:
        parse_config({**FLASH, field: value})
    named = {"rope_scaling": "rope_type", "quantization_config": "weight_block_size"}.get(field, field)
    assert named in str(error.value)


@pytest.mark.parametrize("field", ["mlp_layer_types", "rope_parameters", "rms_norm_eps", "sliding_window"])
def test_errors_name_transformers_fields(field: str) -> None:
    raw = MiMoV2FlashConfig(num_hidden_layers=6).to_dict()
    raw[field] = None
    with pytest.raises(CheckpointError, match=field):
        parse_config(raw)
