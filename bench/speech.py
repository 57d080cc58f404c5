"""Speech: what batching is worth. One engine, the same requests one after another and all at once.

Prints audio-seconds per second of both and their ratio, time to first audio, and the real-time factor of a
single stream. Seconds on a shared machine say little; the ratio is of one run.
"""

import argparse
import asyncio
import time
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from app.pipeline.checkpoint import resolve_checkpoint
from app.pipeline.engine import SpeechEngine
from app.pipeline.generation import Generation
from app.pipeline.options import EngineOptions
from app.pipeline.speech import SpeechPipeline, SpeechRequest
from models.voxcpm2.make_checkpoint import make_checkpoint
from models.voxcpm2.tokenizer import TextTokenizer

TEXTS = tuple(
    f"{name} said that the quick brown fox jumps over the lazy dog and runs into the forest."
    for name in ("Anna", "Ben", "Clara", "David", "Emma", "Felix", "Grace", "Henry")
)
KV_CACHE_BYTES = 512 * 2**20


@dataclass(frozen=True)
class Timing:
    """One request: seconds to its first patch and to its end, and seconds of audio."""

    first_audio_s: float
    total_s: float
    audio_s: float


async def measure(pipeline: SpeechPipeline, request: SpeechRequest) -> Timing:
    """Run one request."""
    start = time.perf_counter()
    first, samples = 0.0, 0
    prompt = await pipeline.prepare(request)
    async with aclosing(pipeline.speak(prompt, request.generation)) as patches:
        async for patch in patches:
            first = first or time.perf_counter() - start
            samples += patch.pcm.size
    return Timing(first, time.perf_counter() - start, samples / pipeline.sample_rate)


async def bench(checkpoint: Path, streams: int, patches: int) -> None:
    """Measure and print."""
    engine = await SpeechEngine.start(
        checkpoint, EngineOptions(max_num_seqs=streams, kv_cache_bytes=KV_CACHE_BYTES)
    )
    try:
        pipeline = SpeechPipeline(engine, TextTokenizer.from_checkpoint(checkpoint))
        requests = [
            SpeechRequest(TEXTS[i % len(TEXTS)], Generation(seed=i, min_patches=patches, max_patches=patches))
            for i in range(streams)
        ]
        await measure(pipeline, requests[0])  # the first run pays for allocations
        await engine.reset_prefix_cache()  # else first audio would be that of a computed prefix
        start = time.perf_counter()
        alone = [await measure(pipeline, request) for request in requests]
        alone_s = time.perf_counter() - start
        await engine.reset_prefix_cache()
        start = time.perf_counter()
        together = await asyncio.gather(*(measure(pipeline, request) for request in requests))
        together_s = time.perf_counter() - start
    finally:
        await engine.shutdown()
    wanted = patches * engine.config.patch_output_samples / engine.config.sample_rate
    assert all(timing.audio_s == wanted for timing in (*alone, *together)), (
        "speech ended early: fewer --patches"
    )
    report("one at a time", alone, alone_s)
    report(f"{streams} at once", together, together_s)
    print(f"batching: {alone_s / together_s:.2f} times the audio per second")  # noqa: T201 (the result)


def report(name: str, timings: list[Timing], wall_s: float) -> None:
    """Print one line."""
    audio = sum(timing.audio_s for timing in timings)
    first = median(timing.first_audio_s for timing in timings)
    factor = median(timing.total_s / timing.audio_s for timing in timings)
    print(  # noqa: T201 (the result)
        f"{name:>14}: {audio / wall_s:6.2f} audio-s/s, first audio {first * 1000:5.0f} ms, "
        f"real-time factor {factor:.3f}"
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what can be chosen."""
    parser.add_argument("--model", help="checkpoint directory or hub id; default: a tiny random checkpoint")
    parser.add_argument("--streams", type=int, default=8, help="requests (default 8)")
    parser.add_argument("--patches", type=int, default=40, help="patches of 160 ms each (default 40)")


def run(arguments: argparse.Namespace) -> None:
    """Measure and print."""
    with TemporaryDirectory() as scratch:
        if arguments.model:
            checkpoint = resolve_checkpoint(arguments.model)
        else:
            checkpoint = Path(scratch) / "tiny"
            make_checkpoint(checkpoint)
        asyncio.run(bench(checkpoint, arguments.streams, arguments.patches))
