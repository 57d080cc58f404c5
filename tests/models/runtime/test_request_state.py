"""Slots that go round, and noise that depends on nothing but its request's seed."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from models.runtime.request_state import SlotPool, SpeechRequest
from models.voxcpm2.prompt import AudioSpan, SpeechParams

PATCH, FEAT = 4, 16


def admit(pool: SlotPool, name: str, prompt_length: int = 5, **params: Any) -> SpeechRequest:
    return pool.admit(name, prompt_length, SpeechParams(**{"seed": 1, **params}), num_steps=9)


# -- slots ---------------------------------------------------------------------------------------------------


def test_slots_are_different_and_come_back() -> None:
    pool = SlotPool(3, 20)
    slots = [admit(pool, name).slot for name in "abc"]
    assert sorted(slots) == [0, 1, 2]
    assert (len(pool), pool.free_slots) == (3, 0)
    pool.release("b")
    assert (len(pool), pool.free_slots) == (2, 1)
    assert admit(pool, "d").slot == slots[1]


def test_the_dummy_slot_is_never_given() -> None:
    pool = SlotPool(4, 20)
    assert {admit(pool, str(i)).slot for i in range(4)} == {0, 1, 2, 3}
    assert pool.is_audio.shape == (5, 21)
    assert not pool.is_audio[4].any()


def test_a_request_is_found_by_its_id() -> None:
    pool = SlotPool(2, 20)
    request = admit(pool, "a", prompt_length=7, seed=3)
    assert pool["a"] is request
    assert (request.prompt_length, request.num_steps, request.params.seed) == (7, 9, 3)
    assert (request.num_patches, request.computed) == (0, 0)


def test_releasing_an_unknown_request_does_nothing() -> None:
    pool = SlotPool(2, 20)
    admit(pool, "a")
    pool.release("never started")
    pool.release("a")
    pool.release("a")
    assert (len(pool), pool.free_slots) == (0, 2)
    assert {admit(pool, "b").slot, admit(pool, "c").slot} == {0, 1}


def test_no_slot_left() -> None:
    pool = SlotPool(1, 20)
    admit(pool, "a")
    with pytest.raises(AssertionError, match="more requests started than slots"):
        admit(pool, "b")


def test_one_id_twice() -> None:
    pool = SlotPool(2, 20)
    admit(pool, "a")
    with pytest.raises(AssertionError, match="already running"):
        admit(pool, "a")
    assert pool.free_slots == 1


def test_a_released_id_starts_anew() -> None:
    pool = SlotPool(1, 20)
    first = admit(pool, "a")
    first.num_patches = 7
    pool.release("a")
    assert admit(pool, "a").num_patches == 0


# -- the mask ------------------------------------------------------------------------------------------------


def test_where_audio_lies() -> None:
    pool = SlotPool(1, 12)
    spans = (AudioSpan(1, 2), AudioSpan(6, 1))
    request = admit(pool, "a", prompt_length=7, spans=spans)
    expected = [False, True, True, False, False, False, True] + [True] * 6  # all after the prompt is audio
    assert pool.is_audio[request.slot].tolist() == expected


def test_the_mask_is_set_up_entirely() -> None:
    """An owner with a long text after one whose positions were all audio, and the reverse."""
    pool, fresh = SlotPool(1, 12), SlotPool(1, 12)
    for prompt_length, spans in ((2, (AudioSpan(0, 2),)), (10, ()), (5, (AudioSpan(3, 2),))):
        pool.is_audio[0] = ~pool.is_audio[0]  # whatever was there
        admit(pool, "a", prompt_length, spans=spans)
        fresh.is_audio[:] = False
        admit(fresh, "a", prompt_length, spans=spans)
        np.testing.assert_array_equal(pool.is_audio[0], fresh.is_audio[0])
        pool.release("a")
        fresh.release("a")


def test_another_slots_mask_is_left_alone() -> None:
    pool = SlotPool(2, 12)
    first = admit(pool, "a", 7, spans=(AudioSpan(1, 2),))
    before = pool.is_audio[first.slot].copy()
    admit(pool, "b", 3)
    np.testing.assert_array_equal(pool.is_audio[first.slot], before)


# -- noise ---------------------------------------------------------------------------------------------------


def global_draws(seed: int, count: int) -> list[Tensor]:
    """What the reference implementation draws after `torch.manual_seed`."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return [torch.randn((1, FEAT, PATCH))[0].T for _ in range(count)]


@pytest.mark.parametrize("seed", [0, 11, 2**63 - 1])
def test_noise_is_the_references(seed: int) -> None:
    request = admit(SlotPool(1, 20), "a", seed=seed)
    for expected in global_draws(seed, 4):
        assert torch.equal(request.draw_noise(PATCH, FEAT), expected)


@pytest.mark.parametrize("temperature", [0.0, 0.8, 2.0])
def test_temperature_scales_noise_and_moves_no_draw(temperature: float) -> None:
    request = admit(SlotPool(1, 20), "a", seed=11, temperature=temperature)
    for expected in global_draws(11, 3):
        torch.testing.assert_close(request.draw_noise(PATCH, FEAT), expected * temperature)


def test_noise_does_not_depend_on_others() -> None:
    pool = SlotPool(3, 20)
    a, b, same = admit(pool, "a", seed=11), admit(pool, "b", seed=12), admit(pool, "c", seed=11)
    got = []
    for _ in range(3):
        b.draw_noise(PATCH, FEAT)
        torch.randn(5)
        got.append(a.draw_noise(PATCH, FEAT))
    pool.release("b")
    for mine, expected in zip(got, global_draws(11, 3), strict=True):
        assert torch.equal(mine, expected)
        assert torch.equal(same.draw_noise(PATCH, FEAT), expected)


def test_drawing_leaves_the_global_generator_alone() -> None:
    request = admit(SlotPool(1, 20), "a")
    before = torch.get_rng_state()
    request.draw_noise(PATCH, FEAT)
    request.draw_vae_noise((3, 4))
    assert torch.equal(torch.get_rng_state(), before)


def test_noise_of_the_decoder_is_drawn_block_by_block() -> None:
    lengths = (12, 24)
    request = admit(SlotPool(1, 20), "a", seed=11, temperature=0.5)
    request.draw_noise(PATCH, FEAT)
    got = request.draw_vae_noise(lengths)
    generator = torch.Generator().manual_seed(11)
    torch.randn((1, FEAT, PATCH), generator=generator)
    expected = [torch.randn((1, 1, length), generator=generator).flatten() for length in lengths]
    assert torch.equal(got, torch.cat(expected))  # the request's temperature is the solver's alone
