"""Conditioning audio: what is read and refused, where padding goes, and that each clip is encoded once."""

import asyncio
import io
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import pytest
import soundfile
import soxr

from app.errors import GenerationFailed, InvalidRequest
from app.voices import reference
from app.voices.reference import AudioClip, ReferenceCache, StoredClip, read_clip, to_patches
from models.voxcpm2.config import VoxCPM2ModelConfig, read_config
from models.voxcpm2.prompt import Patches
from tests.support.golden import CHECKPOINT
from tests.support.serving import until

RATE = 16000  # the AudioVAE's
PATCH = 2560  # samples at that rate
Floats = npt.NDArray[np.float32]
Side = Literal["left", "right"]


@pytest.fixture(scope="module")
def config() -> VoxCPM2ModelConfig:
    return read_config(CHECKPOINT)


def noise(size: int, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).uniform(-0.5, 0.5, size).astype(np.float32)


def wav(samples: npt.NDArray[np.floating], rate: int = RATE, subtype: str = "FLOAT") -> bytes:
    stream = io.BytesIO()
    soundfile.write(stream, samples, rate, subtype, format="WAV")
    return stream.getvalue()


# -- reading -------------------------------------------------------------------------------------------------


def test_samples_are_read_as_they_are(tmp_path: Path) -> None:
    samples = noise(4000)
    path = tmp_path / "voice.wav"
    path.write_bytes(wav(samples, 22050))
    for source in (path, path.read_bytes()):
        clip = read_clip(source)
        assert (clip.rate, clip.samples.dtype, clip.samples.shape) == (22050, np.float32, (4000,))
        np.testing.assert_array_equal(clip.samples, samples)


@pytest.mark.parametrize(
    ("file_format", "suffix"), [("WAV", "wav"), ("FLAC", "flac"), ("OGG", "ogg"), ("MP3", "mp3")]
)
def test_every_format_that_the_message_names(file_format: str, suffix: str, tmp_path: Path) -> None:
    assert file_format in reference.PCM_FORMATS
    path = tmp_path / f"voice.{suffix}"
    tone = 0.5 * np.sin(np.arange(RATE) * (2 * math.pi * 440 / RATE))
    soundfile.write(path, tone, RATE, format=file_format)
    clip = read_clip(path)
    assert clip.rate == RATE
    assert clip.samples.std() == pytest.approx(tone.std(), rel=0.1)


def test_channels_are_mixed_to_their_mean() -> None:
    left, right = noise(4000, 1), noise(4000, 2)
    clip = read_clip(wav(np.stack((left, right), axis=1)))
    np.testing.assert_array_equal(clip.samples, (left + right) / 2)
    assert clip.samples.dtype == np.float32


@pytest.mark.parametrize("seconds", [reference.MIN_SECONDS, reference.MAX_SECONDS])
def test_the_bounds_of_the_length_are_allowed(seconds: float) -> None:
    size = round(seconds * RATE)
    assert read_clip(wav(noise(size))).samples.size == size


