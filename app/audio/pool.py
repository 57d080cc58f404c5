"""Encoding beside the event loop, in a few threads of its own, so that nobody waits for another's codec."""

import asyncio
import threading
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing

from app.audio.encode import encoder
from app.audio.formats import Output
from app.audio.resample import Resampler
from app.audio.stretch import Stretch
from app.pipeline.generation import Floats

WORKERS = 2  # a core encodes hundreds of streams at once


class EncoderPool:
    """Threads that encode."""

    def __init__(self, workers: int = WORKERS) -> None:
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="encoder")

    async def encode(
        self,
        samples: AsyncGenerator[Floats, None],
        source_rate: int,
        output: Output,
        *,
        speed: float = 1.0,
        streamed: bool = True,
    ) -> AsyncGenerator[bytes, None]:
        """Bytes as they come; not streamed, one piece at the end. `samples` are closed in any case."""
        loop = asyncio.get_running_loop()
        chain = await loop.run_in_executor(self._threads, _Chain, source_rate, output, speed, streamed)
        try:
            async with aclosing(samples) as pieces:
                async for piece in pieces:
                    if encoded := await loop.run_in_executor(self._threads, chain.push, piece):
                        yield encoded
            if encoded := await loop.run_in_executor(self._threads, chain.finish):
                yield encoded
        finally:
            self._threads.submit(chain.close)  # not awaited: a cancelled job may still hold the codec

    def shutdown(self) -> None:
        """End the threads once their jobs are done."""
        self._threads.shutdown(wait=False)


class _Chain:
    """Tempo, then rate, then format; used by one thread at a time."""

    def __init__(self, source_rate: int, output: Output, speed: float, streamed: bool) -> None:
        self._stretch = Stretch(source_rate, speed)
        self._resampler = Resampler(source_rate, output.rate)
        self._encoder = encoder(output, streamed)
        self._lock = threading.Lock()

    def push(self, samples: Floats) -> bytes:
        with self._lock:
            return self._encoder.push(self._resampler.push(self._stretch.push(samples)))

    def finish(self) -> bytes:
        with self._lock:
            said = self._encoder.push(self._resampler.push(self._stretch.finish()))
            said += self._encoder.push(self._resampler.finish())
            return said + self._encoder.finish()

    def close(self) -> None:
        with self._lock:
            self._encoder.close()
