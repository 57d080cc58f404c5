"""Another tempo at the same pitch, for audio that comes in pieces, by libav's `atempo`.

The filter gets blocks of one size, since where its input ends makes a small difference to what it says.
"""

import math
from fractions import Fraction

import av
import numpy as np
from av.audio.frame import AudioFrame
from av.filter.graph import Graph

from app.pipeline.generation import Floats

BLOCK_SAMPLES = 1024  # 21 ms at 48 kHz
MAX_FACTOR = 2.0  # of one filter; beyond it would drop samples instead of blending them


class Stretch:
    """Mono float32 at `rate` Hz, `speed` times as fast. At 1 it changes nothing."""

    def __init__(self, rate: int, speed: float) -> None:
        self._rate = rate
        self._graph = _graph(rate, speed) if speed != 1 else None
        self._waiting = np.empty(0, np.float32)
        self._samples = 0

    def push(self, samples: Floats) -> Floats:
        """What can be said after the next samples."""
        if self._graph is None:
            return samples
        waiting = np.concatenate((self._waiting, samples))
        whole = waiting.size - waiting.size % BLOCK_SAMPLES
        for start in range(0, whole, BLOCK_SAMPLES):
            self._feed(self._graph, waiting[start : start + BLOCK_SAMPLES])
        self._waiting = waiting[whole:]
        return self._pull(self._graph)

    def finish(self) -> Floats:
        """The rest."""
        if self._graph is None or not self._samples + self._waiting.size:
            return np.empty(0, np.float32)
        if self._waiting.size:
            self._feed(self._graph, self._waiting)
        self._graph.push(None)
        return self._pull(self._graph)

    def _feed(self, graph: Graph, samples: Floats) -> None:
        frame = AudioFrame.from_ndarray(samples[None, :], format="fltp", layout="mono")
        frame.sample_rate = self._rate
        frame.time_base = Fraction(1, self._rate)
        frame.pts = self._samples
        self._samples += samples.size
        graph.push(frame)

    @staticmethod
    def _pull(graph: Graph) -> Floats:
        pieces: list[Floats] = []
        while True:
            try:
                frame = graph.pull()
            except (av.BlockingIOError, av.EOFError):
                break
            assert isinstance(frame, AudioFrame)
            pieces.append(frame.to_ndarray().reshape(-1).astype(np.float32, copy=False))
        return np.concatenate(pieces) if pieces else np.empty(0, np.float32)


def _graph(rate: int, speed: float) -> Graph:
    """As many filters as keep each within its range."""
    count = max(1, math.ceil(abs(math.log(speed, MAX_FACTOR))))
    graph = Graph()
    source = graph.add_abuffer(sample_rate=rate, format="fltp", layout="mono", time_base=Fraction(1, rate))
    filters = [graph.add("atempo", repr(speed ** (1 / count))) for _ in range(count)]
    plain = graph.add("aformat", "sample_fmts=flt:channel_layouts=mono")
    graph.link_nodes(source, *filters, plain, graph.add("abuffersink")).configure()
    return graph
