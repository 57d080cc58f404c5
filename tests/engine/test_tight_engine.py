"""An engine with too little of everything: preemption and chunked prefill change nothing that is heard."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest
import pytest_asyncio

from app.errors import EngineDead
from app.pipeline.generation import Generation, SpeechPatch
from app.pipeline.options import EngineOptions
from app.pipeline.speech import SpeechPipeline, SpeechRequest
from tests.engine.conftest import KV_CACHE_BYTES, MAX_NUM_SEQS, start
from tests.support.workload import Spoken, assert_same, mixed_requests, speak

BLOCK_SIZE = 32
NUM_BLOCKS = 9  # 288 positions, for sixteen requests that need some 900 and grow while they run
END_TIMEOUT_S = 5
MAX_BATCHED_TOKENS = 16  # every mixed prompt is longer


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def tight() -> AsyncIterator[SpeechPipeline]:
    started = await start(
        EngineOptions(
            max_num_seqs=MAX_NUM_SEQS,
            kv_cache_bytes=KV_CACHE_BYTES,
            block_size=BLOCK_SIZE,
            num_kv_blocks=NUM_BLOCKS,
            max_num_batched_tokens=MAX_BATCHED_TOKENS,
            max_model_len=224,
        )
    )
    yield started
    await started.engine.shutdown()


async def test_every_prefill_is_chunked(tight: SpeechPipeline, alone: list[Spoken]) -> None:
    """One request at a time, so that chunking is all that differs."""
    for request, expected in zip(mixed_requests(), alone, strict=True):
        prompt = await tight.prepare(request)
        assert len(prompt.token_ids) > MAX_BATCHED_TOKENS
        assert await tight.engine.reset_prefix_cache()
        assert_same(await speak(tight, request), expected)


async def test_preemption(tight: SpeechPipeline, alone: list[Spoken]) -> None:
    (before,) = await tight.engine.stats()
    answers = await asyncio.gather(*(speak(tight, request) for request in mixed_requests()))
    (after,) = await tight.engine.stats()
    assert after["recomputed_positions"] > before["recomputed_positions"], "nothing was preempted"
    for answer, expected in zip(answers, alone, strict=True):
        assert_same(answer, expected)


async def drain(stream: AsyncIterator[SpeechPatch]) -> None:
    async for _ in stream:
        pass


async def test_shutdown_ends_what_runs(tight: SpeechPipeline) -> None:
    """The last test of this engine."""
    request = SpeechRequest("Hello world. " * 9, Generation(seed=5, min_patches=100, max_patches=100))
    prompt = await tight.prepare(request)
    async with aclosing(tight.speak(prompt, request.generation)) as stream:
        await anext(stream)
        ending = asyncio.create_task(tight.engine.shutdown())
        with pytest.raises(EngineDead):
            await asyncio.wait_for(drain(stream), END_TIMEOUT_S)
    await ending
    with pytest.raises(EngineDead):
        await speak(tight, request)
