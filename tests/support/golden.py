"""The seven golden cases: inputs of `index.json`, and what the reference implementation made of them."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

FIXTURES = Path(__file__).parents[1] / "fixtures" / "voxcpm2"
CHECKPOINT = FIXTURES / "checkpoint"
INDEX = json.loads((FIXTURES / "golden" / "index.json").read_text(encoding="utf-8"))
TOLERANCE = 2e-4


@dataclass(frozen=True)
class Golden:
    """What the reference made; see the fixtures' README for shapes."""

    prompt_token_ids: npt.NDArray[np.int32]
    is_audio: npt.NDArray[np.bool_]
    prompt_latents: npt.NDArray[np.float32]
    latents: npt.NDArray[np.float32]
    stop_logits: npt.NDArray[np.float32]
    audio_streaming: npt.NDArray[np.float32]
    audio_full: npt.NDArray[np.float32]


def golden(name: str) -> Golden:
    """The reference's numbers for a case."""
    with np.load(FIXTURES / "golden" / f"{name}.npz") as data:
        return Golden(
            is_audio=data["prompt_audio_mask"].astype(bool),
            **{key: data[key] for key in Golden.__dataclass_fields__ if key != "is_audio"},
        )
