"""Logits and greedy tokens are those of transformers: alone, in a batch, in chunks, from the prefix cache."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.llm import PROMPT_LENGTHS, Engine, Reference, class_of, engine, prompts

CHUNK = 96  # tokens a step: the longer prompts take several, and batches are uneven
WINDOW = 48


@pytest.fixture(scope="module")
def running(flash: Path) -> Iterator[Engine]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_ALLOW_INSECURE_SERIALIZATION", "1")  # a test asks the worker a function
        with engine(flash, max_num_batched_tokens=CHUNK, enable_prefix_caching=True) as started:
            yield started


def test_prompts_exceed_the_window_and_the_chunk() -> None:
    assert max(PROMPT_LENGTHS) > 3 * CHUNK > WINDOW
    assert {WINDOW, WINDOW + 1} < set(PROMPT_LENGTHS)


def test_our_class_runs(running: Engine) -> None:
    found = running.llm.apply_model(class_of)
    assert found == ["models.mimo_v2.causal_lm:MiMoV2FlashForCausalLM"]


def test_alone(running: Engine, reference: Reference) -> None:
    for prompt in prompts():
        assert running.llm.reset_prefix_cache()
        (answer,) = running.answer([prompt])
        assert answer.cached == 0
        reference.check(answer)


def test_batch_of_eight(running: Engine, reference: Reference) -> None:
    assert running.llm.reset_prefix_cache()
    for answer in running.answer(prompts()):
        reference.check(answer)


def test_prefix_cache(running: Engine, reference: Reference) -> None:
    longest = prompts()[-1]
    running.answer([longest])
    (again,) = running.answer([longest])
    assert again.cached > 0
    reference.check(again)
    (longer,) = running.answer([longest + prompts()[3]])
    assert longer.cached > 0
    reference.check(longer)
