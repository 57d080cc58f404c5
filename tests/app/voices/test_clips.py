"""Clips as files: 24 bits come back as they were, under one key, and what was changed is noticed."""

from pathlib import Path

import numpy as np
import pytest

from app.voices.clips import DamagedClip, read_flac, to_flac
from app.voices.reference import AudioClip
from tests.support.recordings import voice

RATE = 16000


def stored(path: Path, clip: AudioClip) -> AudioClip:
    data, record = to_flac(clip)
    path.write_bytes(data)
    assert record.size == len(data)
    assert (record.rate, record.frames) == (clip.rate, clip.samples.size)
    return read_flac(path, record)


@pytest.mark.parametrize("bits", [8, 16, 17, 24])  # 17: the mean of two channels of 16
@pytest.mark.parametrize("rate", [8000, 44100, 192000])
def test_up_to_24_bits_are_exact(bits: int, rate: int, tmp_path: Path) -> None:
    half = 2 ** (bits - 1)
    values = np.random.default_rng(bits).integers(-half, half, rate)
    values[:2] = -half, half - 1
    clip = AudioClip((values / half).astype(np.float32), rate)
    again = stored(tmp_path / "clip.flac", clip)
    assert (again.rate, again.samples.dtype) == (rate, np.float32)
    np.testing.assert_array_equal(again.samples, clip.samples)


def test_floats_are_rounded_and_what_is_beyond_full_scale_is_clipped(tmp_path: Path) -> None:
    samples = voice(rate=RATE)
    samples[:2] = 1.5, -1.5
    again = stored(tmp_path / "clip.flac", AudioClip(samples, RATE)).samples
    np.testing.assert_allclose(again, np.clip(samples, -1, 1 - 2**-23), atol=2**-24)


def test_the_key_is_that_of_what_comes_back(tmp_path: Path) -> None:
    clip = AudioClip(voice(rate=RATE), RATE)
    again = stored(tmp_path / "clip.flac", clip)
    assert to_flac(again)[1] == to_flac(clip)[1]


def test_keys_tell_samples_and_rates_apart() -> None:
    samples = voice(rate=RATE)
    clips = [AudioClip(samples, RATE), AudioClip(samples, 2 * RATE), AudioClip(-samples, RATE)]
    assert len({to_flac(clip)[1].key for clip in clips}) == 3


def test_damage_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "clip.flac"
    data, record = to_flac(AudioClip(voice(rate=RATE), RATE))
    other, _ = to_flac(AudioClip(voice(rate=RATE, pitch=170), RATE))
    for wrong in (b"", data[: len(data) // 2], data[:-1], other, data[:900] + b"\0\0\0" + data[903:]):
        path.write_bytes(wrong)
        with pytest.raises(DamagedClip, match=r"clip\.flac"):
            read_flac(path, record)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        read_flac(path, record)
