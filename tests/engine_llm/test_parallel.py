"""Two ranks say what one does; on a CPU, each has a core of its own."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.support.llm import TOLERANCE, Answer, Reference, engine, prompts
from tests.support.mimo_v2 import PRO_CONFIG, derive, split_fused_qkv, uniform_scales

CORES = "0|1"  # of each rank


@pytest.fixture
def two_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", CORES)


@pytest.mark.usefixtures("two_ranks")
def test_split_checkpoint(flash: Path, reference: Reference) -> None:
    with engine(flash, tensor_parallel_size=2) as started:
        answers = started.answer(prompts())
    for answer in answers:
        reference.check(answer)


@pytest.mark.usefixtures("two_ranks")
def test_pipeline(flash: Path, reference: Reference) -> None:
    """Compiled, since vLLM gives a pipeline's later stages their buffers on a CPU only then."""
    with engine(flash, pipeline_parallel_size=2, enforce_eager=False) as started:
        answers = started.answer(prompts())
    for answer in answers:
        reference.check(answer)


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_experts(flash: Path, reference: Reference) -> None:
    """vLLM's MoE kernel for CPUs crashes on a part of the experts."""
    with engine(flash, tensor_parallel_size=2, enable_expert_parallel=True) as started:
        answers = started.answer(prompts())
    for answer in answers:
        reference.check(answer)


@pytest.fixture(scope="module")
def fused(pro: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return derive(pro, tmp_path_factory.mktemp("uniform") / "fused", uniform_scales)


@pytest.fixture(scope="module")
def split(fused: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    def take_apart(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        return split_fused_qkv(tensors, PRO_CONFIG)

    return derive(fused, tmp_path_factory.mktemp("uniform") / "split", take_apart)


@pytest.fixture(scope="module")
def expected(fused: Path) -> list[Answer]:
    with engine(fused) as started:
        return started.answer(prompts())


def require_equal(answers: list[Answer], expected: list[Answer]) -> None:
    for ours, theirs in zip(answers, expected, strict=True):
        assert ours.tokens == theirs.tokens
        assert torch.allclose(ours.logits, theirs.logits, rtol=0, atol=TOLERANCE)


def test_fp8_split_on_one_rank(split: Path, expected: list[Answer]) -> None:
    with engine(split) as started:
        require_equal(started.answer(prompts()), expected)


@pytest.mark.usefixtures("two_ranks")
@pytest.mark.parametrize("form", ["fused", "split"])
def test_fp8_on_two_ranks(form: str, expected: list[Answer], request: pytest.FixtureRequest) -> None:
    with engine(request.getfixturevalue(form), tensor_parallel_size=2) as started:
        require_equal(started.answer(prompts()), expected)
