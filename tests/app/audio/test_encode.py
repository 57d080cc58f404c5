"""Every format, whole and streamed, as a decoder hears it."""

import io

import av
import numpy as np
import pytest
import soundfile

from app.audio.encode import encoder, to_s16, wav_header
from app.audio.formats import FORMATS, FormatName, Output
from app.pipeline.generation import Floats

RATE = 48000
PATCH = RATE * 160 // 1000
PIECES = (1, PATCH, 999, PATCH, PATCH // 2, 3 * PATCH, 17)
# Samples that a codec may hold back: its frame, and its lookahead.
FRAMES = {"mp3": 1152, "opus": 960, "aac": 1024, "flac": 4608, "wav": 0, "pcm": 0}
LOOKAHEADS = {"mp3": 1105, "opus": 312, "aac": 1024, "flac": 0, "wav": 0, "pcm": 0}
CODED: tuple[FormatName, ...] = ("mp3", "opus", "aac", "flac")
LOSSY: tuple[FormatName, ...] = ("mp3", "opus", "aac")


def speech(samples: int, rate: int = RATE) -> Floats:
    """Something like a voice: harmonics that come and go."""
    time = np.arange(samples) / rate
    voice = sum(np.sin(2 * np.pi * 140 * k * time) / k for k in range(1, 12))
    return (0.2 * voice * (1 + np.sin(2 * np.pi * 3 * time))).astype(np.float32)


def encoded(name: FormatName, samples: Floats, streamed: bool, rate: int = RATE) -> list[bytes]:
    made = encoder(Output(FORMATS[name], rate), streamed)
    pieces, at = [], 0
    for size in [*PIECES, samples.size]:
        pieces.append(made.push(samples[at : at + size]))
        at += size
    pieces.append(made.finish())
    made.close()
    return pieces


def decoded(data: bytes, name: FormatName, rate: int = RATE) -> Floats:
    """Decoded by libav; what a codec put before the sound is skipped where the container says so."""
    if name == "pcm":
        return np.frombuffer(data, "<i2").astype(np.float32) / 32767
    with av.open(io.BytesIO(data)) as container:
        resampler = av.AudioResampler("flt", "mono", rate)
        frames = [piece for frame in container.decode(audio=0) for piece in resampler.resample(frame)]
        frames += resampler.resample(None)
    return np.concatenate([frame.to_ndarray().reshape(-1) for frame in frames] or [np.empty(0, np.float32)])


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("name", FORMATS)
def test_the_duration_is_right_to_a_frame(name: FormatName, streamed: bool) -> None:
    samples = speech(sum(PIECES) + 2 * PATCH)
    heard = decoded(b"".join(encoded(name, samples, streamed)), name)
    assert abs(heard.size - samples.size) <= FRAMES[name] + LOOKAHEADS[name]


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("name", ["flac", "wav", "pcm"])
def test_lossless_formats_have_the_same_samples(name: FormatName, streamed: bool) -> None:
    samples = speech(sum(PIECES) + 11)
    data = b"".join(encoded(name, samples, streamed))
    np.testing.assert_array_equal(np.rint(decoded(data, name) * scale(name)), to_s16(samples))


def scale(name: FormatName) -> int:
    """Of the decoder's 1.0: libav's is that of two's complement."""
    return 32767 if name == "pcm" else 32768


@pytest.mark.parametrize("name", ["flac", "wav"])
def test_libsndfile_reads_whole_answers(name: FormatName) -> None:
    samples = speech(PATCH)
    data = b"".join(encoded(name, samples, streamed=False))
    heard, rate = soundfile.read(io.BytesIO(data), dtype="int16")
    assert rate == RATE
    np.testing.assert_array_equal(heard, to_s16(samples))


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("name", LOSSY)
def test_lossy_formats_sound_the_same(name: FormatName, streamed: bool) -> None:
    samples = speech(RATE)
    heard = decoded(b"".join(encoded(name, samples, streamed)), name)
    shift = int(np.argmax(np.correlate(heard[: RATE // 2 + 4000], samples[: RATE // 2], "valid")))
    heard = heard[shift:][: samples.size]
    assert np.corrcoef(heard, samples[: heard.size])[0, 1] > 0.99


@pytest.mark.parametrize("name", FORMATS)
def test_bytes_come_no_later_than_a_frame_after_their_samples(name: FormatName) -> None:
    made = encoder(Output(FORMATS[name], RATE), streamed=True)
    samples = speech(12 * PATCH)
    said = b""
    for patch in range(12):
        said += made.push(samples[patch * PATCH : (patch + 1) * PATCH])
        heard = decoded(said, name).size
        assert heard >= (patch + 1) * PATCH - FRAMES[name] - LOOKAHEADS[name] - PATCH
    made.close()


@pytest.mark.parametrize("name", FORMATS)
def test_every_prefix_can_be_played(name: FormatName) -> None:
    pieces = encoded(name, speech(12 * PATCH), streamed=True)
    lengths = []
    for count in range(1, len(pieces) + 1):
        said = b"".join(pieces[:count])
        lengths.append(decoded(said, name).size if said else 0)
    assert lengths == sorted(lengths)
    assert lengths[-1] >= 12 * PATCH - FRAMES[name]


@pytest.mark.parametrize("name", CODED)
def test_a_whole_answer_tells_its_length(name: FormatName) -> None:
    samples = speech(3 * RATE)
    data = b"".join(encoded(name, samples, streamed=False))
    with av.open(io.BytesIO(data)) as container:
        assert container.duration is not None
        assert container.duration / av.time_base == pytest.approx(3, abs=0.05 if name != "aac" else 0.3)


@pytest.mark.parametrize(("name", "rate"), [(name, rate) for name in FORMATS for rate in FORMATS[name].rates])
def test_every_rate(name: FormatName, rate: int) -> None:
    samples = speech(rate // 2, rate)
    heard = decoded(b"".join(encoded(name, samples, streamed=True, rate=rate)), name, rate)
    assert abs(heard.size - samples.size) <= FRAMES[name] + LOOKAHEADS[name]
    assert np.abs(heard).max() > 0.1


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("count", [0, 1])
@pytest.mark.parametrize("name", FORMATS)
def test_almost_nothing(name: FormatName, count: int, streamed: bool) -> None:
    made = encoder(Output(FORMATS[name], RATE), streamed)
    data = made.push(speech(count)) + made.finish()
    made.close()
    heard = decoded(data, name)
    assert heard.size <= FRAMES[name] + LOOKAHEADS[name] + FRAMES[name] + 1


@pytest.mark.parametrize("name", FORMATS)
def test_what_is_too_loud_is_clipped(name: FormatName) -> None:
    samples = 3 * np.sin(2 * np.pi * 200 * np.arange(8 * PATCH) / RATE).astype(np.float32)
    heard = decoded(b"".join(encoded(name, samples, streamed=True)), name)
    flat = np.sqrt(np.mean(np.clip(samples, -1, 1) ** 2))
    assert np.sqrt(np.mean(heard[2 * PATCH : 6 * PATCH] ** 2)) == pytest.approx(flat, rel=0.1)


def test_an_encoder_can_be_left_at_any_time() -> None:
    for name in FORMATS:
        made = encoder(Output(FORMATS[name], RATE), streamed=True)
        made.push(speech(PATCH))
        made.close()
        made.close()


def test_the_wav_header_is_the_standards() -> None:
    header = wav_header(48000, 8)
    assert len(header) == 44
    data, rate = soundfile.read(io.BytesIO(header + bytes(8)), dtype="int16")
    assert (data.size, rate) == (4, 48000)
