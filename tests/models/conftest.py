"""Model tests compute numbers, never gradients."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield
