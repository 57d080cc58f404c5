"""`voxserve synth` as a user runs it, on real engines: the reference's numbers, and a clean end by Ctrl+C."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
import pytest
import soundfile

from app.pipeline.pcm import FULL_SCALE
from models.checkpoint import made_here
from tests.support.golden import CHECKPOINT, FIXTURES, INDEX, TOLERANCE, golden
from tests.support.server_process import wait_for

pytestmark = pytest.mark.engine

COMMAND = (sys.executable, "-c", "from app.cli import main; main()", "synth")
ROOT = Path(__file__).parents[2]
TIMEOUT_S = 480  # a start takes one minute, and several where other work fills the cores
INTERRUPT_TIMEOUT_S = 15
FIELDS = {  # of a golden case: of a batch
    "target_text": "text",
    "seed": "seed",
    "cfg_value": "cfg",
    "inference_timesteps": "steps",
    "min_len": "min_patches",
    "max_len": "max_patches",
    "reference_wav_path": "reference",
    "prompt_wav_path": "prompt_audio",
    "prompt_text": "prompt_text",
}


def environment(**variables: object) -> dict[str, str]:
    return os.environ | {name: str(value) for name, value in variables.items()}


@dataclass(frozen=True)
class Batch:
    """What a batch of all golden cases left."""

    directory: Path
    stdout: str
    stderr: str


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> Batch:
    source, out = tmp_path_factory.mktemp("batch"), tmp_path_factory.mktemp("out") / "spoken"
    for voice in ("voice_a.wav", "voice_b.wav"):
        (source / voice).symlink_to(FIXTURES / voice)
    lines = [
        {"name": name} | {FIELDS[key]: value for key, value in case.items() if key in FIELDS}
        for name, case in INDEX.items()
    ]
    (source / "golden.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    arguments = ("--batch", source / "golden.jsonl", "--out-dir", out, "--model", CHECKPOINT)
    done = subprocess.run(
        (*COMMAND, *map(str, arguments)),
        cwd=ROOT,
        env=environment(SPEECH_KV_CACHE_BYTES="256MiB"),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return Batch(out, done.stdout, done.stderr)


@pytest.mark.parametrize("name", INDEX)
def test_the_reference_numbers(batch: Batch, name: str) -> None:
    expected = golden(name)
    with np.load(batch.directory / f"{name}.npz") as data:
        np.testing.assert_allclose(data["latents"], expected.latents, rtol=0, atol=TOLERANCE)
        np.testing.assert_allclose(data["stop_logits"], expected.stop_logits, rtol=0, atol=TOLERANCE)
        is_text = ~expected.is_audio
        np.testing.assert_array_equal(
            data["prompt_token_ids"][is_text], expected.prompt_token_ids[is_text].astype(np.int64)
        )
    samples, rate = soundfile.read(batch.directory / f"{name}.wav", dtype="int16")
    assert rate == 48000
    np.testing.assert_allclose(
        samples / FULL_SCALE, expected.audio_full, rtol=0, atol=TOLERANCE + 1 / FULL_SCALE
    )


def test_it_says_what_it_does_and_no_more(batch: Batch) -> None:
    assert batch.stdout == ""
    lines = batch.stderr.splitlines()
    assert len([line for line in lines if "s of audio" in line]) == len(INDEX) + 1
    assert f"{len(INDEX)} of {len(INDEX)} requests" in lines[-1]
    assert "INFO" not in batch.stderr


def test_one_text_with_the_built_in_checkpoint(tmp_path: Path) -> None:
    out, npz = tmp_path / "hello.wav", tmp_path / "hello.npz"
    arguments = ("--text", "Hello world.", "--out", out, "--latents", npz, "--seed", 7)
    variables = environment(VOXSERVE_CACHE_DIR=tmp_path / "cache", SPEECH_KV_CACHE_BYTES="256MiB")
    variables.pop("SPEECH_MODEL", None)
    done = subprocess.run(
        (*COMMAND, *map(str, arguments)),
        cwd=ROOT,
        env=variables,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "seed 7" in done.stderr
    assert "NOISE" in done.stderr
    (made,) = (tmp_path / "cache").iterdir()
    assert made_here(made)
    with np.load(npz) as data:
        patches = len(data["latents"])
        assert np.isfinite(data["latents"]).all()
        assert data["stop_logits"].shape == (patches, 2)
    info = soundfile.info(out)
    assert (info.samplerate, info.channels, info.subtype) == (48000, 1, "PCM_16")
    assert info.frames == patches * 7680


@pytest.mark.parametrize("terminal", [True, False], ids=["ctrl-c", "kill"])
def test_sigint_ends_a_start_and_all_its_processes(terminal: bool, tmp_path: Path) -> None:
    """A terminal sends it to all processes of the group, `kill -INT` to one."""
    log = tmp_path / "log"
    arguments = ("--text", "Hello.", "--out", tmp_path / "a.wav", "--model", CHECKPOINT)
    with log.open("wb") as stream:
        process = subprocess.Popen(
            (*COMMAND, *map(str, arguments)),
            cwd=ROOT,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
        )
    try:
        tree: list[psutil.Process] = []
        wait_for(engine_is_there(psutil.Process(process.pid), tree), TIMEOUT_S, log.read_text)
        (os.killpg if terminal else os.kill)(process.pid, signal.SIGINT)
        assert process.wait(INTERRUPT_TIMEOUT_S) == 130
    finally:
        process.kill()
        process.wait()
    assert psutil.wait_procs(tree, timeout=5)[1] == []
    assert "Traceback" not in log.read_text(encoding="utf-8")
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def engine_is_there(process: psutil.Process, tree: list[psutil.Process]) -> Callable[[], bool]:
    """Whether the engine's process runs; `tree` gets all processes."""

    def look() -> bool:
        tree[:] = process.children(recursive=True)
        return any("spawn_main" in " ".join(child.cmdline()) for child in tree)

    return look
