"""Another sample rate, for audio that comes in pieces."""

import numpy as np
import soxr

from app.pipeline.generation import Floats


class Resampler:
    """Mono float32 at `source_rate` Hz to `rate` Hz. Where pieces end makes no difference."""

    def __init__(self, source_rate: int, rate: int) -> None:
        self._stream = (
            soxr.ResampleStream(source_rate, rate, 1, dtype="float32", quality="HQ")
            if source_rate != rate
            else None
        )

    def push(self, samples: Floats) -> Floats:
        """What can be said after the next samples."""
        return self._stream.resample_chunk(samples) if self._stream else samples

    def finish(self) -> Floats:
        """The rest."""
        empty = np.empty(0, np.float32)
        return self._stream.resample_chunk(empty, last=True) if self._stream else empty
