"""Shapes and types of slot state and step outputs."""

import pytest
import torch

from models.voxcpm2.config import read_config
from models.voxcpm2.limits import MAX_STEPS
from models.voxcpm2.slots import SlotState, StepOutputs, packed_width
from tests.support.golden import CHECKPOINT

CONFIG = read_config(CHECKPOINT)
CPU = torch.device("cpu")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_state_has_a_dummy_slot_and_room_for_one_more_patch(dtype: torch.dtype) -> None:
    state = SlotState.allocate(CONFIG, vae_state_size=37, slots=3, max_model_len=50, dtype=dtype, device=CPU)
    assert state.latents.shape == (4, 51, 4, 16)
    assert state.vae.shape == (4, 37)
    assert state.times.shape == state.widths.shape == (4, MAX_STEPS)
    assert state.cfg.shape == (4,)
    assert state.cfg.dtype == torch.float32
    for tensor in (state.latents, state.times, state.widths):
        assert tensor.dtype == dtype
    assert state.vae.dtype == torch.float32  # whatever the model's


def test_slots_are_rows_of_their_own_memory() -> None:
    state = SlotState.allocate(CONFIG, 5, slots=2, max_model_len=8, dtype=torch.float32, device=CPU)
    state.latents[1] = 1.0
    state.vae[1] = 1.0
    for tensor in (state.latents, state.vae):
        assert not tensor[[0, 2]].any()


def test_outputs() -> None:
    outputs = StepOutputs.allocate(CONFIG, max_rows=3, device=CPU)
    assert packed_width(CONFIG) == 7680 + 4 * 16 + 2
    assert outputs.packed.shape == (3, packed_width(CONFIG))
    assert outputs.packed.dtype == torch.float32
    assert (outputs.token_ids.shape, outputs.token_ids.dtype) == ((3,), torch.int64)
