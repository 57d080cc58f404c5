"""The reference. Engines start one at a time: each module stops its own."""

from pathlib import Path

import pytest

from tests.support.llm import Reference


@pytest.fixture(scope="session")
def reference(flash: Path) -> Reference:
    return Reference(flash)
