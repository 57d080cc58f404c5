"""Speculation with the next-token layer changes no token, and says how often it was right."""

from pathlib import Path

import pytest

from tests.support.llm import NEW_TOKENS, Reference, engine, prompts


@pytest.mark.parametrize("drafts", [1, 3])
def test_speculation_changes_no_token(flash: Path, reference: Reference, drafts: int) -> None:
    speculation = {"method": "mtp", "num_speculative_tokens": drafts}
    with engine(flash, speculative_config=speculation) as started:
        answers = started.tokens(prompts())
        proposed = started.metric("spec_decode_num_draft_tokens")
        accepted = started.metric("spec_decode_num_accepted_tokens")
    for prompt, tokens in zip(prompts(), answers, strict=True):
        assert len(tokens) == NEW_TOKENS
        assert reference.logits(prompt, tokens).argmax(dim=-1).tolist() == tokens
    assert 0 < accepted <= proposed
