"""Checkpoints and the reference. Engines start one at a time: each module stops its own."""

from pathlib import Path

import pytest

from models.mimo_v2.make_checkpoint import make_checkpoint
from models.plugin import register
from tests.support.llm import Reference


@pytest.fixture(scope="session", autouse=True)
def registered() -> None:
    register()


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
def reference(flash: Path) -> Reference:
    return Reference(flash)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here starts an engine."""
    for item in items:
        if "tests/engine_llm/" in item.path.as_posix():
            item.add_marker(pytest.mark.engine)
