"""Two ranks say what one says."""

import asyncio
from collections.abc import AsyncIterator

import pytest_asyncio

from app.pipeline.options import EngineOptions
from app.pipeline.speech import SpeechPipeline
from tests.engine.conftest import KV_CACHE_BYTES, MAX_NUM_SEQS, start
from tests.support.workload import Spoken, assert_same, mixed_requests, speak


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def two_ranks() -> AsyncIterator[SpeechPipeline]:
    started = await start(
        EngineOptions(max_num_seqs=MAX_NUM_SEQS, kv_cache_bytes=KV_CACHE_BYTES, tensor_parallel_size=2)
    )
    yield started
    await started.engine.shutdown()


async def test_tensor_parallel(two_ranks: SpeechPipeline, alone: list[Spoken]) -> None:
    assert len(await two_ranks.engine.stats()) == 2
    answers = await asyncio.gather(*(speak(two_ranks, request) for request in mixed_requests()))
    for answer, expected in zip(answers, alone, strict=True):
        assert_same(answer, expected)
