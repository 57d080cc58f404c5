"""Clips as files: mono FLAC of 24 bits, which holds 16- and 24-bit recordings exactly, mixed down or not.

A clip's key is a hash of the samples as they come back from the file, so that equal recordings have equal
keys whatever they were uploaded as, and a file that was changed is noticed.
"""

import hashlib
import io
from pathlib import Path

import numpy as np
import numpy.typing as npt
import soundfile

from app.voices.records import ClipRecord
from app.voices.reference import AudioClip

SCALE = 2**23  # full scale of 24-bit samples
SHIFT = 8  # libsndfile takes and gives them in the upper bits of 32
SUBTYPE = "PCM_24"


class DamagedClip(Exception):
    """The file is not what was stored."""


def to_flac(clip: AudioClip) -> tuple[bytes, ClipRecord]:
    """The file of a clip, and what to remember of it. Samples beyond full scale are clipped."""
    values = np.rint(np.clip(clip.samples.astype(np.float64) * SCALE, -SCALE, SCALE - 1)).astype(np.int32)
    stream = io.BytesIO()
    soundfile.write(stream, values << SHIFT, clip.rate, SUBTYPE, format="FLAC")
    flac = stream.getvalue()
    record = ClipRecord(key=_key(values, clip.rate), rate=clip.rate, frames=values.size, size=len(flac))
    return flac, record


def read_flac(path: Path, record: ClipRecord) -> AudioClip:
    """The clip of a file.

    Raises:
        FileNotFoundError: it is gone.
        DamagedClip: it cannot be read, or holds something else.
    """
    data = path.read_bytes()
    try:
        shifted, rate = soundfile.read(io.BytesIO(data), dtype="int32")
    except soundfile.LibsndfileError as error:
        raise DamagedClip(f"{path} cannot be read: {error.error_string}") from error
    values = shifted >> SHIFT
    if _key(values, rate) != record.key:
        raise DamagedClip(f"{path} does not hold what was stored in it")
    return AudioClip((values / SCALE).astype(np.float32), rate)


def _key(values: npt.NDArray[np.int32], rate: int) -> str:
    return hashlib.sha256(rate.to_bytes(4, "little") + values.astype("<i4").tobytes()).hexdigest()
