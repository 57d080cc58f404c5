"""`voxserve doctor`: a whole checkpoint is fine, and each fault of another is named."""

import json
import shutil
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from app.cli import run
from app.commands import doctor, doctor_system
from app.commands.doctor_checkpoint import check_checkpoint
from app.commands.findings import Finding, failed, ok
from tests.support.golden import CHECKPOINT

Tensors = dict[str, torch.Tensor]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A checkpoint to break."""
    return shutil.copytree(CHECKPOINT, tmp_path / "checkpoint")


def faults(directory: Path) -> dict[str, str]:
    """Details of what is wrong, by name."""
    findings = list(check_checkpoint(directory))
    assert all(finding.remedy for finding in findings if not finding.ok)
    return {finding.name: finding.detail for finding in findings if not finding.ok}


def edit_weights(directory: Path, edit: Callable[[Tensors], object]) -> None:
    tensors = load_file(directory / "model.safetensors")
    edit(tensors)
    save_file(tensors, directory / "model.safetensors")


def edit_vae(directory: Path, edit: Callable[[Tensors], object]) -> None:
    tensors = torch.load(directory / "audiovae.pth", weights_only=True)["state_dict"]
    edit(tensors)
    torch.save({"state_dict": tensors}, directory / "audiovae.pth")


def edit_config(directory: Path, edit: Callable[[dict[str, dict[str, object]]], object]) -> None:
    path = directory / "config.json"
    config = json.loads(path.read_text())
    edit(config)
    path.write_text(json.dumps(config))


def test_a_whole_checkpoint() -> None:
    assert [(finding.name, finding.ok) for finding in check_checkpoint(CHECKPOINT)] == [
        ("tokenizer", True),
        ("config", True),
        ("weights", True),
        ("audio VAE", True),
    ]


def test_a_missing_tensor(copy: Path) -> None:
    edit_weights(copy, lambda tensors: tensors.pop("stop_proj.bias"))
    assert faults(copy) == {"weights": "model.safetensors: stop_proj.bias is missing"}


def test_a_renamed_tensor(copy: Path) -> None:
    edit_weights(copy, lambda tensors: tensors.update(stop=tensors.pop("stop_head.weight")))
    assert faults(copy)["weights"].endswith("stop_head.weight is missing; stop is not part of this model")


def test_a_reshaped_tensor(copy: Path) -> None:
    edit_weights(copy, lambda tensors: tensors.update({"base_lm.norm.weight": torch.ones(64)}))
    assert "base_lm.norm.weight has shape [64], the configuration says [128]" in faults(copy)["weights"]


def test_a_pickled_checkpoint(copy: Path) -> None:
    tensors = load_file(copy / "model.safetensors")
    (copy / "model.safetensors").unlink()
    torch.save(tensors, copy / "pytorch_model.bin")
    assert faults(copy) == {}
    del tensors["stop_proj.bias"]
    torch.save(tensors, copy / "pytorch_model.bin")
    assert faults(copy) == {"weights": "pytorch_model.bin: stop_proj.bias is missing"}


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("config.json", "config"),
        ("model.safetensors", "weights"),
        ("audiovae.pth", "audio VAE"),
        ("tokenizer.json", "tokenizer"),
    ],
)
def test_a_missing_or_damaged_file(name: str, fault: str, copy: Path) -> None:
    whole = (copy / name).read_bytes()
    (copy / name).write_bytes(whole[: len(whole) // 2])
    assert list(faults(copy)) == [fault]
    (copy / name).unlink()
    assert list(faults(copy)) == [fault]
    assert name in faults(copy)[fault]


def test_a_missing_field(copy: Path) -> None:
    edit_config(copy, lambda config: config["lm_config"].pop("hidden_size"))
    assert "lm_config.hidden_size" in faults(copy)["config"]


@pytest.mark.parametrize("content", [b"[]", b"\xff", b"{}"])
def test_a_config_of_something_else(content: bytes, copy: Path) -> None:
    (copy / "config.json").write_bytes(content)
    assert "config.json" in faults(copy)["config"]


def test_another_audio_vae(copy: Path) -> None:
    edit_vae(copy, lambda tensors: tensors.pop("decoder.model.0.bias"))
    assert "decoder.model.0.bias is missing" in faults(copy)["audio VAE"]
    edit_config(copy, lambda config: config["audio_vae_config"].update(decoder_dim=64))
    assert "decoder.model.1.bias has shape [128]" in faults(copy)["audio VAE"]


# The machine and the installation


def wrong(findings: object) -> dict[str, Finding]:
    return {finding.name: finding for finding in findings if not finding.ok}  # type: ignore[attr-defined]


def test_this_installation() -> None:
    assert wrong(doctor_system.check_versions()) == {}
    assert wrong(doctor_system.check_devices()) == {}
    assert wrong(doctor_system.check_plugin()) == {}


def test_a_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_system, "REQUIRED", ("torch", "no-such-distribution"))
    found = wrong(doctor_system.check_versions())
    assert list(found) == ["no-such-distribution"]
    assert "make setup" in found["no-such-distribution"].remedy


def test_a_plug_in_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def installed(group: str) -> list[EntryPoint]:
        return [EntryPoint("other", "other:register", group)]

    monkeypatch.setattr("models.plugin.entry_points", installed)
    assert list(wrong(doctor_system.check_plugin())) == ["plug-in"]


@pytest.mark.parametrize(
    ("allowed", "fine"), [("voxserve", True), ("a,voxserve", True), ("a,b", False), ("", False)]
)
def test_the_allow_list(allowed: str, fine: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_PLUGINS", allowed)
    assert list(wrong(doctor_system.check_plugin())) == ([] if fine else ["plug-in"])


def test_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "apt-get install" in wrong(doctor_system.check_tools())["g++"].remedy


def test_an_architecture_that_cannot_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_system, "ARCHITECTURES", {"Gone": "models.gone:Gone"})
    monkeypatch.setattr(doctor_system, "register", lambda: None)
    assert "models.gone" in wrong(doctor_system.check_plugin())["Gone"].detail


# The report


@pytest.fixture
def healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which all is well, at once."""
    for name in ("check_versions", "check_devices", "check_tools", "check_plugin"):
        monkeypatch.setattr(doctor, name, lambda name=name: [ok(name, "fine")])
    for name in ("SPEECH_MODEL", "SPEECH_MODEL_REVISION", "LLM_MODEL", "LLM_MODEL_REVISION"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("healthy")
def test_a_report(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--model", str(copy)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 8
    assert all(line.startswith("ok    ") for line in lines)
    assert lines[0] == "ok    check_versions  fine"
    (copy / "tokenizer.json").unlink()
    assert run(["doctor", "--model", str(copy)]) == 1
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("FAIL")]
    assert line.startswith("FAIL  tokenizer ")
    assert " -> download" in line


@pytest.mark.usefixtures("healthy")
def test_a_report_for_machines(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "check_tools", lambda: [failed("g++", "not found", "install it")])
    assert run(["doctor", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is False
    assert {"name": "g++", "ok": False, "detail": "not found", "remedy": "install it"} in report["checks"]


@pytest.mark.usefixtures("healthy")
def test_the_model_of_the_settings(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPEECH_MODEL", str(CHECKPOINT))
    assert run(["doctor"]) == 0
    assert "127 tensors" in capsys.readouterr().out
    monkeypatch.setenv("SPEECH_MODEL_NAMES", "x")
    assert run(["doctor"]) == 1
    assert "SPEECH_MODEL_NAME" in capsys.readouterr().out


@pytest.mark.usefixtures("healthy")
@pytest.mark.parametrize("model", ["/none", "nobody/nothing", "a/b/c"])
def test_a_model_that_is_not_here(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--model", model]) == 1
    assert model in capsys.readouterr().out
