"""Containers of 16-bit mono PCM: WAV, and none.

A streamed WAV cannot know its length, so both of its sizes are 0xFFFFFFFF, as ffmpeg writes to a pipe and
OpenAI sends: readers then go on to the end of the data.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass

from app.pipeline.pcm import BYTES_PER_SAMPLE

WAV_HEADER_BYTES = 44
UNKNOWN_SIZE = 0xFFFFFFFF
PCM_FORMAT_TAG = 1


@dataclass(frozen=True)
class Container:
    """How PCM travels.

    Attributes:
        media_type: its content type.
        header: bytes before the samples, by sample rate in Hz and bytes of PCM (None: not known yet).
        streams: whether answers are streamed where the request does not say.
    """

    media_type: str
    header: Callable[[int, int | None], bytes]
    streams: bool


def wav_header(sample_rate: int, pcm_bytes: int | None) -> bytes:
    """RIFF header of mono 16-bit PCM (IBM and Microsoft, Multimedia Data Specifications 1.0)."""
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


def no_header(sample_rate: int, pcm_bytes: int | None) -> bytes:  # noqa: ARG001 (the signature of a header)
    """Nothing: the rate is announced elsewhere."""
    return b""


CONTAINERS: dict[str, Container] = {
    "wav": Container("audio/wav", wav_header, streams=False),
    "pcm": Container("audio/pcm", no_header, streams=True),
}
