"""One engine for all engine tests, and what it says of each mixed request when that runs alone."""

from collections.abc import AsyncIterator

import pytest_asyncio

from app.pipeline.engine import SpeechEngine
from app.pipeline.options import EngineOptions
from app.pipeline.speech import SpeechPipeline
from models.voxcpm2.tokenizer import TextTokenizer
from tests.support.golden import CHECKPOINT
from tests.support.workload import Spoken, mixed_requests, speak

KV_CACHE_BYTES = 256 * 2**20
MAX_NUM_SEQS = 16


async def start(options: EngineOptions) -> SpeechPipeline:
    """A pipeline on an engine of its own."""
    engine = await SpeechEngine.start(CHECKPOINT, options)
    return SpeechPipeline(engine, TextTokenizer.from_checkpoint(CHECKPOINT))


@pytest_asyncio.fixture(scope="session")
async def pipeline() -> AsyncIterator[SpeechPipeline]:
    """The engine as a service would run it."""
    started = await start(EngineOptions(max_num_seqs=MAX_NUM_SEQS, kv_cache_bytes=KV_CACHE_BYTES))
    yield started
    await started.engine.shutdown()


@pytest_asyncio.fixture(scope="session")
async def alone(pipeline: SpeechPipeline) -> list[Spoken]:
    """Each mixed request run with nothing beside it and no cached prefix."""
    answers = []
    for request in mixed_requests():
        assert await pipeline.engine.reset_prefix_cache()
        answers.append(await speak(pipeline, request))
    return answers
