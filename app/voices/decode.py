"""Uploaded recordings to mono samples: any common container, any rate, any number of channels.

Nothing that a file says of itself is trusted: reading stops as soon as more has been decoded than is
allowed, so that a small file of hours of silence costs no more than any other. WAV and FLAC are read by
libsndfile, the rest by FFmpeg's libraries, confined to the formats and codecs below: playlists, and whatever
else names files or addresses, are never opened.
"""

import asyncio
import io
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import BinaryIO

import av
import numpy as np
import numpy.typing as npt
import soundfile

from app.errors import InvalidRequest
from app.voices.reference import AudioClip

MIN_RATE, MAX_RATE = 8_000, 192_000  # Hz: telephony, and the most that studios use
SILENT_PEAK = 1e-3  # -60 dB of full scale: below it lies the noise of a room, not a voice
FULL_SCALE = 0.99  # where 8-bit samples end too
MAX_CLIPPED_SHARE = 0.01  # of the samples: speech that was recorded well has none
MIN_WHOLE = 0.25  # seconds that may be missing of what a file announces: encoders count their padding
MAX_BROKEN_PACKETS = (
    4  # an MP3 that was cut out of another starts with some, and tags at its end look like one
)
BLOCK_VALUES = 2**18  # samples of all channels that are decoded at once: 1 MiB
UNSAFE_PLANES = 8  # PyAV 18 reads on after the eighth, whatever is there, and crashes the process
THREADS = 2  # decoders at the same time; others wait their turn

DAMAGED = "it is no recording, or a damaged one"
FORMATS = "WAV, MP3, FLAC, OGG, M4A or WEBM"
DEMUXERS = "wav,flac,mp3,ogg,mov,matroska,aac"
CODECS = (
    "mp3float,mp3,aac,opus,vorbis,flac,alac,"
    "pcm_u8,pcm_s16le,pcm_s16be,pcm_s24le,pcm_s24be,pcm_s32le,pcm_s32be,pcm_f32le,pcm_f32be,pcm_alaw,pcm_mulaw"
)
OPTIONS = {"format_whitelist": DEMUXERS, "codec_whitelist": CODECS, "protocol_whitelist": "none"}
LENGTHLESS = ("mp3", "aac")  # containers whose length is a guess from the bit rate, but for such a tag:
LENGTH_TAGS = (b"Xing", b"Info", b"VBRI")
MICROSECONDS = 1_000_000

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Limits:
    """What a recording may be.

    Attributes:
        max_bytes: of the file.
        min_seconds, max_seconds: of what is in it.
    """

    max_bytes: int
    min_seconds: float
    max_seconds: float


class _Unreadable(Exception):
    """Why a file cannot be read."""


class Decoder:
    """Decodes off the event loop, a few files at a time."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="voice-decoder")

    async def decode(self, file: BinaryIO, param: str) -> AudioClip:
        """Read and decode an uploaded file, which is read only once its turn comes.

        Raises:
            InvalidRequest: as `decode`.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._read, file, param)

    def _read(self, file: BinaryIO, param: str) -> AudioClip:
        return decode(file.read(self.limits.max_bytes + 1), self.limits, param)


def decode(data: bytes, limits: Limits, param: str) -> AudioClip:
    """Decode a recording at its own rate, its channels mixed to their mean.

    Raises:
        InvalidRequest: it is too large, not audio, cut off, too short or too long, or no use as a voice:
            silent, clipped, or not finite. `param` is the field to blame.
    """
    if not data:
        raise InvalidRequest("the file is empty: send a recording", param)
    if len(data) > limits.max_bytes:
        size = limits.max_bytes / 2**20
        raise InvalidRequest(f"the file is larger than {size:g} MiB: shorten or compress it", param)
    mix = _Mix(limits, param)
    try:
        announced = _read_sndfile(data, mix) if _is_wav_or_flac(data) else _read_av(data, mix)
    except _Unreadable as error:
        raise InvalidRequest(f"the audio cannot be read ({error}): give {FORMATS}", param) from error
    return mix.clip(announced)


