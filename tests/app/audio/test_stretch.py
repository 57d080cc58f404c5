"""Tempo and rate: length, pitch, and no trace of where the pieces ended."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.audio.resample import Resampler
from app.audio.stretch import Stretch
from app.pipeline.generation import Floats

RATE = 24000
TONE_HZ = 440
WINDOW_S = 0.06  # of atempo, about


def tone(seconds: float) -> Floats:
    return (0.5 * np.sin(2 * np.pi * TONE_HZ * np.arange(round(seconds * RATE)) / RATE)).astype(np.float32)


def through(chain: Stretch | Resampler, samples: Floats, cuts: list[int]) -> Floats:
    pieces = [chain.push(piece) for piece in np.split(samples, sorted(cuts))]
    return np.concatenate([*pieces, chain.finish()])


def pitch(samples: Floats, rate: int = RATE) -> float:
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(samples.size)))
    return float(np.argmax(spectrum) * rate / samples.size)


@pytest.mark.parametrize("speed", [0.25, 0.3, 0.5, 0.9, 1.0, 1.1, 1.5, 2.0, 3.3, 4.0])
def test_duration_and_pitch(speed: float) -> None:
    heard = through(Stretch(RATE, speed), tone(3), [1000, 30000])
    assert heard.size / RATE == pytest.approx(3 / speed, rel=0.01, abs=WINDOW_S)
    assert pitch(heard) == pytest.approx(TONE_HZ, abs=3)
    assert np.abs(heard).max() < 0.6


def test_at_normal_speed_nothing_changes() -> None:
    np.testing.assert_array_equal(through(Stretch(RATE, 1.0), tone(1), [7, 100]), tone(1))


@pytest.mark.parametrize("speed", [0.25, 1.7, 4.0])
def test_nothing_and_almost_nothing(speed: float) -> None:
    assert through(Stretch(RATE, speed), tone(0), []).size == 0
    assert through(Stretch(RATE, speed), tone(1 / RATE), []).size <= 4


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, RATE), max_size=8), st.sampled_from([0.25, 0.8, 1.3, 3.0]))
def test_where_pieces_end_makes_no_difference_to_the_tempo(cuts: list[int], speed: float) -> None:
    expected = through(Stretch(RATE, speed), tone(1), [])
    np.testing.assert_array_equal(through(Stretch(RATE, speed), tone(1), cuts), expected)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, RATE), max_size=8), st.sampled_from([8000, 16000, 24000, 44100, 48000]))
def test_where_pieces_end_makes_no_difference_to_the_rate(cuts: list[int], rate: int) -> None:
    expected = through(Resampler(RATE, rate), tone(1), [])
    heard = through(Resampler(RATE, rate), tone(1), cuts)
    assert abs(heard.size - rate) <= 1
    np.testing.assert_allclose(heard, expected, atol=1e-5)
    assert pitch(heard, rate) == pytest.approx(TONE_HZ, abs=3)
