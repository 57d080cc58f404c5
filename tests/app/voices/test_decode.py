"""Uploads: every format is read, exactly where it is lossless; what is no use is refused with a reason."""

import asyncio
import contextlib
import io
import struct
import threading
import tracemalloc
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
import soundfile

from app.errors import InvalidRequest
from app.voices import decode as decoding
from app.voices.decode import DAMAGED, Decoder, Limits, decode
from tests.support.recordings import CONTAINERS, encoded, image, video, voice, wav

LIMITS = Limits(max_bytes=10 * 2**20, min_seconds=1.0, max_seconds=30.0)
LOSSLESS = ("wav", "flac", "mka", "alac")
PARAM = "audio_sample"


def refusal(data: bytes, limits: Limits = LIMITS) -> str:
    with pytest.raises(InvalidRequest) as caught:
        decode(data, limits, PARAM)
    assert caught.value.param == PARAM
    return str(caught.value)


def spectrum_peak(samples: npt.NDArray[np.float32], rate: int) -> float:
    """The loudest frequency in Hz."""
    power = np.abs(np.fft.rfft(samples * np.hanning(samples.size)))
    return float(power.argmax()) * rate / samples.size


# -- what is read --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CONTAINERS)
@pytest.mark.parametrize("channels", [1, 2])
def test_every_container(name: str, channels: int) -> None:
    sound = voice()
    clip = decode(encoded(name, np.repeat(sound[:, None], channels, axis=1)), LIMITS, PARAM)
    assert (clip.rate, clip.samples.dtype, clip.samples.ndim) == (48000, np.float32, 1)
    assert clip.samples.size == pytest.approx(sound.size, abs=3000)  # codecs pad to their frames
    assert clip.samples.std() == pytest.approx(sound.std(), rel=0.1)
    assert spectrum_peak(clip.samples, 48000) == pytest.approx(150, abs=5)
    if name in LOSSLESS:
        np.testing.assert_allclose(clip.samples, sound, atol=1 / 32768)


@pytest.mark.parametrize("rate", [8000, 11025, 16000, 22050, 24000, 44100, 96000, 192000])
@pytest.mark.parametrize("name", ["wav", "flac", "mka"])
def test_every_rate_of_lossless_containers(name: str, rate: int) -> None:
    sound = voice(rate=rate)
    clip = decode(encoded(name, sound, rate), LIMITS, PARAM)
    assert clip.rate == rate
    np.testing.assert_allclose(clip.samples, sound, atol=1 / 32768)


@pytest.mark.parametrize("rate", [16000, 24000, 44100])
@pytest.mark.parametrize("name", ["mp3", "m4a", "aac"])
def test_other_rates_of_lossy_containers(name: str, rate: int) -> None:
    clip = decode(encoded(name, voice(rate=rate), rate), LIMITS, PARAM)
    assert clip.rate == rate
    assert spectrum_peak(clip.samples, rate) == pytest.approx(150, abs=5)


@pytest.mark.parametrize(
    "subtype", ["PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ULAW", "ALAW"]
)
def test_wav_is_read_as_libsndfile_reads_it(subtype: str) -> None:
    data = wav(np.stack((voice(), voice(pitch=200)), axis=1), 44100, subtype)
    expected, rate = soundfile.read(io.BytesIO(data), dtype="float32")
    clip = decode(data, LIMITS, PARAM)
    assert clip.rate == rate
    np.testing.assert_array_equal(clip.samples, expected.mean(axis=1))


def test_ffmpeg_reads_samples_as_libsndfile_does() -> None:
    sound = np.rint(voice() * 32768) / np.float32(32768)
    sound[100], sound[200] = -1, 1 - 2**-15
    np.testing.assert_array_equal(
        decode(encoded("mka", sound), LIMITS, PARAM).samples, decode(wav(sound), LIMITS, PARAM).samples
    )


@pytest.mark.parametrize(
    ("name", "layout", "channels"),
    [
        ("flac", "5.1", 6),
        ("wav", "7.1", 8),
        ("m4a", "7.1(wide)", 8),
        ("webm", "7.1", 8),
        ("mka", "16 channels", 16),
    ],
)
def test_many_channels(name: str, layout: str, channels: int) -> None:
    """Also those whose planes PyAV's own conversion would read beyond the end of."""
    clip = decode(encoded(name, np.repeat(voice()[:, None], channels, axis=1), layout=layout), LIMITS, PARAM)
    assert spectrum_peak(clip.samples, clip.rate) == pytest.approx(150, abs=5)
    assert clip.samples.std() == pytest.approx(voice().std(), rel=0.2)


