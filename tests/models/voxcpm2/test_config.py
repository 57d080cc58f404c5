"""`config.json` as typed data: derived stacks, and errors that name the field."""

import copy
import json
import math
from pathlib import Path
from typing import Any

import pytest

from models.voxcpm2.config import (
    AudioVAEConfig,
    CheckpointError,
    TransformerConfig,
    VoxCPM2ModelConfig,
    parse_config,
    read_config,
)
from tests.support.golden import CHECKPOINT


@pytest.fixture
def raw() -> dict[str, Any]:
    return json.loads((CHECKPOINT / "config.json").read_text(encoding="utf-8"))


@pytest.fixture
def config() -> VoxCPM2ModelConfig:
    return read_config(CHECKPOINT)


def test_fixture(config: VoxCPM2ModelConfig) -> None:
    assert config.lm_config.hidden_size == 128
    assert config.lm_config.head_dim == 32
    assert config.lm_config.rope_scaling.long_factor[-1] == 1.75
    assert config.residual_lm_no_rope
    assert config.audio_vae_config.sr_bin_boundaries == (20000, 30000, 40000)
    assert config.patch_input_samples == 2560
    assert config.patch_output_samples == 7680
    assert config.sample_rate == 48000
    assert config.dtype == "float32"


def test_unknown_keys_are_ignored(raw: dict[str, Any]) -> None:
    expected = parse_config(raw, "config.json")
    raw["new_in_a_later_release"] = 1
    raw["lm_config"]["also_new"] = {"a": [2]}
    assert parse_config(raw, "config.json") == expected


def test_residual_lm(config: VoxCPM2ModelConfig) -> None:
    lm, residual = config.lm_config, config.residual_lm
    assert (residual.num_hidden_layers, residual.vocab_size, residual.no_rope) == (2, 0, True)
    assert residual.model_copy(update={"num_hidden_layers": 4, "vocab_size": 512, "no_rope": False}) == lm


@pytest.mark.parametrize("stack", ["encoder", "dit"])
def test_local_stacks(stack: str, raw: dict[str, Any]) -> None:
    raw[f"{stack}_config"] = {
        "hidden_dim": 48,
        "ffn_dim": 80,
        "num_heads": 6,
        "num_layers": 3,
        "kv_channels": None,
    }
    config = parse_config(raw, "config.json")
    local = config.local_encoder if stack == "encoder" else config.local_dit
    assert local.hidden_size == 48
    assert local.intermediate_size == 80
    assert local.num_attention_heads == 6
    assert local.num_hidden_layers == 3
    assert local.head_dim == 8  # of its own sizes, not the base LM's 32
    assert local.vocab_size == 0
    for shared in ("num_key_value_heads", "rms_norm_eps", "rope_scaling", "rope_theta", "no_rope"):
        assert getattr(local, shared) == getattr(config.lm_config, shared)


def test_mup_switches(config: VoxCPM2ModelConfig) -> None:
    off = config.lm_config
    assert not off.use_mup
    assert (off.embedding_scale, off.residual_scale) == (1.0, 1.0)
    on = off.model_copy(update={"use_mup": True})
    assert on.embedding_scale == 12
    assert on.residual_scale == pytest.approx(1.4 / math.sqrt(4))


def test_residual_scale_counts_a_stacks_own_layers(raw: dict[str, Any]) -> None:
    raw["lm_config"]["use_mup"] = True
    config = parse_config(raw, "config.json")
    assert config.residual_lm.residual_scale == pytest.approx(1.4 / math.sqrt(2))


def test_mup_is_on_where_the_file_is_silent(raw: dict[str, Any]) -> None:
    del raw["lm_config"]["use_mup"]
    assert parse_config(raw, "config.json").lm_config.use_mup


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        (("lm_config", "hidden_size"), None, "lm_config.hidden_size"),
        (("lm_config", "rope_scaling", "long_factor"), None, "lm_config.rope_scaling.long_factor"),
        (("lm_config", "rope_scaling", "type"), "linear", "lm_config.rope_scaling.type"),
        (("lm_config", "rms_norm_eps"), "tiny", "lm_config.rms_norm_eps"),
        (("lm_config", "num_hidden_layers"), 2.5, "lm_config.num_hidden_layers"),
        (("encoder_config",), None, "encoder_config"),
        (("dit_config", "num_heads"), None, "dit_config.num_heads"),
        (("audio_vae_config", "cond_type"), "film", "audio_vae_config.cond_type"),
        (("patch_size",), "four", "patch_size"),
        (("feat_dim",), 64, "audio_vae_config.latent_dim"),
    ],
)
def test_a_wrong_field_is_named(path: tuple[str, ...], value: Any, named: str, raw: dict[str, Any]) -> None:
    section = raw
    for key in path[:-1]:
        section = section[key]
    if value is None:
        del section[path[-1]]
    else:
        section[path[-1]] = value
    with pytest.raises(CheckpointError) as error:
        parse_config(raw, "/models/tts/config.json")
    assert named in str(error.value)
    assert "/models/tts/config.json" in str(error.value)


def test_all_wrong_fields_are_named(raw: dict[str, Any]) -> None:
    del raw["lm_config"]["vocab_size"], raw["dit_config"]["ffn_dim"]
    with pytest.raises(CheckpointError, match=r"lm_config\.vocab_size.*dit_config\.ffn_dim"):
        parse_config(raw, "config.json")


@pytest.mark.parametrize("architecture", ["voxcpm", "LlamaForCausalLM", None])
def test_another_architecture(architecture: str | None, raw: dict[str, Any]) -> None:
    raw["architecture"] = architecture
    with pytest.raises(CheckpointError, match=f"architecture {architecture!r}, not 'voxcpm2'"):
        parse_config(raw, "config.json")


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"config\.json does not exist"):
        read_config(tmp_path)


def test_not_json(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{", encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"config\.json is not valid JSON"):
        read_config(tmp_path)


def test_released_sizes() -> None:
    vae = AudioVAEConfig()
    assert (vae.encoder_hop, vae.decoder_hop) == (640, 1920)


def test_head_dim_without_kv_channels(config: VoxCPM2ModelConfig) -> None:
    plain: TransformerConfig = config.lm_config.model_copy(update={"kv_channels": None, "hidden_size": 96})
    assert plain.head_dim == 24


def test_parsing_leaves_its_argument_alone(raw: dict[str, Any]) -> None:
    before = copy.deepcopy(raw)
    parse_config(raw, "config.json")
    assert raw == before
