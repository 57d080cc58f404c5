"""From a request to patches on a fake engine: refusals, the four layouts, and streams that are left early."""

from contextlib import aclosing

import numpy as np
import pytest

from app.errors import InvalidRequest
from app.pipeline.generation import Generation
from app.pipeline.speech import SpeechPipeline, SpeechRequest
from app.voices.reference import AudioClip
from models.voxcpm2.content_ids import prompt_ids
from models.voxcpm2.prompt import (
    AUDIO_START,
    REFERENCE_END,
    REFERENCE_START,
    AudioSpan,
    Patches,
    Prompt,
)
from models.voxcpm2.tokenizer import TextTokenizer
from tests.support.fake_engine import FakeEngine
from tests.support.golden import CHECKPOINT

PATCH = 2560  # samples of one patch at 16 kHz
TEXT, PROMPT_TEXT = "Hello world.", "The quick brown fox. "
GENERATION = Generation(seed=3)
# One and a half patches of constant samples, of which the fake makes patches of their mean.
VOICE = AudioClip(np.full(PATCH + PATCH // 2, 0.5, np.float32), 16000)
SAID = AudioClip(np.full(PATCH + PATCH // 2, 0.25, np.float32), 16000)


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture(scope="module")
def tokenize() -> TextTokenizer:
    return TextTokenizer.from_checkpoint(CHECKPOINT)


@pytest.fixture
def pipeline(engine: FakeEngine, tokenize: TextTokenizer) -> SpeechPipeline:
    return SpeechPipeline(engine, tokenize)


def request(
    text: str = TEXT,
    reference: AudioClip | None = None,
    prompt: AudioClip | None = None,
    prompt_text: str = "",
) -> SpeechRequest:
    return SpeechRequest(text, GENERATION, reference, prompt, prompt_text)


def patches(*values: float) -> Patches:
    return np.stack([np.full((4, 16), value, np.float32) for value in values])


def ids(*values: float) -> list[int]:
    return prompt_ids(patches(*values), 512).tolist()


# -- refusals ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", " ", "\n\t \u3000", "\x00\x1b", "\u200b\u200d\ufeff"])
async def test_blank_text(pipeline: SpeechPipeline, engine: FakeEngine, text: str) -> None:
    with pytest.raises(InvalidRequest, match="the text is empty: give at least one word") as caught:
        await pipeline.prepare(request(text, reference=VOICE))
    assert caught.value.param == "input"
    assert not engine.encoded


@pytest.mark.parametrize(("prompt", "prompt_text"), [(SAID, ""), (None, PROMPT_TEXT)])
async def test_prompt_audio_and_its_text_belong_together(
    pipeline: SpeechPipeline, engine: FakeEngine, prompt: AudioClip | None, prompt_text: str
) -> None:
    with pytest.raises(InvalidRequest, match="belong together: give both or neither") as caught:
        await pipeline.prepare(request(reference=VOICE, prompt=prompt, prompt_text=prompt_text))
    assert caught.value.param is None
    assert not engine.encoded


@pytest.mark.parametrize("reference", [None, VOICE])
async def test_the_prompt_must_leave_room_for_speech(
    pipeline: SpeechPipeline, engine: FakeEngine, reference: AudioClip | None
) -> None:
    long = request("fox " * 50, reference)
    positions = len((await pipeline.prepare(long)).token_ids)
    engine.max_model_len = positions + 1
    assert len((await pipeline.prepare(long)).token_ids) == positions
    engine.max_model_len = positions
    message = f"take {positions} positions of the model's {positions}, which leaves none for speech"
    with pytest.raises(InvalidRequest, match=message) as caught:
        await pipeline.prepare(long)
    assert caught.value.param == "input"


# -- layouts -------------------------------------------------------------------------------------------------


async def test_zero_shot(pipeline: SpeechPipeline, tokenize: TextTokenizer) -> None:
    prompt = await pipeline.prepare(request())
    assert prompt.token_ids == [*tokenize(TEXT), AUDIO_START]
    assert (prompt.spans, prompt.latents.shape, prompt.cache_salt) == ((), (0, 4, 16), None)


async def test_reference(pipeline: SpeechPipeline, tokenize: TextTokenizer) -> None:
    prompt = await pipeline.prepare(request(reference=VOICE))
    voice = [REFERENCE_START, *ids(0.5, 0.25), REFERENCE_END]  # padded on the right
    assert prompt.token_ids == [*voice, *tokenize(TEXT), AUDIO_START]
    assert_audio(prompt, patches(0.5, 0.25), AudioSpan(1, 2))


async def test_continuation(pipeline: SpeechPipeline, tokenize: TextTokenizer) -> None:
    prompt = await pipeline.prepare(request(prompt=SAID, prompt_text=PROMPT_TEXT))
    text = tokenize(PROMPT_TEXT + TEXT)
    assert prompt.token_ids == [*text, AUDIO_START, *ids(0.125, 0.25)]  # padded on the left
    assert_audio(prompt, patches(0.125, 0.25), AudioSpan(len(text) + 1, 2))


async def test_reference_and_continuation(pipeline: SpeechPipeline, tokenize: TextTokenizer) -> None:
    prompt = await pipeline.prepare(request(reference=VOICE, prompt=SAID, prompt_text=PROMPT_TEXT))
    voice = [REFERENCE_START, *ids(0.5, 0.25), REFERENCE_END]
    text = tokenize(PROMPT_TEXT + TEXT)
    assert prompt.token_ids == [*voice, *text, AUDIO_START, *ids(0.125, 0.25)]
    assert_audio(
        prompt, patches(0.5, 0.25, 0.125, 0.25), AudioSpan(1, 2), AudioSpan(len(voice) + len(text) + 1, 2)
    )


async def test_one_voice_is_encoded_once(pipeline: SpeechPipeline, engine: FakeEngine) -> None:
    first = await pipeline.prepare(request(reference=VOICE))
    second = await pipeline.prepare(request("Something else.", reference=VOICE))
    assert len(engine.encoded) == 1
    assert first.cache_salt == second.cache_salt


def assert_audio(prompt: Prompt, latents: Patches, *spans: AudioSpan) -> None:
    assert prompt.spans == spans
    np.testing.assert_array_equal(prompt.latents, latents)
    assert prompt.cache_salt


# -- speaking ------------------------------------------------------------------------------------------------


async def test_the_engine_gets_the_prompt_and_the_parameters(
    pipeline: SpeechPipeline, engine: FakeEngine
) -> None:
    prompt = await pipeline.prepare(request())
    spoken = [patch.index async for patch in pipeline.speak(prompt, GENERATION)]
    assert spoken == list(range(6))
    ((got, generation),) = engine.requests
    assert got is prompt
    assert generation is GENERATION


async def test_a_consumer_that_stops_early_closes_the_engines_generator(
    pipeline: SpeechPipeline, engine: FakeEngine
) -> None:
    prompt = await pipeline.prepare(request())
    async with aclosing(pipeline.speak(prompt, GENERATION)) as stream:
        async for patch in stream:
            assert engine.running == 1
            if patch.index == 1:
                break
    assert engine.running == 0, "at once, not when the collector comes by"
    assert engine.made == 2
