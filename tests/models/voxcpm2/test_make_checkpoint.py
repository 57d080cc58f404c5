"""The tiny random checkpoint: whole, loadable, the same for the same seed, and never over something else."""

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from transformers import AutoTokenizer

from models.checkpoint import CheckpointError, made_here
from models.voxcpm2.config import read_config
from models.voxcpm2.make_checkpoint import default_checkpoint, make_checkpoint
from models.voxcpm2.make_tokenizer import CJK_CHARACTERS, VOCAB_SIZE, make_tokenizer
from models.voxcpm2.manifest import tensor_manifest
from models.voxcpm2.prompt import AUDIO_END, AUDIO_START, REFERENCE_END, REFERENCE_START, PromptBuilder
from models.voxcpm2.tokenizer import TextTokenizer
from models.voxcpm2.weights import load_model_weights, read_checkpoint
from tests.support.dense_model import DenseRequest, DenseVoxCPM2

TEXTS = (
    "Hello world, this is the test of speech!",
    "你好，世界 — naïve café! 漢字かな交じり文",
    "Привет, мир. שלום عالم ไทย 한국어",
    "👩‍👩‍👧‍👦 🏳️‍🌈\t\n\r\x00 <0x41> {}|~",
    "  two  spaces ",
)
MAX_PATCHES = 24


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("made") / "tiny"
    make_checkpoint(directory)
    return directory


@pytest.fixture(scope="module")
def model(made: Path) -> DenseVoxCPM2:
    dense = DenseVoxCPM2(read_config(made))
    load_model_weights(dense, read_checkpoint(made))
    return dense


def test_the_files_are_those_of_a_release(made: Path) -> None:
    assert {path.name for path in made.iterdir()} == {
        "config.json", "model.safetensors", "audiovae.pth", "tokenizer.json", "tokenizer_config.json",
    }  # fmt: skip
    raw = json.loads((made / "config.json").read_text())
    assert raw["architecture"] == "voxcpm2"
    assert "model_type" not in raw
    with safe_open(made / "model.safetensors", framework="np") as file:
        shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    assert shapes == tensor_manifest(read_config(made))
    vae = torch.load(made / "audiovae.pth", weights_only=True)["state_dict"]
    assert vae["decoder.model.3.block.1.weight_g"].shape == (64, 1, 1)  # transposed: a gain for each input
    assert "decoder.model.3.block.1.weight" not in vae
    assert {path.stat().st_mode & 0o444 for path in made.iterdir()} == {0o444}


def test_same_seed_same_bytes(made: Path, tmp_path: Path) -> None:
    make_checkpoint(tmp_path / "again", seed=0)
    make_checkpoint(tmp_path / "other", seed=1)
    again, other = contents(tmp_path / "again"), contents(tmp_path / "other")
    assert again == contents(made)
    assert {name for name in again if other[name] != again[name]} == {
        "audiovae.pth",
        "config.json",
        "model.safetensors",
    }


def test_it_speaks_and_stops(made: Path, model: DenseVoxCPM2) -> None:
    """Numbers stay finite, samples are heard and not clipped, and stops differ between texts and seeds."""
    config = model.config
    builder = PromptBuilder(
        TextTokenizer.from_checkpoint(made),
        config.lm_config.vocab_size,
        (config.patch_size, config.feat_dim),
    )
    lengths = set()
    for text, seed in (("The lazy dog runs.", 0), ("The lazy dog runs.", 1), ("Hello world.", 1)):
        ids = torch.tensor(builder.build(text).token_ids)
        latents, stop_logits = model.speak(
            DenseRequest(
                token_ids=ids,
                is_audio=torch.zeros(len(ids), dtype=torch.bool),
                latents=torch.zeros(len(ids), config.patch_size, config.feat_dim),
                seed=seed,
                cfg=2.0,
                steps=10,
                min_patches=2,
                max_patches=MAX_PATCHES,
            )
        )
        audio = model.audio_vae.decode(latents.flatten(0, 1).T.unsqueeze(0))
        assert stop_logits.isfinite().all()
        assert 0.5 < latents.std() < 2
        assert 0.01 < audio.std() < 0.3
        assert audio.abs().max() < 0.99
        lengths.add(len(latents))
    assert len(lengths) > 1
    assert min(lengths) < MAX_PATCHES


@pytest.mark.parametrize("text", TEXTS)
def test_any_text_survives_the_tokenizer(text: str) -> None:
    tokenizer = make_tokenizer()
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert 0 not in ids
    assert max(ids) < VOCAB_SIZE
    assert tokenizer.decode(ids, skip_special_tokens=False) == text


def test_reserved_ids(made: Path) -> None:
    tokenizer = make_tokenizer()
    assert [tokenizer.id_to_token(i) for i in range(3)] == ["<unk>", "<s>", "</s>"]
    for mark in (AUDIO_START, AUDIO_END, REFERENCE_START, REFERENCE_END):
        assert tokenizer.get_added_tokens_decoder()[mark].special
    loaded = AutoTokenizer.from_pretrained(made)
    assert (loaded.unk_token_id, loaded.bos_token_id, loaded.eos_token_id) == (0, 1, 2)


def test_pairs_of_cjk_characters_are_taken_apart(made: Path) -> None:
    tokenizer = make_tokenizer()
    assert tokenizer.encode(CJK_CHARACTERS, add_special_tokens=False).tokens[1:] == ["你好", "世界"]
    ids = TextTokenizer.from_checkpoint(made)("你好世界")
    assert [tokenizer.id_to_token(i) for i in ids[1:]] == list(CJK_CHARACTERS)


def test_overwrites_only_its_own(made: Path, tmp_path: Path) -> None:
    directory = tmp_path / "tiny"
    directory.mkdir()
    make_checkpoint(directory, seed=1)  # an empty one may be filled
    with pytest.raises(CheckpointError, match="--force"):
        make_checkpoint(directory)
    make_checkpoint(directory, force=True)
    assert contents(directory) == contents(made)
    assert [path.name for path in tmp_path.iterdir()] == ["tiny"]


@pytest.mark.parametrize("force", [False, True])
def test_never_overwrites_anything_else(tmp_path: Path, force: bool) -> None:
    for name, config in (
        ("release", {"architecture": "voxcpm2"}),
        ("notes", None),
        ("list", []),
    ):
        directory = tmp_path / name
        directory.mkdir()
        (directory / "config.json").write_text(json.dumps(config) if config is not None else "{")
        with pytest.raises(CheckpointError, match="not empty"):
            make_checkpoint(directory, force=force)
        assert len(list(directory.iterdir())) == 1


def test_a_checkpoint_with_other_files_beside_is_kept(tmp_path: Path) -> None:
    make_checkpoint(tmp_path / "tiny")
    (tmp_path / "tiny" / "my-notes.txt").touch()
    with pytest.raises(CheckpointError, match="not empty"):
        make_checkpoint(tmp_path / "tiny", force=True)


def test_nothing_is_left_of_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", fail)
    with pytest.raises(OSError, match="space"):
        make_checkpoint(tmp_path / "tiny")
    assert list(tmp_path.iterdir()) == []


def test_the_default_is_made_once(tmp_path: Path) -> None:
    directory = default_checkpoint(tmp_path / "cache")
    assert made_here(directory)
    before = directory.stat().st_mtime_ns
    assert default_checkpoint(tmp_path / "cache") == directory
    assert directory.stat().st_mtime_ns == before
