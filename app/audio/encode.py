"""Samples to bytes, in pieces or whole.

A stream's bytes come as soon as the codec has them, and every prefix that a player sees can be played: no
page or header waits for what comes later. A whole answer's header gives its true length.

Codecs begin with some samples of their own (priming), which containers of whole answers tell players to skip:
mp3 1105, opus 6.5 ms, aac 1024.
"""

import io
import struct
from typing import Protocol

import av
import numpy as np
from av.audio.frame import AudioFrame
from av.audio.stream import AudioStream

from app.audio.formats import Output
from app.pipeline.generation import Floats

FULL_SCALE = 32767
BYTES_PER_SAMPLE = 2
WAV_HEADER_BYTES = 44
UNKNOWN_SIZE = 0xFFFFFFFF  # as ffmpeg writes to a pipe and OpenAI sends; readers go on to the end of the data
PCM_FORMAT_TAG = 1
PAGE_US = 20_000  # of an Ogg page, so that each Opus packet leaves at once

STREAM_OPTIONS = {
    "mp3": {"write_xing": "0", "id3v2_version": "0"},  # both come before the sound, and are of the whole
    "ogg": {"page_duration": str(PAGE_US)},
}


class Encoder(Protocol):
    """Mono float32 samples to one format."""

    def push(self, samples: Floats) -> bytes:
        """What can be sent after the next samples."""
        ...

    def finish(self) -> bytes:
        """The rest."""
        ...

    def close(self) -> None:
        """Let the codec go. Idempotent."""
        ...


def encoder(output: Output, streamed: bool) -> Encoder:
    """An encoder of its own for one answer."""
    if output.format.codec:
        return _CodecEncoder(output, streamed)
    return _PlainEncoder(output, streamed)


def to_s16(samples: Floats) -> np.ndarray[tuple[int, ...], np.dtype[np.int16]]:
    """Round(32767 * clip(x, -1, 1)): symmetric, so that silence is exactly 0."""
    return np.rint(np.clip(samples, -1.0, 1.0) * FULL_SCALE).astype("<i2")


def wav_header(sample_rate: int, pcm_bytes: int | None) -> bytes:
    """RIFF header of mono 16-bit PCM (IBM and Microsoft, Multimedia Data Specifications 1.0).

    Args:
        sample_rate: in Hz.
        pcm_bytes: that follow; None: not known yet.
    """
    data_size = UNKNOWN_SIZE if pcm_bytes is None else pcm_bytes
    riff_size = UNKNOWN_SIZE if pcm_bytes is None else WAV_HEADER_BYTES - 8 + pcm_bytes
    return struct.pack(
        "<4sI4s4sIHHIIHH4sI",
        b"RIFF",
        riff_size,
        b"WAVE",
        b"fmt ",
        16,
        PCM_FORMAT_TAG,
        1,
        sample_rate,
        sample_rate * BYTES_PER_SAMPLE,
        BYTES_PER_SAMPLE,
        8 * BYTES_PER_SAMPLE,
        b"data",
        data_size,
    )


class _PlainEncoder:
    """16-bit samples, with a WAV header or without."""

    def __init__(self, output: Output, streamed: bool) -> None:
        self._output = output
        self._header = output.format.name == "wav"
        self._streamed = streamed
        self._begun = False
        self._whole: list[bytes] = []

    def push(self, samples: Floats) -> bytes:
        pcm = to_s16(samples).tobytes()
        if self._streamed:
            return self._head(None) + pcm
        self._whole.append(pcm)
        return b""

    def finish(self) -> bytes:
        if self._streamed:
            return self._head(None)
        pcm = b"".join(self._whole)
        return self._head(len(pcm)) + pcm

    def close(self) -> None:
        self._whole.clear()

    def _head(self, pcm_bytes: int | None) -> bytes:
        begun, self._begun = self._begun, True
        return b"" if begun or not self._header else wav_header(self._output.rate, pcm_bytes)


class _Sink:
    """A file that cannot be sought in, and gives what was written to it."""

    def __init__(self) -> None:
        self._written = bytearray()

    def write(self, data: bytes) -> int:
        self._written += data
        return len(data)

    def take(self) -> bytes:
        taken = bytes(self._written)
        self._written.clear()
        return taken


class _CodecEncoder:
    """One of libav's codecs in one of its containers."""

    def __init__(self, output: Output, streamed: bool) -> None:
        made = output.format
        self._rate = output.rate
        self._samples = 0
        self._lossless = made.bit_rate is None
        self._file: _Sink | io.BytesIO = _Sink() if streamed else io.BytesIO()
        options = {"flush_packets": "1", **(STREAM_OPTIONS.get(made.muxer, {}) if streamed else {})}
        self._container = av.open(self._file, "w", format=made.muxer, options=options)
        self._open = True
        stream = self._container.add_stream(made.codec, rate=output.rate, layout="mono")
        assert isinstance(stream, AudioStream)
        self._stream = stream
        if made.bit_rate:
            self._stream.bit_rate = made.bit_rate

    def push(self, samples: Floats) -> bytes:
        if samples.size:
            self._encode(self._frame(samples))
        return self._taken()

    def finish(self) -> bytes:
        if not self._samples:
            self._encode(self._frame(np.zeros(1, np.float32)))  # muxers do not close a file without sound
        self._encode(None)
        self.close()
        return self._file.getvalue() if isinstance(self._file, io.BytesIO) else self._file.take()

    def close(self) -> None:
        if self._open:
            self._open = False
            self._container.close()

    def _frame(self, samples: Floats) -> AudioFrame:
        values = to_s16(samples) if self._lossless else np.clip(samples, -1.0, 1.0)
        frame = AudioFrame.from_ndarray(
            values[None, :], format="s16" if self._lossless else "fltp", layout="mono"
        )
        frame.sample_rate = self._rate
        frame.pts = self._samples
        self._samples += samples.size
        return frame

    def _encode(self, frame: AudioFrame | None) -> None:
        for packet in self._stream.encode(frame):
            self._container.mux(packet)

    def _taken(self) -> bytes:
        return b"" if isinstance(self._file, io.BytesIO) else self._file.take()
