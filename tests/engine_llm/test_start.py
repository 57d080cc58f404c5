"""A damaged checkpoint stops the start."""

import re
from pathlib import Path

import pytest
from torch import Tensor

from models.checkpoint import CheckpointError
from tests.support.llm import engine
from tests.support.mimo_v2 import derive

LOST = "model.layers.3.mlp.experts.5.down_proj.weight"


def lose(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in tensors.items() if name != LOST}


def test_a_missing_expert_stops_the_start(
    flash: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")  # so that the error is ours to read
    damaged = derive(flash, tmp_path / "damaged", lose)
    with pytest.raises(CheckpointError, match=re.escape(f"no {LOST}")), engine(damaged):
        pass
