"""The command line itself: what it forwards, how it fails, and that it does so at once."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import app.commands.synth
import app.server
from app.cli import run
from models.checkpoint import made_here


def one_error(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line of standard error."""
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith("error: ")
    return line


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert re.fullmatch(r"voxserve \d+\.\d+\.\d+\n", capsys.readouterr().out)


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help_lists_the_commands(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 0
    out = capsys.readouterr().out
    for command in ("serve", "synth", "make-checkpoint", "doctor"):
        assert f"\n  {command} " in out


def test_import_is_light() -> None:
    """`voxserve --help` answers at once because of it."""
    heavy = ("torch", "vllm", "transformers", "fastapi", "numpy", "pydantic")
    code = f"import sys, app.cli; print(*sys.modules.keys() & set({heavy}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["sing"], "sing"),
        (["synth", "--loud"], "--loud"),
        (["synth", "--steps", "many"], "--steps"),
        (["synth", "--text"], "--text"),
        (["make-checkpoint"], "directory"),
        (["make-checkpoint", "x", "--seed", "-1"], "--seed"),
        (["serve", "--port", "high"], "--port"),
    ],
)
def test_usage_errors_are_one_line(
    arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    assert named in one_error(capsys)


def test_serve_forwards_what_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []
    monkeypatch.setattr(app.server, "run", lambda overrides: seen.append(overrides) or 7)
    assert run(["serve"]) == 7
    assert run(["serve", "--host", "::", "--port", "9"]) == 7
    assert run(["serve", "--model", "here"]) == 7
    assert run(["serve", "--model", "a/b", "--revision", "main"]) == 7
    assert run(["serve", "--llm-model", "here"]) == 7
    assert run(["serve", "--model", "none", "--llm-model", "a/b", "--llm-revision", "main"]) == 7
    assert run(["serve", "--llm-revision", "main"]) == 7
    assert seen == [
        {},
        {"host": "::", "port": 9},
        {"speech_model": "here", "speech_model_revision": None},
        {"speech_model": "a/b", "speech_model_revision": "main"},
        {"llm_model": "here", "llm_model_revision": None},
        {
            "speech_model": "none",
            "speech_model_revision": None,
            "llm_model": "a/b",
            "llm_model_revision": "main",
        },
        {"llm_model_revision": "main"},
    ]


def test_ctrl_c_before_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_args: object, **_kwargs: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(app.commands.synth, "synth", interrupted)
    assert run(["synth", "--text", "Hello.", "--out", "a.wav"]) == 130


def test_make_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = tmp_path / "new" / "tiny"
    assert run(["make-checkpoint", str(directory), "--seed", "3"]) == 0
    assert made_here(directory)
    captured = capsys.readouterr()
    assert captured.err == ""
    assert f"SPEECH_MODEL={directory} voxserve serve" in captured.out
    assert run(["make-checkpoint", str(directory)]) == 2
    assert "--force" in one_error(capsys)
    assert run(["make-checkpoint", str(directory), "--force"]) == 0


@pytest.mark.parametrize(
    ("variant", "architecture", "dtype"),
    [
        (None, "MiMoV2FlashForCausalLM", " LLM_DTYPE=float32"),
        ("pro-fp8", "MiMoV2ForCausalLM", ""),  # vLLM runs fp8 checkpoints in no float32
    ],
)
def test_make_checkpoint_of_the_language_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], variant: str | None, architecture: str, dtype: str
) -> None:
    directory = tmp_path / "tiny"
    command = ["make-checkpoint", "--kind", "mimo-v2", str(directory)]
    command += ["--variant", variant] if variant else []
    assert run(command) == 0
    assert json.loads((directory / "config.json").read_text())["architectures"] == [architecture]
    assert f"LLM_MODEL={directory}{dtype} voxserve serve" in capsys.readouterr().out
    assert run(command) == 2
    assert "--force" in one_error(capsys)
    assert run(["make-checkpoint", str(directory), "--force"]) == 0  # of the other kind, but ours
    assert (directory / "audiovae.pth").exists()


def test_what_to_do_next_can_be_pasted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = tmp_path / "two words"
    assert run(["make-checkpoint", str(directory)]) == 0
    assert f"SPEECH_MODEL='{directory}' voxserve serve" in capsys.readouterr().out


def test_make_checkpoint_has_variants_of_one_kind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["make-checkpoint", "--variant", "flash", str(tmp_path / "tiny")]) == 2
    assert "--kind mimo-v2" in one_error(capsys)
    assert not (tmp_path / "tiny").exists()


def test_make_checkpoint_where_nothing_can_be_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert run(["make-checkpoint", str(tmp_path / "file" / "tiny")]) == 2
    assert "cannot be made" in one_error(capsys)
    assert run(["make-checkpoint", str(tmp_path / "file")]) == 2
    assert "is a file" in one_error(capsys)
