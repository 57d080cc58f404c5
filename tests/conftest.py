"""What all tests share: data directories of their own, tiny checkpoints, the mark of engine tests."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
ENGINE_DIRECTORIES = {"engine", "engine_llm"}


@pytest.fixture(scope="session", autouse=True)
def _data_of_our_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    before = os.environ.get("XDG_DATA_HOME")
    os.environ["XDG_DATA_HOME"] = str(tmp_path_factory.mktemp("data"))
    yield
    if before is None:
        del os.environ["XDG_DATA_HOME"]
    else:
        os.environ["XDG_DATA_HOME"] = before


@pytest.fixture(scope="session")
def flash(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _mimo_v2(tmp_path_factory, "flash")


@pytest.fixture(scope="session")
def pro(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _mimo_v2(tmp_path_factory, "pro-fp8")


def _mimo_v2(tmp_path_factory: pytest.TempPathFactory, kind: str) -> Path:
    from models.mimo_v2.make_checkpoint import make_checkpoint  # heavy; most tests do without

    directory = tmp_path_factory.mktemp("mimo") / kind
    make_checkpoint(directory, kind)
    return directory


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.relative_to(TESTS).parts[0] in ENGINE_DIRECTORIES:
            item.add_marker(pytest.mark.engine)
