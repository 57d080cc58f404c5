"""Checkpoints by directory and by hub id; the hub's real client against a hub on loopback."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from app.pipeline.checkpoint import resolve_checkpoint
from models.checkpoint import CheckpointError
from models.voxcpm2.config import read_config
from tests.support.golden import CHECKPOINT
from tests.support.hub import COMMITS, REPOSITORY, serve_hub

RESOLVE = """
import sys
from app.pipeline.checkpoint import resolve_checkpoint
from models.checkpoint import CheckpointError
try:
    print(resolve_checkpoint(sys.argv[1], sys.argv[2] or None))
except CheckpointError as error:
    sys.exit(str(error))
"""


def resolve(
    home: Path, model: str, revision: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    """In a process of its own: the hub's client reads its variables when it is imported."""
    return subprocess.run(
        [sys.executable, "-c", RESOLVE, model, revision],
        env={**os.environ, "HF_HOME": str(home), "HF_HUB_DISABLE_PROGRESS_BARS": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    files = tmp_path_factory.mktemp("repository")
    for name in ("config.json", "tokenizer.json", "audiovae.pth"):
        shutil.copy(CHECKPOINT / name, files)
    shutil.copy(CHECKPOINT / "model.safetensors", files)
    for name in ("example.wav", "pytorch_model.bin"):
        (files / name).write_bytes(b"not wanted")
    return files


def test_a_directory_is_itself() -> None:
    assert resolve_checkpoint(str(CHECKPOINT)) == CHECKPOINT


def test_a_directory_has_no_revision() -> None:
    with pytest.raises(CheckpointError, match="drop it"):
        resolve_checkpoint(str(CHECKPOINT), "main")


@pytest.mark.parametrize("model", ["/nowhere/model", "./model", "~/model"])
def test_a_path_that_is_no_directory(model: str) -> None:
    with pytest.raises(CheckpointError, match="is not a directory: name one, or a Hugging Face repository"):
        resolve_checkpoint(model)


def test_a_name_that_is_neither() -> None:
    with pytest.raises(CheckpointError, match="neither a directory nor a repository id"):
        resolve_checkpoint("a/b/c")


def test_download_revision_and_offline(repository: Path, tmp_path: Path) -> None:
    with serve_hub(repository) as (address, requests):
        newest = resolve(tmp_path, REPOSITORY, HF_ENDPOINT=address)
        assert newest.returncode == 0, newest.stderr
        assert Path(newest.stdout.strip()).name == COMMITS["main"]
        pinned = resolve(tmp_path, REPOSITORY, "v1", HF_ENDPOINT=address)
        assert pinned.returncode == 0, pinned.stderr
        path = Path(pinned.stdout.strip())
        assert path.name == COMMITS["v1"]
        missing = resolve(tmp_path, REPOSITORY, "v9", HF_ENDPOINT=address)
        assert missing.returncode == 1
        assert "refused someone/voice at v9" in missing.stderr
        unknown = resolve(tmp_path, "someone/else", HF_ENDPOINT=address)
        assert unknown.returncode == 1
        assert "set HF_TOKEN for a gated repository" in unknown.stderr
    assert sorted(file.name for file in path.iterdir()) == [
        "audiovae.pth",
        "config.json",
        "model.safetensors",
        "tokenizer.json",
    ]
    assert read_config(path) == read_config(CHECKPOINT)
    requests.clear()
    offline = resolve(tmp_path, REPOSITORY, "v1", HF_ENDPOINT=address, HF_HUB_OFFLINE="1")
    assert offline.stdout.strip() == str(path), offline.stderr
    nothing = resolve(tmp_path, "someone/else", HF_ENDPOINT=address, HF_HUB_OFFLINE="1")
    assert nothing.returncode == 1
    assert "not in the local cache" in nothing.stderr
    assert not requests
