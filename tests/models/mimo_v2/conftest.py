"""vLLM's process groups, in which models are built and loaded without an engine."""

from collections.abc import Iterator

import pytest

from tests.support.mimo_v2 import one_process


@pytest.fixture(scope="session")
def process_groups() -> Iterator[None]:
    with one_process():
        yield
