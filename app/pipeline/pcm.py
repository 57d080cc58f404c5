"""From patches to 16-bit samples, for every container alike: streamed and whole answers are the same.

A float sample x becomes round(32767 * clip(x, -1, 1)), little-endian. The scale is symmetric, so that full
negative swing is -32767 and silence is exactly 0.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing

import numpy as np
import numpy.typing as npt

from app.pipeline.generation import Generation
from app.pipeline.speech import SpeechPipeline
from models.voxcpm2.prompt import Prompt

FULL_SCALE = 32767
BYTES_PER_SAMPLE = 2

logger = logging.getLogger(__name__)


def to_s16le(samples: npt.NDArray[np.float32]) -> bytes:
    """Mono float samples as signed 16-bit little-endian PCM."""
    return np.rint(np.clip(samples, -1.0, 1.0) * FULL_SCALE).astype("<i2").tobytes()


async def speak_pcm(
    pipeline: SpeechPipeline, prompt: Prompt, generation: Generation
) -> AsyncGenerator[bytes, None]:
    """PCM of a prepared request, a patch at a time, with one line in the log at its end."""
    began = time.monotonic()
    first_s = size = patches = 0.0
    outcome = "failed"
    try:
        async with aclosing(pipeline.speak(prompt, generation)) as stream:
            async for patch in stream:
                pcm = to_s16le(patch.pcm)
                first_s = first_s or time.monotonic() - began
                patches += 1
                size += len(pcm)
                yield pcm
        outcome = "complete"
    except (asyncio.CancelledError, GeneratorExit):
        outcome = "cancelled"
        raise
    finally:
        logger.info(
            "speech %s: %d patches, %.2f s of audio in %.3f s, the first after %.3f s",
            outcome,
            patches,
            size / BYTES_PER_SAMPLE / pipeline.sample_rate,
            time.monotonic() - began,
            first_s,
        )
