"""What the engines' builders share: vLLM's arguments by our options, and the cores of a CPU."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import Any

from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.platforms import current_platform
from vllm.v1.engine.async_llm import AsyncLLM

from app.pipeline.options import EngineOptions

THREADS_BIND = "VLLM_CPU_OMP_THREADS_BIND"
CPU_BLOCK_SIZE = 32  # the smallest the CPU kernels take; vLLM's 128 would leave most prefixes uncached


def shared_arguments(options: EngineOptions) -> dict[str, Any]:
    """The arguments of `AsyncEngineArgs` that mean the same to every engine."""
    on_cpu = current_platform.is_cpu()
    optional: dict[str, Any] = {
        "max_num_batched_tokens": options.max_num_batched_tokens,
        "max_model_len": options.max_model_len,
        "kv_cache_memory_bytes": options.kv_cache_bytes,
        "block_size": options.block_size or (CPU_BLOCK_SIZE if on_cpu else None),
        "num_gpu_blocks_override": options.num_kv_blocks,
        "device_ids": list(options.devices) if options.devices and not on_cpu else None,
    }
    return {
        "max_num_seqs": options.max_num_seqs,
        "gpu_memory_utilization": options.gpu_memory_utilization,
        "tensor_parallel_size": options.tensor_parallel_size,
        "enable_prefix_caching": options.prefix_caching,
        **{name: value for name, value in optional.items() if value is not None},
    }


def build(arguments: AsyncEngineArgs, options: EngineOptions, ranks: int = 1) -> AsyncLLM:
    """Start the engine's processes and wait for them, in a thread that may be blocked for minutes.

    Args:
        arguments: complete.
        options: those behind them.
        ranks: workers beside those of tensor parallelism, as a factor.
    """
    os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "0"  # our runner mixin extends the V1 runner, on CPU and CUDA
    with contextlib.ExitStack() as stack:
        if current_platform.is_cpu():
            stack.enter_context(_on_cores(options.cores))
            stack.enter_context(_cores_dealt(options.tensor_parallel_size * ranks))
        return AsyncLLM.from_engine_args(arguments)


@contextlib.contextmanager
def _on_cores(cores: Sequence[int] | None) -> Iterator[None]:
    """Confine this thread, hence the processes that it starts: vLLM binds them to the cores they may use."""
    if cores is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextlib.contextmanager
def _cores_dealt(ranks: int) -> Iterator[None]:
    """Deal this thread's cores to the ranks of an engine that starts: vLLM wants a NUMA node each.

    Other engines must not start meanwhile: the variable is the whole process's.
    """
    if ranks == 1 or THREADS_BIND in os.environ:
        yield
        return
    cores = sorted(os.sched_getaffinity(0))
    os.environ[THREADS_BIND] = "|".join(",".join(map(str, cores[rank::ranks])) for rank in range(ranks))
    try:
        yield
    finally:
        del os.environ[THREADS_BIND]
