"""Language: MiMoV2 in the service against vLLM's own class in it, and against transformers.

The same requests, greedy and of fixed length, in turn to each contender, round by round; medians of the
rounds. Seconds on a shared machine say little; the ratios are of one run.

| contender | |
|---|---|
| own | the service, all requests at once |
| vllm | the same with `LLM_CLASSES=vllm`; on a GPU only, since vLLM's class needs Triton |
| own, drafts | the same as `own` with `LLM_DRAFT_TOKENS=1` |
| transformers, batch | `generate` on all requests at once |
| transformers, singly | `generate` on one after the other |
"""

import argparse
import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import httpx
import torch
from transformers import AutoModelForCausalLM

from bench.service import service
from models.mimo_v2.make_checkpoint import make_checkpoint

# Of a model that is small enough for two cores, and large enough that they compute most of the time.
SIZES: dict[str, object] = {
    "hidden_size": 512,
    "intermediate_size": 1536,
    "num_attention_heads": 8,
    "swa_num_attention_heads": 8,
    "num_hidden_layers": 12,
    "hybrid_layer_pattern": [0, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 0],  # transformers knows no other
    "moe_layer_freq": [0] + [1] * 11,
    "n_routed_experts": 16,
    "num_experts_per_tok": 4,
    "moe_intermediate_size": 256,
}
PROMPT_TOKENS = 64
FIRST_PLAIN_TOKEN, VOCABULARY = 7, 312  # of the tiny tokenizer: neither control tokens nor unused ones
OWN, IN_TREE, DRAFTS = "own", "vllm", "own, drafts"
BATCH, SINGLY = "transformers, batch", "transformers, singly"
SETTINGS: dict[str, dict[str, str]] = {
    OWN: {},
    IN_TREE: {"LLM_CLASSES": "vllm"},
    DRAFTS: {"LLM_DRAFT_TOKENS": "1"},
}

Contender = Callable[[], None]


class Served:
    """A service to which all requests go at once."""

    def __init__(self, url: str, prompts: Sequence[list[int]], tokens: int) -> None:
        self._url = url
        self._prompts = prompts
        self._tokens = tokens

    def __call__(self) -> None:
        """Answer them all."""
        asyncio.run(self._answer_all())

    async def _answer_all(self) -> None:
        async with httpx.AsyncClient(base_url=self._url, timeout=600) as client:
            await asyncio.gather(*(self._answer(client, prompt) for prompt in self._prompts))

    async def _answer(self, client: httpx.AsyncClient, prompt: list[int]) -> None:
        body = {"prompt": prompt, "max_tokens": self._tokens, "temperature": 0, "ignore_eos": True}
        answer = (await client.post("/v1/completions", json=body)).raise_for_status().json()
        assert answer["usage"]["completion_tokens"] == self._tokens


class Transformers:
    """`generate` on batches of requests of equal length."""

    def __init__(
        self, model: AutoModelForCausalLM, prompts: Sequence[list[int]], tokens: int, batch: int
    ) -> None:
        self._model = model
        self._batches = [torch.tensor(prompts[i : i + batch]) for i in range(0, len(prompts), batch)]
        self._tokens = tokens

    def __call__(self) -> None:
        """Answer them all."""
        for batch in self._batches:
            answer = self._model.generate(
                batch,
                attention_mask=torch.ones_like(batch),
                max_new_tokens=self._tokens,
                min_new_tokens=self._tokens,
                do_sample=False,
                pad_token_id=0,
            )
            assert answer.shape == (len(batch), PROMPT_TOKENS + self._tokens)


def measure(contenders: Mapping[str, Contender], rounds: int) -> dict[str, float]:
    """Median seconds of each, by name, after a round that is not counted."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds + 1):
        for name, contender in contenders.items():
            began = time.perf_counter()
            contender()
            if number:
                seconds[name].append(time.perf_counter() - began)
    return {name: median(values) for name, values in seconds.items()}


def bench(arguments: argparse.Namespace, scratch: Path) -> dict[str, object]:
    """Measure, and give the figures."""
    checkpoint = scratch / "checkpoint"
    make_checkpoint(checkpoint, "flash", fields=SIZES)
    generator = torch.Generator().manual_seed(0)
    prompts = torch.randint(
        FIRST_PLAIN_TOKEN, VOCABULARY, (arguments.requests, PROMPT_TOKENS), generator=generator
    ).tolist()
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32).eval()
    contenders: dict[str, Contender] = {
        BATCH: Transformers(model, prompts, arguments.tokens, arguments.requests),
        SINGLY: Transformers(model, prompts, arguments.tokens, 1),
    }
    with ExitStack() as stack:
        for name, settings in SETTINGS.items():
            if name == IN_TREE and not torch.cuda.is_available():
                continue
            url = stack.enter_context(
                service(
                    scratch / f"{name}.log",
                    **{
                        "SPEECH_MODEL": "none",
                        "LLM_MODEL": str(checkpoint),
                        "LLM_DTYPE": "float32",
                        "LLM_KV_CACHE_BYTES": "256MiB",
                        "LLM_PREFIX_CACHING": "false",  # else all rounds but the first would skip the prompts
                        **settings,
                    },
                )
            )
            contenders[name] = Served(url, prompts, arguments.tokens)
        seconds = measure(contenders, arguments.rounds)
    total = arguments.requests * arguments.tokens
    return {
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "requests": arguments.requests,
        "tokens_per_s": {name: round(total / value, 1) for name, value in seconds.items()},
        "own_to": {name: round(value / seconds[OWN], 2) for name, value in seconds.items() if name != OWN},
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what can be chosen."""
    parser.add_argument("--requests", type=int, default=8, help="at once (default 8)")
    parser.add_argument("--tokens", type=int, default=64, help="of each answer (default 64)")
    parser.add_argument("--rounds", type=int, default=5, help="counted (default 5)")


def run(arguments: argparse.Namespace) -> None:
    """Measure and print."""
    with TemporaryDirectory() as scratch:
        print(json.dumps(bench(arguments, Path(scratch)), indent=1))  # noqa: T201 (the result)
