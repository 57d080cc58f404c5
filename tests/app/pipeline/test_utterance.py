"""Utterances of many parts, on a fake engine."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence

import numpy as np
import pytest

from app.errors import GenerationFailed, InvalidRequest
from app.pipeline.generation import Floats, Generation
from app.pipeline.speech import SpeechPipeline, SpeechRequest
from app.pipeline.utterance import ANCHOR_PATCHES, PARTS_AT_ONCE, PAUSES_S, Utterance
from app.text import long_text
from app.voices.reference import AudioClip
from models.voxcpm2.tokenizer import TextTokenizer
from tests.support.fake_engine import FakeEngine
from tests.support.golden import CHECKPOINT
from tests.support.serving import until


def Part(text: str, pause: long_text.Pause = "sentence") -> long_text.Part:  # noqa: N802 (as the class)
    return long_text.Part(text, pause)


CLIP = AudioClip(np.full(16000, 0.5, np.float32), 16000)


def utterance(engine: FakeEngine, **options: object) -> Utterance:
    pipeline = SpeechPipeline(engine, TextTokenizer.from_checkpoint(CHECKPOINT))
    generation = Generation(seed=7, max_patches=int(options.pop("max_patches", 100)))
    return Utterance(pipeline, SpeechRequest("", generation, **options))


async def given(parts: Sequence[long_text.Part]) -> AsyncGenerator[long_text.Part, None]:
    for part in parts:
        yield part


async def spoken(speech: Utterance, parts: AsyncIterator[long_text.Part]) -> Floats:
    return np.concatenate([piece async for piece in speech.speak(parts)])


def expected(engine: FakeEngine, parts: Sequence[long_text.Part], patches: int) -> Floats:
    """What the engine says to each part, with the pauses between."""
    rate = engine.config.sample_rate
    pieces: list[Floats] = []
    for number, part in enumerate(parts):
        pieces += [engine._patch(7 + number, index).pcm for index in range(patches)]
        if number < len(parts) - 1:
            pieces.append(np.zeros(round(PAUSES_S[part.pause] * rate), np.float32))
    return np.concatenate(pieces)


async def test_one_part_is_a_plain_request() -> None:
    engine = FakeEngine(patches=3)
    speech = utterance(engine)
    samples = await spoken(speech, given([Part("Hello.")]))
    np.testing.assert_array_equal(samples, expected(engine, [Part("Hello.")], 3))
    ((prompt, generation),) = engine.requests
    assert generation.seed == 7
    assert prompt.spans == ()
    assert (speech.progress.patches, speech.progress.samples) == (3, samples.size)
    assert speech.text_tokens == len(prompt.token_ids)
    assert speech.progress.first_s is not None


async def test_parts_come_in_order_with_their_pauses() -> None:
    engine = FakeEngine(patches=4)
    parts = [Part("One.", "paragraph"), Part("Two,", "clause"), Part("three", "none"), Part("Four.")]
    samples = await spoken(utterance(engine, reference=CLIP), given(parts))
    np.testing.assert_array_equal(samples, expected(engine, parts, 4))


async def test_first_parts_are_the_voice_of_the_rest() -> None:
    half = ANCHOR_PATCHES // 2 + 1
    engine = FakeEngine(patches=half)
    await spoken(utterance(engine), given([Part(f"Part {number}.") for number in range(4)]))
    latents = [
        np.stack([engine._patch(7 + number, index).latents for index in range(half)]) for number in range(2)
    ]
    references = [prompt.latents for prompt, _ in engine.requests]
    assert len(references[0]) == 0
    np.testing.assert_array_equal(references[1], latents[0])
    for reference in references[2:]:
        np.testing.assert_array_equal(reference, np.concatenate(latents))


async def test_without_an_anchor_yet_parts_wait_for_the_one_before() -> None:
    engine = FakeEngine(patches=2, delay_s=0.01)
    most = 0

    async def watch() -> None:
        nonlocal most
        while True:
            most = max(most, engine.running)
            await asyncio.sleep(0.001)

    watching = asyncio.create_task(watch())
    await spoken(utterance(engine), given([Part("One."), Part("Two."), Part("Three.")]))
    assert most == 1
    await spoken(utterance(engine, reference=CLIP), given([Part(str(n)) for n in range(6)]))
    watching.cancel()
    assert most == PARTS_AT_ONCE


async def test_a_reader_that_does_not_read_holds_the_next_parts_back() -> None:
    engine = FakeEngine(patches=2)
    speech = utterance(engine, reference=CLIP).speak(given([Part(str(number)) for number in range(9)]))
    await anext(speech)
    await asyncio.sleep(0.05)
    assert len(engine.requests) == PARTS_AT_ONCE
    await speech.aclose()


async def test_it_speaks_while_the_text_is_being_written() -> None:
    engine = FakeEngine(patches=2)
    written: asyncio.Queue[long_text.Part] = asyncio.Queue()

    async def parts() -> AsyncGenerator[long_text.Part, None]:
        while (part := await written.get()).text:
            yield part

    heard: list[Floats] = []

    async def listen() -> None:
        async for piece in utterance(engine).speak(parts()):
            heard.append(piece)

    listening = asyncio.create_task(listen())
    written.put_nowait(Part("One."))
    await until(lambda: len(heard) == 2)
    written.put_nowait(Part("Two."))
    await until(lambda: len(heard) == 5)
    written.put_nowait(Part(""))
    await listening


async def test_max_patches_bounds_the_whole() -> None:
    engine = FakeEngine(patches=4)
    speech = utterance(engine, max_patches=6, reference=CLIP)
    await spoken(speech, given([Part("One."), Part("Two."), Part("Three.")]))
    assert speech.progress.patches == 6
    assert engine.running == 0


@pytest.mark.parametrize("heard", [0, 1, 5])
async def test_a_listener_that_leaves_frees_the_engine(heard: int) -> None:
    engine = FakeEngine(patches=4, delay_s=0.001)
    samples = utterance(engine, reference=CLIP).speak(given([Part("One."), Part("Two."), Part("Three.")]))
    for _ in range(heard):
        await anext(samples)
    await samples.aclose()
    assert engine.running == 0


async def test_a_cancelled_listener_frees_the_engine() -> None:
    engine = FakeEngine(patches=400, delay_s=0.001)
    task = asyncio.create_task(spoken(utterance(engine, max_patches=400), given([Part("One two three.")])))
    await until(lambda: engine.running == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert engine.running == 0


async def test_what_cannot_be_spoken_is_told_before_any_samples() -> None:
    with pytest.raises(InvalidRequest, match="empty"):
        await anext(utterance(FakeEngine()).speak(given([Part("  ")])))


async def test_an_error_comes_in_its_place() -> None:
    engine = FakeEngine(patches=4, fail_at=2, error=GenerationFailed("broken"))
    samples = utterance(engine).speak(given([Part("One."), Part("Two.")]))
    assert [(await anext(samples)).size for _ in range(2)] == [engine.config.patch_output_samples] * 2
    with pytest.raises(GenerationFailed, match="broken"):
        await anext(samples)
    assert engine.running == 0


async def test_an_error_of_the_text_is_raised_after_what_came_before() -> None:
    async def parts() -> AsyncGenerator[long_text.Part, None]:
        yield Part("One.")
        raise InvalidRequest("the text ends badly", "input")

    samples = utterance(FakeEngine(patches=3)).speak(parts())
    assert all([(await anext(samples)).any() for _ in range(3)])
    with pytest.raises(InvalidRequest, match="badly"):
        await anext(samples)


async def test_a_description_is_a_prefix() -> None:
    engine = FakeEngine(patches=1)
    await spoken(utterance(engine, description="a calm voice"), given([Part("Hello.")]))
    tokenizer = TextTokenizer.from_checkpoint(CHECKPOINT)
    assert engine.requests[0][0].token_ids[:-1] == tokenizer("(a calm voice)Hello.")


async def test_a_description_is_refused_where_it_would_be_read_aloud() -> None:
    speech = utterance(FakeEngine(), description="calm", prompt=CLIP, prompt_text="So it began.")
    with pytest.raises(InvalidRequest, match="description"):
        await spoken(speech, given([Part("Hello.")]))
