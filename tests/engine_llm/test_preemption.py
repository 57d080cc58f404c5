"""Requests that are thrown out of a full KV cache and computed again give the same logits."""

from pathlib import Path

from tests.support.llm import Reference, engine, prompts

SCARCE_BLOCKS = 60  # less than eight requests need, and enough for the longest


def test_preemption(flash: Path, reference: Reference) -> None:
    with engine(flash, num_gpu_blocks_override=SCARCE_BLOCKS, enable_prefix_caching=False) as started:
        long = [prompt for prompt in prompts() if len(prompt) > 40] * 2
        answers = started.answer(long)
        assert started.metric("num_preemptions") > 0
    for answer in answers:
        reference.check(answer)
