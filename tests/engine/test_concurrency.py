"""Requests side by side are each what they are alone; those that leave take nothing with them."""

import asyncio
from contextlib import aclosing

import psutil

from app.pipeline.generation import Generation
from app.pipeline.speech import SpeechPipeline, SpeechRequest
from tests.engine.conftest import MAX_NUM_SEQS
from tests.support.margins import NOISE, load_dense_model, smallest_margin
from tests.support.workload import Spoken, assert_same, mixed_requests, speak

SHORT_REQUESTS = 500
WARM_REQUESTS = 100  # after these, allocators and caches have their final size
FLAT_BYTES = 24 * 2**20  # of growth over 400 requests: 60 kB a request would be a leak of its audio
IDLE_TIMEOUT_S = 10


async def wait_idle(pipeline: SpeechPipeline) -> dict[str, int]:
    """The engine's counters once nobody runs; an abort takes a step to arrive."""
    async with asyncio.timeout(IDLE_TIMEOUT_S):
        while True:
            (stats,) = await pipeline.engine.stats()
            if stats["running"] == 0:
                return stats
            # The engine learns of an ended request in its next step, which a new one brings about.
            await speak(pipeline, SpeechRequest("Hello.", Generation(seed=0, steps=2, max_patches=1)))


async def test_no_request_tosses_a_coin(pipeline: SpeechPipeline, alone: list[Spoken]) -> None:
    """Else a comparison below would fail, or pass, by luck."""
    model = load_dense_model()
    for request, answer in zip(mixed_requests(), alone, strict=True):
        assert smallest_margin(model, await pipeline.prepare(request), answer) > NOISE


async def test_sixteen_mixed_requests(pipeline: SpeechPipeline, alone: list[Spoken]) -> None:
    assert await pipeline.engine.reset_prefix_cache()
    answers = await asyncio.gather(*(speak(pipeline, request) for request in mixed_requests()))
    for answer, expected in zip(answers, alone, strict=True):
        assert_same(answer, expected)


async def test_prefix_cache_hit(pipeline: SpeechPipeline, alone: list[Spoken]) -> None:
    """Warm and cold caches give the same speech; another seed shares the prefix, not the answer."""
    request = long_request(seed=1)
    assert await pipeline.engine.reset_prefix_cache()
    cold = await speak(pipeline, request)
    (before,) = await pipeline.engine.stats()
    warm = await speak(pipeline, request)
    other = await speak(pipeline, long_request(seed=2))
    (after,) = await pipeline.engine.stats()
    assert after["cached_positions"] >= before["cached_positions"] + 2 * 128
    assert_same(warm, cold)
    assert abs(other.latents[0] - cold.latents[0]).max() > 0.01
    for answer, expected in zip(
        await asyncio.gather(*(speak(pipeline, request) for request in mixed_requests())), alone, strict=True
    ):
        assert_same(answer, expected)


def long_request(seed: int) -> SpeechRequest:
    """A voice and a text of more than one KV block."""
    mixed = mixed_requests()[3]
    return SpeechRequest(
        text="The quick brown fox jumps over the lazy dog and runs into the forest. " * 4,
        generation=Generation(seed=seed, max_patches=6),
        reference=mixed.reference,
    )


async def test_cancelling_half(pipeline: SpeechPipeline, alone: list[Spoken]) -> None:
    requests = mixed_requests()

    async def hear_two_patches(request: SpeechRequest) -> None:
        prompt = await pipeline.prepare(request)
        async with aclosing(pipeline.speak(prompt, request.generation)) as stream:
            async for patch in stream:
                if patch.index == 1:
                    return

    stay = [asyncio.create_task(speak(pipeline, request)) for request in requests[::2]]
    leave = [asyncio.create_task(hear_two_patches(request)) for request in requests[1::2]]
    await asyncio.gather(*leave)
    for answer, expected in zip(await asyncio.gather(*stay), alone[::2], strict=True):
        assert_same(answer, expected)
    stats = await wait_idle(pipeline)
    assert stats["free_slots"] == MAX_NUM_SEQS
    assert pipeline.engine.running == 0


async def test_a_cancelled_request_stops_computing(pipeline: SpeechPipeline) -> None:
    request = SpeechRequest("Hello world. " * 12, Generation(seed=5, min_patches=150, max_patches=150))
    prompt = await pipeline.prepare(request)
    (before,) = await pipeline.engine.stats()
    async with aclosing(pipeline.speak(prompt, request.generation)) as stream:
        async for patch in stream:
            if patch.index == 3:
                break
    stats = await wait_idle(pipeline)
    assert stats["patches"] - before["patches"] < 75


async def test_dummy_steps_touch_nobody(pipeline: SpeechPipeline, alone: list[Spoken]) -> None:
    """vLLM runs forwards without requests, to profile and to keep ranks in step."""
    request = mixed_requests()[0]
    answer = asyncio.create_task(speak(pipeline, request))
    while not answer.done():
        await pipeline.engine.run_dummy_step()
    assert_same(await answer, alone[0])


async def test_many_short_requests_leave_nothing(pipeline: SpeechPipeline) -> None:
    gate = asyncio.Semaphore(MAX_NUM_SEQS)

    async def one(seed: int) -> int:
        async with gate:
            return len((await speak(pipeline, SpeechRequest("Hi.", short(seed)))).indices)

    def short(seed: int) -> Generation:
        return Generation(seed=seed, steps=2, max_patches=2)

    def resident() -> int:
        tree = [psutil.Process(), *psutil.Process().children(recursive=True)]
        return sum(process.memory_info().rss for process in tree)

    assert await asyncio.gather(*map(one, range(WARM_REQUESTS))) == [2] * WARM_REQUESTS
    before = resident()
    rest = range(WARM_REQUESTS, SHORT_REQUESTS)
    assert await asyncio.gather(*map(one, rest)) == [2] * len(rest)
    assert resident() - before < FLAT_BYTES
    stats = await wait_idle(pipeline)
    assert stats["free_slots"] == MAX_NUM_SEQS
    assert pipeline.engine.running == 0
