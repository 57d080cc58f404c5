"""From settings to a pipeline that can speak. What it imports is heavy, so it imports when it is called.

The engine's processes are spawned, not forked: a fork of this process would hold the listening socket, and
would copy its threads' locks.
"""

import asyncio
import importlib
import logging
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

from app.errors import EngineDead
from app.pipeline.generation import EngineOptions
from app.pipeline.speech import SpeechPipeline
from app.settings import Settings
from models.plugin import why_invisible
from models.voxcpm2.tokenizer import TextTokenizer

CPU_KV_CACHE_BYTES = 2**30  # vLLM's own default on a CPU is a share of all memory

logger = logging.getLogger(__name__)

Report = Callable[[str], None]
StartPipeline = Callable[[Settings, Report], Awaitable[SpeechPipeline]]


async def start_pipeline(settings: Settings, report: Report) -> SpeechPipeline:
    """Load the checkpoint that the settings name into a new engine; `report` hears of each stage.

    Raises:
        CheckpointError: the checkpoint cannot be had or used.
        EngineDead: the engine did not start.
    """
    if reason := why_invisible():
        raise EngineDead(f"vLLM's processes would not find the speech model: {reason}")
    report("resolving checkpoint")
    checkpoint = await asyncio.to_thread(_checkpoint, settings)
    report("loading vLLM")
    os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "spawn"
    await asyncio.to_thread(importlib.import_module, "app.pipeline.engine")

    from app.pipeline.engine import SpeechEngine  # noqa: PLC0415

    tokenizer = await asyncio.to_thread(TextTokenizer.from_checkpoint, checkpoint)
    report("starting engine")
    engine = await SpeechEngine.start(
        checkpoint,
        EngineOptions(
            max_num_seqs=settings.speech_max_num_seqs,
            max_num_batched_tokens=settings.speech_max_num_batched_tokens,
            max_model_len=settings.speech_max_model_len,
            kv_cache_bytes=_kv_cache_bytes(settings),
            gpu_memory_utilization=settings.speech_gpu_memory_utilization,
            tensor_parallel_size=settings.speech_tensor_parallel_size,
            dtype=settings.speech_dtype,
            prefix_caching=settings.speech_prefix_caching,
        ),
    )
    return SpeechPipeline(engine, tokenizer)


def _checkpoint(settings: Settings) -> Path:
    from app.pipeline.checkpoint import resolve_checkpoint  # noqa: PLC0415
    from models.voxcpm2.make_checkpoint import default_checkpoint  # noqa: PLC0415

    if settings.speech_model:
        return resolve_checkpoint(settings.speech_model, settings.speech_model_revision)
    logger.warning(
        "SPEECH_MODEL is not set: a tiny random model answers with NOISE, for trying the interfaces; "
        "set SPEECH_MODEL=openbmb/VoxCPM2 for speech"
    )
    return default_checkpoint(settings.voxserve_cache_dir)


def _kv_cache_bytes(settings: Settings) -> int | None:
    import torch  # noqa: PLC0415

    on_cpu = not torch.cuda.is_available()
    return settings.speech_kv_cache_bytes or (CPU_KV_CACHE_BYTES if on_cpu else None)
