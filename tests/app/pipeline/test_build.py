"""What an engine's builder does to this process while an engine starts, and that it undoes it."""

import os
import threading
from collections.abc import Callable, Iterator

import pytest

from app.pipeline import build as builder
from app.pipeline.build import CPU_BLOCK_SIZE, THREADS_BIND, shared_arguments
from app.pipeline.options import EngineOptions, LanguageOptions

CORES = sorted(os.sched_getaffinity(0))


class Started(Exception):
    """In place of an engine."""


@pytest.fixture(autouse=True)
def _on_cpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(builder.current_platform, "is_cpu", lambda: True)
    monkeypatch.delenv(THREADS_BIND, raising=False)
    monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", "1")  # so that what `build` leaves is taken back
    yield
    assert sorted(os.sched_getaffinity(0)) == CORES


def start(monkeypatch: pytest.MonkeyPatch, options: EngineOptions, ranks: int = 1) -> tuple[set[int], str]:
    """The cores and the binding under which the engine's processes would start."""
    seen: list[tuple[set[int], str]] = []

    def from_engine_args(arguments: object) -> object:
        assert arguments is None
        assert os.environ["VLLM_USE_V2_MODEL_RUNNER"] == "0"
        seen.append((os.sched_getaffinity(0), os.environ.get(THREADS_BIND, "")))
        raise Started

    monkeypatch.setattr(builder.AsyncLLM, "from_engine_args", from_engine_args)
    with pytest.raises(Started):
        builder.build(None, options, ranks)  # type: ignore[arg-type]
    return seen[0]


def test_an_engine_without_cores_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    assert start(monkeypatch, EngineOptions()) == (set(CORES), "")


def test_an_engine_starts_on_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    assert start(monkeypatch, EngineOptions(cores=(CORES[-1],))) == ({CORES[-1]}, "")


def test_only_the_thread_that_starts_it_is_confined(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[set[int]] = []

    def from_engine_args(_arguments: object) -> object:
        found.append(os.sched_getaffinity(threading.main_thread().native_id or 0))
        raise Started

    def run() -> None:
        with pytest.raises(Started):
            builder.build(None, EngineOptions(cores=(CORES[0],)))  # type: ignore[arg-type]

    monkeypatch.setattr(builder.AsyncLLM, "from_engine_args", from_engine_args)
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert found == [set(CORES)]


def deal(cores: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that this machine has these."""
    monkeypatch.setattr(builder.os, "sched_getaffinity", lambda _pid: set(cores))
    monkeypatch.setattr(builder.os, "sched_setaffinity", lambda _pid, _cores: None)


@pytest.mark.parametrize(
    ("cores", "options", "ranks", "binding"),
    [
        ((0, 1, 2, 3), EngineOptions(), 1, ""),
        ((0, 1, 2, 3), EngineOptions(tensor_parallel_size=2), 1, "0,2|1,3"),
        ((2, 3, 5), LanguageOptions(tensor_parallel_size=2), 1, "2,5|3"),
        ((0, 1, 2, 3), LanguageOptions(), 2, "0,2|1,3"),
        ((0, 1, 2, 3), LanguageOptions(tensor_parallel_size=2), 2, "0|1|2|3"),
    ],
)
def test_cores_are_dealt_to_ranks(
    cores: tuple[int, ...],
    options: EngineOptions,
    ranks: int,
    binding: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as machine:
        deal(cores, machine)
        assert start(monkeypatch, options, ranks)[1] == binding
    assert THREADS_BIND not in os.environ, "it is taken back, even after an error"


def test_a_users_own_binding_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(THREADS_BIND, "7|8")
    assert start(monkeypatch, EngineOptions(tensor_parallel_size=2))[1] == "7|8"
    assert os.environ[THREADS_BIND] == "7|8"


def test_a_gpu_needs_no_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builder.current_platform, "is_cpu", lambda: False)
    options = EngineOptions(cores=(CORES[0],), tensor_parallel_size=2)
    assert start(monkeypatch, options) == (set(CORES), "")


@pytest.fixture(params=[True, False], ids=["cpu", "gpu"])
def arguments_on(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Callable[[EngineOptions], tuple[bool, dict[str, object]]]:
    monkeypatch.setattr(builder.current_platform, "is_cpu", lambda: request.param)
    return lambda options: (request.param, shared_arguments(options))


def test_what_is_not_set_is_left_to_vllm(
    arguments_on: Callable[[EngineOptions], tuple[bool, dict[str, object]]],
) -> None:
    on_cpu, arguments = arguments_on(EngineOptions())
    assert arguments == {
        "max_num_seqs": 16,
        "gpu_memory_utilization": 0.9,
        "tensor_parallel_size": 1,
        "enable_prefix_caching": True,
    } | ({"block_size": CPU_BLOCK_SIZE} if on_cpu else {})


def test_what_is_set_reaches_vllm(
    arguments_on: Callable[[EngineOptions], tuple[bool, dict[str, object]]],
) -> None:
    on_cpu, arguments = arguments_on(
        EngineOptions(
            max_num_seqs=3,
            max_num_batched_tokens=64,
            max_model_len=128,
            kv_cache_bytes=2**20,
            gpu_memory_utilization=0.3,
            tensor_parallel_size=2,
            block_size=16,
            num_kv_blocks=9,
            prefix_caching=False,
            devices=(4, 5),
            cores=(0,),
        )
    )
    assert arguments == {
        "max_num_seqs": 3,
        "max_num_batched_tokens": 64,
        "max_model_len": 128,
        "kv_cache_memory_bytes": 2**20,
        "gpu_memory_utilization": 0.3,
        "tensor_parallel_size": 2,
        "block_size": 16,
        "num_gpu_blocks_override": 9,
        "enable_prefix_caching": False,
    } | ({} if on_cpu else {"device_ids": [4, 5]})
