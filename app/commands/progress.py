"""The progress of speech: one line that is redrawn on a terminal, and elsewhere written once, at the end."""

import sys
import time
from collections.abc import Callable
from typing import TextIO

REDRAW_INTERVAL_S = 0.1
ERASE_LINE = "\r\x1b[K"


class Progress:
    """Counts patches of all requests that run.

    The real-time factor is seconds of computing per second of audio: below 1 is faster than it plays.
    """

    def __init__(
        self, requests: int, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream = stream or sys.stderr
        self._live = self._stream.isatty()
        self._clock = clock
        self._began = clock()
        self._drawn_at = -REDRAW_INTERVAL_S
        self._requests = requests
        self._done = self._patches = 0
        self._audio_s = 0.0

    def add_patch(self, seconds: float) -> None:
        """Count a patch of audio of that length."""
        self._patches += 1
        self._audio_s += seconds
        if self._live and self._clock() - self._drawn_at >= REDRAW_INTERVAL_S:
            self._draw()

    def end_request(self, message: str) -> None:
        """Count a request that ended, and say how."""
        self._done += 1
        self._erase()
        self._stream.write(f"{message}\n")
        if self._live:
            self._draw()

    def close(self) -> None:
        """Leave the last line standing."""
        self._erase()
        if self._patches:
            self._stream.write(f"{self._line()}\n")
        self._stream.flush()

    def _draw(self) -> None:
        self._drawn_at = self._clock()
        self._stream.write(f"{ERASE_LINE}{self._line()}")
        self._stream.flush()

    def _erase(self) -> None:
        if self._live:
            self._stream.write(ERASE_LINE)

    def _line(self) -> str:
        factor = (self._clock() - self._began) / self._audio_s if self._audio_s else 0.0
        requests = f"{self._done} of {self._requests} requests, " if self._requests > 1 else ""
        audio = f"{self._patches} patches, {self._audio_s:.2f} s of audio"
        return f"{requests}{audio}, real-time factor {factor:.2f}"