def test_channels_are_mixed_to_their_mean() -> None:
    left, right = voice(), voice(pitch=230)
    clip = decode(wav(np.stack((left, right), axis=1), subtype="FLOAT"), LIMITS, PARAM)
    np.testing.assert_array_equal(clip.samples, np.stack((left, right), axis=1).mean(axis=1))


def test_the_sound_of_a_video() -> None:
    clip = decode(video(voice()), LIMITS, PARAM)
    assert spectrum_peak(clip.samples, clip.rate) == pytest.approx(150, abs=5)


@pytest.mark.parametrize("size", [0xFFFFFFFF, 0x7FFFFFFF])
def test_a_streamed_wav_has_placeholders_for_its_sizes(size: int) -> None:
    data = bytearray(wav(voice()))
    for offset in (4, data.index(b"data") + 4):
        data[offset : offset + 4] = struct.pack("<I", size)
    np.testing.assert_array_equal(
        decode(bytes(data), LIMITS, PARAM).samples, decode(wav(voice()), LIMITS, PARAM).samples
    )


def test_an_mp3_with_tags_around_it() -> None:
    sound = encoded("mp3", voice())
    data = b"ID3\x03\0\0\0\0\x02\x01" + b"\0" * 257 + sound + b"TAG" + b"x" * 125
    assert decode(data, LIMITS, PARAM).samples.size == decode(sound, LIMITS, PARAM).samples.size


@pytest.mark.parametrize("seconds", [1.0, 30.0])
def test_the_bounds_of_the_length_are_allowed(seconds: float) -> None:
    assert decode(wav(voice(seconds, 8000), 8000), LIMITS, PARAM).samples.size == seconds * 8000


# -- what is not audio ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"Hello, this is a text and not a recording of one.\n" * 100,
        b"\0" * 5000,
        np.random.default_rng(0).bytes(50_000),
        b"<html><body>404</body></html>",
        b"#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10,\nfile:///etc/hostname\n#EXT-X-ENDLIST\n",
        b"ffconcat version 1.0\nfile /etc/hostname\n",
        b"RIFF\x24\0\0\0WAVEfmt ",
        b"fLaC",
        image(),
    ],
    ids=["text", "zeros", "noise", "html", "playlist", "concat", "wav head", "flac head", "png"],
)
def test_what_is_no_recording(data: bytes) -> None:
    assert refusal(data) == f"the audio cannot be read ({DAMAGED}): give WAV, MP3, FLAC, OGG, M4A or WEBM"


def test_an_empty_file() -> None:
    assert refusal(b"") == "the file is empty: send a recording"


def test_a_video_without_sound() -> None:
    assert "it has no audio track" in refusal(video())


def test_a_wav_without_samples() -> None:
    assert refusal(wav(np.zeros(0, np.float32))) == "the file holds no sound: send a recording"


def test_a_file_that_is_too_large() -> None:
    data = wav(voice())
    limits = Limits(max_bytes=len(data), min_seconds=1, max_seconds=30)
    assert decode(data, limits, PARAM).rate == 48000
    assert "larger than" in refusal(data + b"\0", limits)


@pytest.mark.parametrize("name", ["wav", "flac", "mp3", "m4a", "webm", "mka", "alac"])
def test_a_file_that_is_cut_off(name: str) -> None:
    data = encoded(name, voice(3))
    message = refusal(data[: len(data) // 2])
    assert "cut off" in message or "damaged" in message


@pytest.mark.parametrize("name", CONTAINERS)
def test_a_head_without_a_body(name: str) -> None:
    data = encoded(name, voice(3))
    for size in (10, 50, 200, 400):
        assert refusal(data[:size])


@pytest.mark.parametrize("name", CONTAINERS)
def test_damage_is_refused_or_survived(name: str) -> None:
    random = np.random.default_rng(7)
    original = encoded(name, voice())
    for _ in range(30):
        data = bytearray(original)
        for place in random.integers(0, min(len(data), 2000), 10):
            data[place] = random.integers(256)
        clip = None
        with contextlib.suppress(InvalidRequest):
            clip = decode(bytes(data), LIMITS, PARAM)
        if clip is not None:
            assert np.isfinite(clip.samples).all()
            assert 1 <= clip.samples.size / clip.rate <= 30


# -- what is no use ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.5, "the audio lasts 0.50 s: give between 1 and 30 s"),
        (30.5, "the audio lasts more than 30 s: give betw"),
    ],
)
@pytest.mark.parametrize("name", ["wav", "flac", "mka"])
def test_too_short_and_too_long(name: str, seconds: float, said: str) -> None:
    assert refusal(encoded(name, voice(seconds, 16000), 16000)).startswith(said)


