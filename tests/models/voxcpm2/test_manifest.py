"""The tensor table against a real file, and what it says of one that does not fit."""

import pytest
from safetensors import safe_open

from models.checkpoint import CheckpointError
from models.voxcpm2.config import read_config
from models.voxcpm2.manifest import (
    MAX_LISTED_PROBLEMS,
    Shape,
    find_problems,
    require_complete,
    tensor_manifest,
)
from tests.support.golden import CHECKPOINT


@pytest.fixture(scope="module")
def expected() -> dict[str, Shape]:
    return tensor_manifest(read_config(CHECKPOINT))


@pytest.fixture(scope="module")
def header() -> dict[str, Shape]:
    with safe_open(CHECKPOINT / "model.safetensors", framework="np") as file:
        return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118


def test_fixture_is_exactly_the_manifest(expected: dict[str, Shape], header: dict[str, Shape]) -> None:
    assert header == expected
    require_complete(expected, header, "model.safetensors")


def test_every_problem_is_named(expected: dict[str, Shape], header: dict[str, Shape]) -> None:
    found = dict(header)
    del found["stop_proj.bias"], found["residual_lm.layers.1.mlp.up_proj.weight"]
    found["lora_A.weight"] = (8, 128)
    found["base_lm.norm.weight"] = (64,)
    assert sorted(find_problems(expected, found)) == [
        "base_lm.norm.weight has shape [64], the configuration says [128]",
        "lora_A.weight is not part of this model",
        "residual_lm.layers.1.mlp.up_proj.weight is missing",
        "stop_proj.bias is missing",
    ]
    with pytest.raises(CheckpointError) as error:
        require_complete(expected, found, "model.safetensors")
    for named in ("model.safetensors", "stop_proj.bias is missing", "[64]", "lora_A.weight"):
        assert named in str(error.value)
    assert "more" not in str(error.value)


def test_a_wholly_wrong_file_gets_a_short_message(expected: dict[str, Shape]) -> None:
    with pytest.raises(CheckpointError) as error:
        require_complete(expected, {}, "model.safetensors")
    assert str(error.value).count(" is missing") == MAX_LISTED_PROBLEMS
    assert f"and {len(expected) - MAX_LISTED_PROBLEMS} more" in str(error.value)


def test_sizes_follow_the_configuration() -> None:
    config = read_config(CHECKPOINT)
    config = config.model_copy(
        update={
            "residual_lm_num_layers": 5,
            "lm_config": config.lm_config.model_copy(update={"num_key_value_heads": 1, "vocab_size": 600}),
        }
    )
    shapes = tensor_manifest(config)
    assert "residual_lm.layers.4.mlp.down_proj.weight" in shapes
    assert "residual_lm.layers.5.mlp.down_proj.weight" not in shapes
    assert "residual_lm.embed_tokens.weight" not in shapes
    assert shapes["base_lm.embed_tokens.weight"] == (600, 128)
    assert shapes["base_lm.layers.0.self_attn.k_proj.weight"] == (32, 128)
    assert shapes["feat_encoder.encoder.layers.0.self_attn.q_proj.weight"] == (128, 64)
    assert shapes["fusion_concat_proj.weight"] == (128, 256)
