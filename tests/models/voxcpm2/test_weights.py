"""Weight files in every form they come in, and those that must not be read."""

import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from models.checkpoint import CheckpointError
from models.voxcpm2.config import read_config
from models.voxcpm2.manifest import AUDIO_VAE_FILES, MODEL_FILES
from models.voxcpm2.weights import (
    RENAMED_PREFIXES,
    check_checkpoint,
    find_weight_file,
    load_model_weights,
    read_checkpoint,
    read_shapes,
    read_tensors,
)
from tests.support.dense_model import DenseVoxCPM2
from tests.support.golden import CHECKPOINT


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(CHECKPOINT, tmp_path / "checkpoint"))


@pytest.fixture(scope="module")
def native() -> dict[str, Tensor]:
    return read_checkpoint(CHECKPOINT)


def assert_equal(got: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert got.keys() == expected.keys()
    assert all(torch.equal(got[name], tensor) for name, tensor in expected.items())


def test_both_files_are_read(native: dict[str, Tensor]) -> None:
    model = load_file(CHECKPOINT / "model.safetensors")
    vae = torch.load(CHECKPOINT / "audiovae.pth", weights_only=True)["state_dict"]
    assert_equal(native, {**model, **{f"audio_vae.{name}": tensor for name, tensor in vae.items()}})


@pytest.mark.parametrize("wrap", [dict, lambda tensors: {"state_dict": tensors}], ids=["plain", "state_dict"])
def test_pickled_language_models(
    wrap: Callable[[dict[str, Tensor]], dict[str, Any]], checkpoint: Path, native: dict[str, Tensor]
) -> None:
    tensors = load_file(checkpoint / "model.safetensors")
    torch.save(wrap(tensors), checkpoint / "pytorch_model.bin")
    (checkpoint / "model.safetensors").unlink()
    assert_equal(read_checkpoint(checkpoint), native)


def test_safe_audio_vae(checkpoint: Path, native: dict[str, Tensor]) -> None:
    vae = torch.load(checkpoint / "audiovae.pth", weights_only=True)["state_dict"]
    save_file(
        {name: tensor.contiguous() for name, tensor in vae.items()}, checkpoint / "audiovae.safetensors"
    )
    (checkpoint / "audiovae.pth").unlink()
    assert_equal(read_checkpoint(checkpoint), native)


@pytest.mark.parametrize("names", [MODEL_FILES, AUDIO_VAE_FILES])
def test_the_safe_form_comes_first(names: tuple[str, ...], tmp_path: Path) -> None:
    for name in names:
        (tmp_path / name).touch()
    assert find_weight_file(tmp_path, names).suffix == ".safetensors"


@pytest.mark.parametrize("missing", ["model.safetensors", "audiovae.pth"])
def test_neither_form(missing: str, checkpoint: Path) -> None:
    (checkpoint / missing).unlink()
    stem = Path(missing).stem
    with pytest.raises(CheckpointError, match=rf"has neither {stem}\.safetensors nor .*: download"):
        read_checkpoint(checkpoint)


class Malicious:
    """Unpickling it makes a directory: harmless, and visible."""

    def __init__(self, trace: Path) -> None:
        self._trace = trace

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        import os

        return os.mkdir, (str(self._trace),)


@pytest.mark.parametrize("form", ["torch", "raw"])
def test_a_pickle_with_code_is_refused_and_runs_nothing(form: str, tmp_path: Path) -> None:
    trace, path = tmp_path / "executed", tmp_path / "pytorch_model.bin"
    content = {"base_lm.norm.weight": torch.ones(2), "payload": Malicious(trace)}
    if form == "torch":
        torch.save(content, path)
    else:
        path.write_bytes(pickle.dumps(content, protocol=2))
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin cannot be read"):
        read_tensors(path)
    assert not trace.exists()
    torch.load(path, weights_only=False) if form == "torch" else pickle.loads(path.read_bytes())
    assert trace.exists()  # the file does what it is said to do


@pytest.mark.parametrize("name", ["model.safetensors", "audiovae.pth"])
@pytest.mark.parametrize("damage", ["truncated", "empty", "text"])
def test_a_damaged_file_is_named(name: str, damage: str, checkpoint: Path) -> None:
    whole = (checkpoint / name).read_bytes()
    content = {"truncated": whole[: len(whole) // 2], "empty": b"", "text": b"<html>Not Found</html>"}[damage]
    (checkpoint / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=rf"{name} cannot be read .*: download the checkpoint again"):
        read_checkpoint(checkpoint)


@pytest.mark.parametrize(
    "content", [[torch.ones(1)], {"epoch": 3}, {"state_dict": {"a": [1.0]}}, {"state_dict": 1}]
)
def test_something_else_than_tensors(content: Any, tmp_path: Path) -> None:
    path = tmp_path / "pytorch_model.bin"
    torch.save(content, path)
    with pytest.raises(CheckpointError, match="does not hold named tensors"):
        read_tensors(path)


def test_a_missing_tensor_is_named(checkpoint: Path) -> None:
    tensors = load_file(CHECKPOINT / "model.safetensors")  # mapped: the copy is overwritten
    del tensors["stop_head.weight"]
    save_file(tensors, checkpoint / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"stop_head\.weight is missing"):
        read_checkpoint(checkpoint)


def test_every_parameter_gets_its_tensor(native: dict[str, Tensor]) -> None:
    model = DenseVoxCPM2(read_config(CHECKPOINT))
    loaded = load_model_weights(model, native)
    parameters = dict(model.named_parameters())
    assert loaded == parameters.keys()
    renamed = {ours: released for released, ours in RENAMED_PREFIXES.items()}
    for name, parameter in parameters.items():
        if name.startswith("audio_vae."):
            continue  # weight norm is folded; see test_audio_vae
        released = name
        for ours, prefix in renamed.items():
            if name.startswith(ours):
                released = prefix + name.removeprefix(ours)
        assert torch.equal(parameter, native[released]), name


@pytest.mark.parametrize(
    ("absent", "named"),
    [("stop_proj.bias", "stop_proj.bias"), ("fsq_layer.in_proj.weight", "fsq.in_proj.weight")],
)
def test_a_parameter_without_data_is_named(absent: str, named: str, native: dict[str, Tensor]) -> None:
    model = DenseVoxCPM2(read_config(CHECKPOINT))
    with pytest.raises(CheckpointError, match=f"no data for {named}$"):
        load_model_weights(model, {name: tensor for name, tensor in native.items() if name != absent})


def test_a_missing_audio_vae_tensor_is_named(native: dict[str, Tensor]) -> None:
    model = DenseVoxCPM2(read_config(CHECKPOINT))
    kept = {name: t for name, t in native.items() if name != "audio_vae.encoder.fc_mu.bias"}
    with pytest.raises(CheckpointError, match=r"encoder\.fc_mu\.bias is missing"):
        load_model_weights(model, kept)


def damage(checkpoint: Path, file: str, change: Callable[[dict[str, Tensor]], None]) -> None:
    path = checkpoint / file
    tensors = read_tensors(path)
    change(tensors)
    changed = path.with_suffix(".changed")  # the tensors may still be mapped from the file itself
    if path.suffix == ".safetensors":
        save_file(tensors, changed)
    else:
        torch.save({"state_dict": tensors}, changed)
    changed.replace(path)


def test_shapes_are_those_of_the_tensors() -> None:
    for file in ("model.safetensors", "audiovae.pth"):
        tensors = read_tensors(CHECKPOINT / file)
        assert read_shapes(CHECKPOINT / file) == {name: tuple(t.shape) for name, t in tensors.items()}


def test_a_whole_checkpoint_passes_the_check() -> None:
    check_checkpoint(CHECKPOINT)


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("model.safetensors", "base_lm.layers.3.self_attn.q_proj.weight"),
        ("model.safetensors", "stop_proj.bias"),
        ("audiovae.pth", "decoder.model.2.block.0.alpha"),
    ],
)
def test_the_check_names_what_is_missing_unexpected_or_misshapen(
    file: str, name: str, checkpoint: Path
) -> None:
    def rename(tensors: dict[str, Tensor]) -> None:
        tensors[f"{name}.old"] = tensors.pop(name)

    damage(checkpoint, file, rename)
    with pytest.raises(CheckpointError) as caught:
        check_checkpoint(checkpoint)
    assert f"{name} is missing" in str(caught.value)
    assert f"{name}.old is not part of this model" in str(caught.value)

    def enlarge(tensors: dict[str, Tensor]) -> None:
        tensor = tensors.pop(f"{name}.old")
        tensors[name] = tensor.repeat(*[2] * tensor.ndim)

    damage(checkpoint, file, enlarge)
    with pytest.raises(CheckpointError, match=f"{name} has shape"):
        check_checkpoint(checkpoint)