@pytest.mark.parametrize("name", ["flac", "m4a", "ogg", "mka"])
def test_hours_in_a_small_file_are_not_decoded(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bomb: the limit ends the work, whatever the headers say."""
    data = encoded(name, np.zeros(200 * 48000, np.float32), 48000)
    taken = 0
    add = decoding._Mix.add

    def counted(mix: decoding._Mix, block: npt.NDArray[np.float32], rate: int) -> None:
        nonlocal taken
        taken += len(block)
        add(mix, block, rate)

    monkeypatch.setattr(decoding._Mix, "add", counted)
    assert "lasts more than 30 s" in refusal(data, Limits(2**28, 1, 30))
    assert taken < 40 * 48000


def test_a_header_that_promises_gigabytes_gets_no_memory() -> None:
    data = bytearray(wav(voice(40, 8000), 8000))
    for offset in (4, data.index(b"data") + 4):
        data[offset : offset + 4] = struct.pack("<I", 0xFFFFFFF0)
    tracemalloc.start()
    try:
        assert "lasts more than" in refusal(bytes(data))
        assert tracemalloc.get_traced_memory()[1] < 2**25
    finally:
        tracemalloc.stop()


def noisy(change: Callable[[npt.NDArray[np.float32]], object]) -> bytes:
    samples = voice()
    change(samples)
    return wav(samples, subtype="FLOAT")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (wav(np.zeros(48000)), "the audio is silent: record it again"),
        (wav(voice(peak=5e-4), subtype="FLOAT"), "the audio is silent: record it again"),
        (wav(np.stack((voice(), -voice()), axis=1)), "the audio is silent: record it again"),
        (noisy(lambda x: x.__setitem__(99, np.nan)), "not finite numbers: export it again"),
        (noisy(lambda x: x.__setitem__(99, -np.inf)), "not finite numbers: export it again"),
        (wav(np.full(48000, 1e300), subtype="DOUBLE"), "not finite numbers: export it again"),
        (wav(np.clip(20 * voice(), -1, 1)), "of the audio is clipped: record it again at a lower level"),
        (wav(32768 * voice(), subtype="FLOAT"), "of the audio is clipped: record it again at a lower level"),
        (
            wav(np.stack((np.clip(20 * voice(), -1, 1), voice()), axis=1)),
            "of the audio is clipped: record it again at a lower level",
        ),
        (wav(voice(2, 4000), 4000), "the audio has 4000 samples a second: give 8000 to 192000"),
        (wav(voice(2, 384000), 384000), "the audio has 384000 samples a second: give 8000 to 192000"),
    ],
    ids=[
        "silent", "below -60 dB", "silent mix", "nan", "inf", "overflow", "clipped", "integers as floats",
        "one channel clipped", "slow", "fast",
    ],
)  # fmt: skip
def test_useless_recordings(data: bytes, said: str) -> None:
    assert said in refusal(data)


def test_a_few_clipped_samples_are_allowed() -> None:
    samples = voice()
    samples[:: samples.size // 100] = 1
    assert decode(wav(samples), LIMITS, PARAM).samples.max() > 0.99


def test_a_recording_of_two_rates() -> None:
    data = encoded("mp3", voice()) + encoded("mp3", voice(rate=24000), 24000)
    assert refusal(data) == "the audio changes from 48000 to 24000 Hz: convert it to one rate"


# -- off the loop --------------------------------------------------------------------------------------------


async def test_decoding_leaves_the_event_loop_free_and_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    go, running, most = threading.Event(), [], 0
    whole = decoding.decode

    def slow(data: bytes, limits: Limits, param: str) -> decoding.AudioClip:
        nonlocal most
        running.append(threading.current_thread())
        most = max(most, len(running))
        go.wait(30)
        running.pop()
        return whole(data, limits, param)

    monkeypatch.setattr(decoding, "decode", slow)
    decoder = Decoder(LIMITS)
    tasks = [asyncio.create_task(decoder.decode(io.BytesIO(wav(voice())), PARAM)) for _ in range(5)]
    while len(running) < decoding.THREADS:  # noqa: ASYNC110 (the loop is shown to be free)
        await asyncio.sleep(0.01)
    assert threading.current_thread() not in running
    go.set()
    clips = await asyncio.gather(*tasks)
    assert most == decoding.THREADS
    assert all(clip.samples.size == voice().size for clip in clips)


async def test_no_more_of_a_file_is_read_than_is_allowed() -> None:
    file = io.BytesIO(b"\0" * 10_000)
    with pytest.raises(InvalidRequest, match="larger than"):
        await Decoder(Limits(1000, 1, 30)).decode(file, PARAM)
    assert file.tell() == 1001
