"""WAV headers, read back by readers that are not ours."""

import io
import wave

import numpy as np
import pytest
import soundfile

from app.pipeline.encode import CONTAINERS, wav_header

SAMPLES = np.arange(-500, 500, dtype="<i2")


@pytest.mark.parametrize("size", [SAMPLES.nbytes, None])
def test_soundfile_reads_whole_and_streamed(size: int | None) -> None:
    data, rate = soundfile.read(io.BytesIO(wav_header(48000, size) + SAMPLES.tobytes()), dtype="int16")
    assert rate == 48000
    np.testing.assert_array_equal(data, SAMPLES)


def test_whole_header_is_exact() -> None:
    file = wav_header(48000, SAMPLES.nbytes) + SAMPLES.tobytes()
    assert int.from_bytes(file[4:8], "little") == len(file) - 8
    with wave.open(io.BytesIO(file)) as reader:
        assert reader.getparams()[:4] == (1, 2, 48000, SAMPLES.size)


def test_python_reads_a_streamed_header() -> None:
    with wave.open(io.BytesIO(wav_header(48000, None) + SAMPLES.tobytes())) as reader:
        assert reader.readframes(10**6) == SAMPLES.tobytes()


def test_an_empty_answer_is_a_file() -> None:
    data, _ = soundfile.read(io.BytesIO(wav_header(48000, 0)))
    assert data.size == 0


def test_pcm_has_no_header() -> None:
    assert CONTAINERS["pcm"].header(48000, 10) == b""
    assert (CONTAINERS["pcm"].media_type, CONTAINERS["wav"].media_type) == ("audio/pcm", "audio/wav")
