"""Tiny checkpoints of both kinds, and vLLM's process groups."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from models.mimo_v2.make_checkpoint import make_checkpoint
from models.plugin import register
from tests.support.mimo_v2 import one_process


@pytest.fixture(scope="session")
def flash(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("mimo") / "flash"
    make_checkpoint(directory, "flash")
    return directory


@pytest.fixture(scope="session")
def pro(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("mimo") / "pro-fp8"
    make_checkpoint(directory, "pro-fp8")
    return directory


@pytest.fixture(scope="session")
def process_groups() -> Iterator[None]:
    register()
    with one_process():
        yield