@pytest.mark.parametrize(("size", "seconds"), [(RATE // 20, "0.05"), (61 * RATE, "61.00"), (0, "0.00")])
def test_too_short_and_too_long(size: int, seconds: str) -> None:
    with pytest.raises(InvalidRequest, match=rf"lasts {seconds} s: give between 0\.1 and 60 s") as caught:
        read_clip(wav(noise(size)), "reference")
    assert caught.value.param == "reference"


def with_value(value: float) -> Floats:
    samples = noise(4000)
    samples[2000] = value
    return samples


VOICE = noise(4000)


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (np.zeros(4000), "the audio is silent: record it again"),
        (np.stack((VOICE, -VOICE), axis=1), "the audio is silent: record it again"),
        (with_value(math.nan), "not finite numbers: export it again"),
        (with_value(-math.inf), "not finite numbers: export it again"),
        (np.stack((VOICE, with_value(math.nan)), axis=1), "not finite numbers: export it again"),
    ],
    ids=["silent", "silent mix", "nan", "infinite", "nan in a channel"],
)
def test_useless_samples(samples: npt.NDArray[np.floating], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message) as caught:
        read_clip(wav(samples), "reference")
    assert caught.value.param == "reference"


@pytest.mark.parametrize("source", [b"", b"this is no audio", b"\0" * 5000, wav(VOICE)[:20]])
def test_what_is_not_audio(source: bytes, tmp_path: Path) -> None:
    path = tmp_path / "voice.wav"
    path.write_bytes(source)
    for unreadable in (source, path):
        with pytest.raises(InvalidRequest, match=r"cannot be read .*: give WAV, FLAC, OGG or MP3") as caught:
            read_clip(unreadable, "prompt")
        assert caught.value.param == "prompt"


@pytest.mark.parametrize("name", ["absent.wav", "."])
def test_a_path_that_cannot_be_read(name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"cannot be read .*: give WAV, FLAC, OGG or MP3") as caught:
        read_clip(tmp_path / name)
    assert caught.value.param is None


# -- padding and resampling ----------------------------------------------------------------------------------


def test_a_reference_is_padded_on_the_right(config: VoxCPM2ModelConfig) -> None:
    samples = noise(2 * PATCH + 1)
    padded = to_patches(AudioClip(samples, RATE), config, "right")
    assert (padded.shape, padded.dtype) == ((3 * PATCH,), np.float32)
    np.testing.assert_array_equal(padded[: samples.size], samples)
    assert not padded[samples.size :].any()


def test_a_prompt_is_padded_on_the_left(config: VoxCPM2ModelConfig) -> None:
    samples = noise(2 * PATCH + 1)
    padded = to_patches(AudioClip(samples, RATE), config, "left")
    assert (padded.shape, padded.dtype) == ((3 * PATCH,), np.float32)
    np.testing.assert_array_equal(padded[-samples.size :], samples)
    assert not padded[: -samples.size].any()


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("patches", [1, 4])
def test_whole_patches_stay_as_they_are(patches: int, side: Side, config: VoxCPM2ModelConfig) -> None:
    samples = noise(patches * PATCH)
    np.testing.assert_array_equal(to_patches(AudioClip(samples, RATE), config, side), samples)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("rate", [8000, 11025, 22050, 24000, 44100, 48000])
@pytest.mark.parametrize("size", [5000, 12345])
def test_other_rates_are_resampled_then_padded(
    size: int, rate: int, side: Side, config: VoxCPM2ModelConfig
) -> None:
    samples = noise(size)
    length = math.ceil(size * RATE / rate)
    expected = soxr.resample(samples, rate, RATE, quality="HQ")
    assert abs(expected.size - length) <= 1  # soxr rounds where the reference rounds up
    expected = np.pad(expected[:length], (0, max(0, length - expected.size)))
    padded = to_patches(AudioClip(samples, rate), config, side)
    assert (padded.size, padded.dtype) == (math.ceil(length / PATCH) * PATCH, np.float32)
    audio, padding = np.split(padded, [length]) if side == "right" else np.split(padded, [-length])[::-1]
    np.testing.assert_array_equal(audio, expected)
    assert not padding.any()


# -- the cache -----------------------------------------------------------------------------------------------


class Encoder:
    """Patches of the clip's mean; answers once `go` is set, and fails as often as told."""

    def __init__(self, config: VoxCPM2ModelConfig) -> None:
        self.config = config
        self.encoded: list[Floats] = []
        self.failures = 0
        self.go = asyncio.Event()
        self.go.set()

    async def encode_audio(self, samples: Floats) -> Patches:
        self.encoded.append(samples)
        await self.go.wait()
        if len(self.encoded) <= self.failures:
            raise GenerationFailed("broke")
        shape = (samples.size // PATCH, self.config.patch_size, self.config.feat_dim)
        return np.full(shape, samples.mean(), np.float32)


@pytest.fixture
def encoder(config: VoxCPM2ModelConfig) -> Encoder:
    return Encoder(config)


def clip(seed: int = 0) -> AudioClip:
    """A clip of one and a half patches."""
    return AudioClip(noise(PATCH + PATCH // 2, seed), RATE)


async def test_the_encoder_gets_whole_patches_and_its_latents_come_back(encoder: Encoder) -> None:
    voice = clip()
    latents = await ReferenceCache(encoder).encode(voice, "right")
    (samples,) = encoder.encoded
    np.testing.assert_array_equal(samples, to_patches(voice, encoder.config, "right"))
    np.testing.assert_array_equal(latents, np.full((2, 4, 16), samples.mean(), np.float32))


async def test_clips_are_told_apart_by_content(encoder: Encoder) -> None:
    cache = ReferenceCache(encoder)
    first = await cache.encode(clip(1), "right")
    again = await cache.encode(clip(1), "right")  # the same samples in another object
    other = await cache.encode(clip(2), "right")
    assert len(encoder.encoded) == 2
    np.testing.assert_array_equal(first, again)
    assert (first != other).all()


async def test_the_rate_is_part_of_the_content(encoder: Encoder) -> None:
    cache = ReferenceCache(encoder)
    await cache.encode(clip(), "right")
    await cache.encode(AudioClip(clip().samples, 2 * RATE), "right")
    assert len(encoder.encoded) == 2


async def test_the_side_of_the_padding_is_part_of_the_content(encoder: Encoder) -> None:
    cache = ReferenceCache(encoder)
    for side in ("right", "left", "right", "left"):
        await cache.encode(clip(), side)
    right, left = encoder.encoded
    assert (bool(right[0]), bool(right[-1])) == (True, False)
    assert (bool(left[0]), bool(left[-1])) == (False, True)


async def test_requests_at_the_same_time_share_one_encoding(
    encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = ReferenceCache(encoder)
    async with all_waiting(cache, encoder, [clip(i % 2) for i in range(32)], monkeypatch) as waiting:
        assert len(encoder.encoded) == 2, "16 requests for each of two clips"
    for i, task in enumerate(waiting):
        mean = to_patches(clip(i % 2), encoder.config, "right").mean()
        np.testing.assert_array_equal(await task, np.full((2, 4, 16), mean, np.float32))
    assert len(encoder.encoded) == 2


async def test_a_request_that_is_cancelled_takes_the_encoding_from_nobody(
    encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = ReferenceCache(encoder)
    async with all_waiting(cache, encoder, [clip(), clip()], monkeypatch) as (leaving, staying):
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
    assert (await staying).shape == (2, 4, 16)
    await cache.encode(clip(), "right")
    assert len(encoder.encoded) == 1


async def test_the_least_recently_used_is_forgotten(
    encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reference, "MAX_CACHED_CLIPS", 2)
    cache = ReferenceCache(encoder)

    async def encoded(seed: int) -> bool:
        before = len(encoder.encoded)
        await cache.encode(clip(seed), "right")
        return len(encoder.encoded) > before

    asked = (1, 2, 1, 3, 1, 2)  # 3 takes the place of 2, which was used before 1
    assert [await encoded(seed) for seed in asked] == [True, True, False, True, False, True]


async def test_a_failure_reaches_all_who_wait_and_is_not_kept(
    encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder.failures = 1
    cache = ReferenceCache(encoder)
    async with all_waiting(cache, encoder, [clip()] * 16, monkeypatch) as waiting:
        pass
    for task in waiting:
        with pytest.raises(GenerationFailed, match="broke"):
            await task
    for _ in range(2):
        assert (await cache.encode(clip(), "right")).shape == (2, 4, 16)
    assert len(encoder.encoded) == 2, "tried again once, then kept"


async def test_a_failure_of_one_clip_leaves_the_others(encoder: Encoder) -> None:
    cache = ReferenceCache(encoder)
    await cache.encode(clip(1), "right")
    encoder.failures = 2
    with pytest.raises(GenerationFailed, match="broke"):
        await cache.encode(clip(2), "right")
    await cache.encode(clip(1), "right")
    assert len(encoder.encoded) == 2


def stored(seed: int, reads: list[int], key: bytes = b"") -> StoredClip:
    """A clip that notes when it is read."""

    def read() -> AudioClip:
        reads.append(seed)
        return clip(seed)

    return StoredClip(key or bytes([seed]), read)


async def test_a_stored_clip_is_read_once_and_gives_the_latents_of_its_content(encoder: Encoder) -> None:
    cache, reads = ReferenceCache(encoder), list[int]()
    first = await cache.encode(stored(1, reads), "right")
    again = await cache.encode(stored(1, reads), "right")
    await cache.encode(stored(2, reads), "right")
    assert reads == [1, 2]
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(first, await ReferenceCache(encoder).encode(clip(1), "right"))


async def test_both_sides_of_a_stored_clip_are_encoded(encoder: Encoder) -> None:
    cache, reads = ReferenceCache(encoder), list[int]()
    for side in ("right", "left", "right", "left"):
        await cache.encode(stored(1, reads), side)
    right, left = encoder.encoded
    assert (bool(right[-1]), bool(left[0])) == (False, False)
    assert reads == [1, 1]


async def test_requests_at_the_same_time_share_one_reading(encoder: Encoder) -> None:
    cache, reads = ReferenceCache(encoder), list[int]()
    encoder.go.clear()
    waiting = [asyncio.create_task(cache.encode(stored(1, reads), "right")) for _ in range(16)]
    await until(lambda: bool(encoder.encoded))
    encoder.go.set()
    await asyncio.gather(*waiting)
    assert (reads, len(encoder.encoded)) == ([1], 1)


async def test_a_reading_that_fails_is_not_kept(encoder: Encoder) -> None:
    cache, reads = ReferenceCache(encoder), list[int]()

    def fail() -> AudioClip:
        raise GenerationFailed("unreadable")

    with pytest.raises(GenerationFailed, match="unreadable"):
        await cache.encode(StoredClip(b"\1", fail), "right")
    await cache.encode(stored(1, reads, b"\1"), "right")
    assert reads == [1]


@asynccontextmanager
async def all_waiting(
    cache: ReferenceCache, encoder: Encoder, clips: list[AudioClip], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[list[asyncio.Task[Patches]]]:
    """Requests that have all come as far as the encoder, which answers when the block ends."""
    prepared: list[Floats] = []

    def to_patches_counted(clip: AudioClip, config: VoxCPM2ModelConfig, padding: Side) -> Floats:
        samples = to_patches(clip, config, padding)
        prepared.append(samples)
        return samples

    monkeypatch.setattr(reference, "to_patches", to_patches_counted)
    encoder.go.clear()
    waiting = [asyncio.create_task(cache.encode(one, "right")) for one in clips]
    await until(lambda: len(prepared) == len(clips) and bool(encoder.encoded))
    await asyncio.sleep(0.1)  # the way back from the last thread
    yield waiting
    encoder.go.set()
