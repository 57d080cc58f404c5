"""vLLM engines for a MiMoV2 checkpoint, and transformers' model of the same weights to compare with."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM
from vllm import LLM, SamplingParams

from models.mimo_v2.make_tokenizer import VOCAB_SIZE
from models.plugin import register
from tests.support.mimo_v2 import ENGINE_ARGUMENTS

NEW_TOKENS = 64
PROMPT_LENGTHS = (1, 2, 31, 48, 49, 100, 200, 300)
TOLERANCE = 2e-4  # of logits, whose standard deviation is about 2
KV_CACHE_BYTES = 256 * 2**20


@dataclass(frozen=True)
class Answer:
    """What an engine said to one prompt."""

    prompt: list[int]
    tokens: list[int]
    logits: Tensor  # float32 [tokens, vocabulary]
    cached: int  # prompt tokens found in the prefix cache


class Engine:
    """A synchronous engine that returns raw logits."""

    def __init__(self, llm: LLM) -> None:
        self.llm = llm

    def answer(self, prompts: Sequence[list[int]]) -> list[Answer]:
        """Greedy answers to prompts that run together."""
        parameters = SamplingParams(
            temperature=0, max_tokens=NEW_TOKENS, logprobs=VOCAB_SIZE, ignore_eos=True, detokenize=False
        )
        outputs = self.llm.generate(
            [{"prompt_token_ids": prompt} for prompt in prompts], parameters, use_tqdm=False
        )
        return [self._answer(output) for output in outputs]

    def tokens(self, prompts: Sequence[list[int]]) -> list[list[int]]:
        """The same without logits."""
        parameters = SamplingParams(temperature=0, max_tokens=NEW_TOKENS, ignore_eos=True, detokenize=False)
        outputs = self.llm.generate(
            [{"prompt_token_ids": prompt} for prompt in prompts], parameters, use_tqdm=False
        )
        return [list(output.outputs[0].token_ids) for output in outputs]

    def metric(self, name: str) -> int:
        """A counter of the engine's."""
        return sum(metric.value for metric in self.llm.get_metrics() if metric.name == f"vllm:{name}")

    @staticmethod
    def _answer(output: Any) -> Answer:
        completion = output.outputs[0]
        logits = torch.tensor(
            [[step[token].logprob for token in range(VOCAB_SIZE)] for step in completion.logprobs]
        )
        return Answer(
            list(output.prompt_token_ids), list(completion.token_ids), logits, output.num_cached_tokens or 0
        )


@contextmanager
def engine(checkpoint: Path, **arguments: Any) -> Iterator[Engine]:
    """A float32 engine, stopped at the end."""
    register()
    llm = LLM(
        str(checkpoint),
        **{
            **ENGINE_ARGUMENTS,
            "kv_cache_memory_bytes": KV_CACHE_BYTES,
            "block_size": 32,
            "max_num_seqs": 8,
            "max_logprobs": VOCAB_SIZE,
            "logprobs_mode": "raw_logits",
            "disable_log_stats": False,
            **arguments,
        },
    )
    try:
        yield Engine(llm)
    finally:
        llm.llm_engine.engine_core.shutdown()


def class_of(model: object) -> str:
    """The worker's answer to which class it runs."""
    return f"{type(model).__module__}:{type(model).__name__}"


def prompts() -> list[list[int]]:
    """Random prompts, the same every time."""
    generator = torch.Generator().manual_seed(7)
    return [torch.randint(7, 312, (length,), generator=generator).tolist() for length in PROMPT_LENGTHS]


class Reference:
    """transformers' implementation."""

    def __init__(self, checkpoint: Path) -> None:
        self._model = AutoModelForCausalLM.from_pretrained(
            checkpoint, dtype=torch.float32, attn_implementation="eager"
        ).eval()

    def logits(self, prompt: list[int], tokens: list[int]) -> Tensor:
        """Float32 [tokens, vocabulary]: those from which each of `tokens` would be drawn."""
        with torch.no_grad():
            return self._model(torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 : -1]

    def check(self, answer: Answer) -> None:
        """Assert that an answer is the reference's: its logits, and the greedy choice at every step."""
        expected = self.logits(answer.prompt, answer.tokens)
        difference = (answer.logits - expected).abs().max().item()
        assert difference <= TOLERANCE, f"logits differ by {difference} after {len(answer.prompt)} tokens"
        assert expected.argmax(dim=-1).tolist() == answer.tokens
