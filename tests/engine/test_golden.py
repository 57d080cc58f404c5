"""The reference implementation's numbers, through the asynchronous engine."""

import asyncio

import numpy as np
import pytest

from app.pipeline.speech import SpeechPipeline
from tests.support.golden import INDEX, TOLERANCE, golden
from tests.support.workload import Spoken, golden_request, speak


def assert_golden(got: Spoken, name: str, audio: str) -> None:
    expected = golden(name)
    assert len(got.latents) == len(expected.latents)
    for field, values in (("latents", got.latents), ("stop_logits", got.stop_logits), (audio, got.pcm)):
        np.testing.assert_allclose(
            values, getattr(expected, field), rtol=0, atol=TOLERANCE, err_msg=f"{name}: {field}"
        )


@pytest.mark.parametrize("name", INDEX)
async def test_prompt_ids_and_conditioning(pipeline: SpeechPipeline, name: str) -> None:
    prompt = await pipeline.prepare(golden_request(name))
    expected = golden(name)
    ids, is_audio = np.array(prompt.token_ids), expected.is_audio
    np.testing.assert_array_equal(ids[~is_audio], expected.prompt_token_ids[~is_audio])
    assert (ids[is_audio] >= pipeline.engine.config.lm_config.vocab_size).all()
    np.testing.assert_allclose(prompt.latents, expected.prompt_latents[is_audio], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("name", INDEX)
async def test_alone(pipeline: SpeechPipeline, name: str) -> None:
    assert_golden(await speak(pipeline, golden_request(name)), name, "audio_full")


@pytest.mark.parametrize("name", INDEX)
async def test_cold_decoder_equals_the_reference_stream(pipeline: SpeechPipeline, name: str) -> None:
    assert_golden(await speak(pipeline, golden_request(name, context_patches=0)), name, "audio_streaming")


async def test_all_at_once(pipeline: SpeechPipeline) -> None:
    answers = await asyncio.gather(*(speak(pipeline, golden_request(name)) for name in INDEX))
    for name, answer in zip(INDEX, answers, strict=True):
        assert_golden(answer, name, "audio_full")
