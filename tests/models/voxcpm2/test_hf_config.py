"""The configuration in vLLM's eyes."""

import copy
import json
import pickle
import shutil
from pathlib import Path

import pytest

from models.checkpoint import CheckpointError
from models.plugin import ARCHITECTURES
from models.voxcpm2.config import read_config
from models.voxcpm2.hf_config import VoxCPM2Config, VoxCPM2ConfigParser
from tests.support.golden import CHECKPOINT


@pytest.fixture
def config() -> VoxCPM2Config:
    _, config = VoxCPM2ConfigParser().parse(CHECKPOINT, trust_remote_code=False)
    return config


def test_raw_file_is_returned() -> None:
    raw, _ = VoxCPM2ConfigParser().parse(str(CHECKPOINT), trust_remote_code=False)
    assert raw == json.loads((CHECKPOINT / "config.json").read_text(encoding="utf-8"))


def test_sizes_of_the_kv_cache(config: VoxCPM2Config) -> None:
    assert config.num_hidden_layers == 4 + 2  # both language models have paged attention
    assert (config.num_attention_heads, config.num_key_value_heads, config.head_dim) == (4, 2, 32)
    assert config.hidden_size == 128
    assert str(config.dtype).removeprefix("torch.") == "float32"


def test_the_vocabulary_holds_every_content_id(config: VoxCPM2Config) -> None:
    assert config.vocab_size == 2**31 - 1


def test_vllm_finds_our_class(config: VoxCPM2Config) -> None:
    assert config.architectures == list(ARCHITECTURES)


@pytest.mark.parametrize(("trained", "longest"), [(4096, 2048), (1000, 1000)])
def test_context_is_bounded_by_both_limits(trained: int, longest: int) -> None:
    raw = json.loads((CHECKPOINT / "config.json").read_text(encoding="utf-8"))
    raw["lm_config"]["max_position_embeddings"] = trained
    assert VoxCPM2Config(raw).max_position_embeddings == longest


def test_typed_form_survives_copies(config: VoxCPM2Config) -> None:
    expected = read_config(CHECKPOINT)
    assert config.voxcpm2 == expected
    assert copy.deepcopy(config).voxcpm2 == expected
    assert pickle.loads(pickle.dumps(config)).voxcpm2 == expected


def test_it_can_be_printed(config: VoxCPM2Config) -> None:
    assert "voxcpm2" in repr(config)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"architectures": ["LlamaForCausalLM"]}', "not a VoxCPM2 checkpoint"),
        ('{"architecture": "voxcpm2"}', "lm_config"),
        ("{", "cannot be read"),
    ],
)
def test_an_unusable_file(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(content, encoding="utf-8")
    with pytest.raises(CheckpointError, match=message):
        VoxCPM2ConfigParser().parse(tmp_path, trust_remote_code=False)


def test_a_directory_without_the_file(tmp_path: Path) -> None:
    directory = Path(shutil.copytree(CHECKPOINT, tmp_path / "x"))
    (directory / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"config\.json cannot be read"):
        VoxCPM2ConfigParser().parse(directory, trust_remote_code=False)