class _Mix:
    """Mixes blocks of samples down as they come, and refuses what is too much or no use."""

    def __init__(self, limits: Limits, param: str) -> None:
        self._limits = limits
        self._param = param
        self._blocks: list[Floats] = []
        self._rate = 0
        self._frames = self._values = self._clipped = 0

    def add(self, block: Floats, rate: int) -> None:
        """Take `block`, `[frames, channels]`, at `rate` Hz."""
        if self._rate and rate != self._rate:
            raise self._refuse(f"the audio changes from {self._rate} to {rate} Hz: convert it to one rate")
        if not MIN_RATE <= rate <= MAX_RATE:
            raise self._refuse(f"the audio has {rate} samples a second: give {MIN_RATE} to {MAX_RATE}")
        self._rate = rate
        self._frames += len(block)
        if self._seconds > self._limits.max_seconds:
            raise self._refuse(f"the audio lasts more than {self._limits.max_seconds:g} s: {self._bounds}")
        self._values += block.size
        with np.errstate(over="ignore", invalid="ignore"):  # such values are refused, with a message of ours
            self._clipped += int(np.count_nonzero(np.abs(block) >= FULL_SCALE))
            self._blocks.append(block.mean(axis=1, dtype=np.float32))

    def clip(self, announced: float | None) -> AudioClip:
        """All of it, unless it falls short of the seconds that were announced."""
        if not self._frames:
            raise self._refuse("the file holds no sound: send a recording")
        if announced is not None and self._seconds + MIN_WHOLE < announced:
            raise self._refuse(
                f"the file is cut off: it announces {announced:.2f} s and holds {self._seconds:.2f} s; "
                "send all of it"
            )
        if self._seconds < self._limits.min_seconds:
            raise self._refuse(f"the audio lasts {self._seconds:.2f} s: {self._bounds}")
        samples = np.concatenate(self._blocks)
        if not np.isfinite(samples).all():
            raise self._refuse("the audio holds values that are not finite numbers: export it again")
        if np.abs(samples).max() < SILENT_PEAK:
            raise self._refuse("the audio is silent: record it again")
        if self._clipped > MAX_CLIPPED_SHARE * self._values:
            share = 100 * self._clipped / self._values
            raise self._refuse(f"{share:.0f} % of the audio is clipped: record it again at a lower level")
        return AudioClip(samples, self._rate)

    @property
    def _seconds(self) -> float:
        return self._frames / self._rate

    @property
    def _bounds(self) -> str:
        return f"give between {self._limits.min_seconds:g} and {self._limits.max_seconds:g} s"

    def _refuse(self, message: str) -> InvalidRequest:
        return InvalidRequest(message, self._param)


def _is_wav_or_flac(data: bytes) -> bool:
    return (data[:4] == b"RIFF" and data[8:12] == b"WAVE") or data[:4] == b"fLaC"


def _read_sndfile(data: bytes, mix: _Mix) -> float | None:
    """Read WAV or FLAC into `mix`; returns the seconds that a WAV announces, None if it does not say."""
    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            rate, announced = file.samplerate, _announced_by_riff(data, file.frames / file.samplerate)
            at_once = max(1, BLOCK_VALUES // file.channels)
            while (block := file.read(at_once, dtype="float32", always_2d=True)).size:
                mix.add(block, rate)
    except soundfile.LibsndfileError as error:
        raise _Unreadable(DAMAGED) from error
    return announced


def _announced_by_riff(data: bytes, seconds: float) -> float | None:
    """What a WAV file would last if it had all the bytes that its first header speaks of."""
    size = int.from_bytes(data[4:8], "little") + 8
    is_placeholder = size > 2**31 - 2**16  # of a WAV that was streamed, for want of the true size
    return None if data[:4] != b"RIFF" or is_placeholder else seconds * size / len(data)


def _read_av(data: bytes, mix: _Mix) -> float | None:
    """Read any other format into `mix`; returns the seconds that it announces, None if it does not say."""
    try:
        with av.open(io.BytesIO(data), "r", options=OPTIONS, metadata_errors="ignore") as container:
            if not container.streams.audio:
                raise _Unreadable("it has no audio track")
            stream = container.streams.audio[0]
            if stream.codec_context is None or stream.codec_context.name not in CODECS.split(","):
                raise _Unreadable("its audio is of a kind that is not known here")
            for frame in _frames(container, stream):
                mix.add(_to_floats(frame), frame.sample_rate)
            return _announced_by_container(container, stream, data)
    except av.FFmpegError as error:
        raise _Unreadable(DAMAGED) from error


def _frames(
    container: av.container.InputContainer, stream: av.audio.stream.AudioStream
) -> Iterator[av.AudioFrame]:
    broken = 0
    for packet in container.demux(stream):
        try:
            yield from packet.decode()
        except av.InvalidDataError:
            broken += 1
            if broken > MAX_BROKEN_PACKETS:
                raise


def _to_floats(frame: av.AudioFrame) -> Floats:
    """The frame's samples `[frames, channels]`, full scale at 1."""
    if frame.format.is_planar and frame.layout.nb_channels >= UNSAFE_PLANES:
        (frame,) = av.AudioResampler(format=frame.format.packed).resample(frame)
    values = frame.to_ndarray()
    channels = values.T if frame.format.is_planar else values.reshape(frame.samples, -1)
    if channels.dtype.kind == "f":
        with np.errstate(over="ignore"):
            return channels.astype(np.float32)
    half = 2.0 ** (8 * channels.dtype.itemsize - 1)
    offset = half if channels.dtype.kind == "u" else 0.0
    return ((channels - offset) / half).astype(np.float32)


def _announced_by_container(
    container: av.container.InputContainer, stream: av.audio.stream.AudioStream, data: bytes
) -> float | None:
    if container.format.name in LENGTHLESS and not any(tag in data for tag in LENGTH_TAGS):
        return None
    if stream.duration is not None and stream.time_base is not None:
        return float(stream.duration * stream.time_base)
    if container.duration is not None and len(container.streams) == 1:
        return container.duration / MICROSECONDS
    return None
