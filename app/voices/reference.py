"""Conditioning audio: decoded, checked, brought to the AudioVAE's rate, padded, and encoded once.

Reference audio is padded on the right and prompt audio on the left, so that a prompt's last sample is the
last before generated speech. Encoded latents are kept by content hash.
"""

import asyncio
import hashlib
import io
import math
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal, Protocol

import numpy as np
import numpy.typing as npt
import soundfile
import soxr

from app.errors import InvalidRequest
from models.voxcpm2.config import VoxCPM2ModelConfig
from models.voxcpm2.prompt import Patches

MIN_SECONDS = 0.1  # less is no voice
MAX_SECONDS = 60.0  # more adds nothing to a voice, and costs 6.25 positions a second
MAX_CACHED_CLIPS = 256  # of some 10 to 400 kB each
PCM_FORMATS = "WAV, FLAC, OGG or MP3"

Floats = npt.NDArray[np.float32]


class AudioEncoder(Protocol):
    """What encodes: the engine."""

    config: VoxCPM2ModelConfig

    async def encode_audio(self, samples: Floats) -> Patches:
        """Whole patches of mono samples to latents."""
        ...


@dataclass(frozen=True)
class AudioClip:
    """Mono float32 samples at `rate` Hz."""

    samples: Floats
    rate: int


@dataclass(frozen=True)
class StoredClip:
    """A clip that is read only when its latents are not at hand.

    Attributes:
        key: a hash of its content.
        read: gives the clip; called in a thread.
    """

    key: bytes
    read: Callable[[], AudioClip]


def read_clip(source: Path | bytes, param: str | None = None) -> AudioClip:
    """Decode an audio file, mixing channels down.

    Raises:
        InvalidRequest: it is not readable audio, too short or too long, silent or not finite.
    """
    stream: BinaryIO | Path = io.BytesIO(source) if isinstance(source, bytes) else source
    try:
        with soundfile.SoundFile(stream) as file:
            seconds = file.frames / file.samplerate
            if not MIN_SECONDS <= seconds <= MAX_SECONDS:
                raise InvalidRequest(
                    f"the audio lasts {seconds:.2f} s: give between {MIN_SECONDS:g} and {MAX_SECONDS:g} s",
                    param,
                )
            samples = file.read(dtype="float32", always_2d=True).mean(axis=1)
            rate = file.samplerate
    except (soundfile.LibsndfileError, OSError) as error:
        raise InvalidRequest(f"the audio cannot be read ({error}): give {PCM_FORMATS}", param) from error
    if not np.isfinite(samples).all():
        raise InvalidRequest("the audio holds values that are not finite numbers: export it again", param)
    if not samples.any():
        raise InvalidRequest("the audio is silent: record it again", param)
    return AudioClip(samples.astype(np.float32), rate)


def to_patches(clip: AudioClip, config: VoxCPM2ModelConfig, padding: Literal["left", "right"]) -> Floats:
    """Samples at the AudioVAE's input rate, padded with zeros to whole patches.

    The resampler and the length of its result are librosa's, hence the reference implementation's.
    """
    rate = config.audio_vae_config.sample_rate
    samples = clip.samples
    if clip.rate != rate:
        length = math.ceil(samples.size * rate / clip.rate)
        samples = soxr.resample(samples, clip.rate, rate, quality="HQ")[:length]
        samples = np.pad(samples, (0, length - samples.size))
    missing = -samples.size % config.patch_input_samples
    return np.pad(samples, (missing, 0) if padding == "left" else (0, missing)).astype(np.float32)


class ReferenceCache:
    """Latents of conditioning audio, each clip encoded once; the least recently used are forgotten.

    What is kept are tasks, so that requests which come while a clip is being encoded share it.
    """

    def __init__(self, encoder: AudioEncoder) -> None:
        self._encoder = encoder
        self._encodings: OrderedDict[bytes, asyncio.Task[Patches]] = OrderedDict()

    async def encode(self, clip: AudioClip | StoredClip, padding: Literal["left", "right"]) -> Patches:
        """Latents `[patches, patch_size, feat_dim]` of a clip."""
        if isinstance(clip, StoredClip):
            return await self._once(clip.key + padding.encode(), lambda: self._read(clip, padding))
        samples = await asyncio.to_thread(to_patches, clip, self._encoder.config, padding)
        return await self._once(
            hashlib.sha256(samples.tobytes()).digest(), lambda: self._encoder.encode_audio(samples)
        )

    async def _read(self, clip: StoredClip, padding: Literal["left", "right"]) -> Patches:
        whole = await asyncio.to_thread(clip.read)
        return await self._encoder.encode_audio(
            await asyncio.to_thread(to_patches, whole, self._encoder.config, padding)
        )

    async def _once(self, key: bytes, encode: Callable[[], Coroutine[None, None, Patches]]) -> Patches:
        encoding = self._encodings.get(key)
        if encoding is None:
            encoding = asyncio.create_task(encode())
            encoding.add_done_callback(lambda task: self._forget_failure(key, task))
            self._encodings[key] = encoding
            if len(self._encodings) > MAX_CACHED_CLIPS:
                self._encodings.popitem(last=False)
        self._encodings.move_to_end(key)
        return await asyncio.shield(encoding)

    def _forget_failure(self, key: bytes, task: asyncio.Task[Patches]) -> None:
        if task.cancelled() or task.exception() is not None:
            self._encodings.pop(key, None)
