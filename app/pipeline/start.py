"""From settings to pipelines that can answer. What it imports is heavy, so it imports when it is called.

The engines' processes are spawned, not forked: a fork of this process would hold the listening socket, and
would copy its threads' locks.
"""

import asyncio
import importlib
import logging
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

from app.errors import EngineDead
from app.language.pipeline import LanguagePipeline
from app.lifecycle import Report
from app.pipeline.options import EngineOptions, LanguageOptions
from app.pipeline.resources import Resources, divide
from app.pipeline.speech import SpeechPipeline
from app.settings import Settings
from models.plugin import MIMO_V2_VARIABLE, why_invisible
from models.voxcpm2.tokenizer import TextTokenizer

logger = logging.getLogger(__name__)

StartSpeech = Callable[[Settings, Report], Awaitable[SpeechPipeline]]
StartLanguage = Callable[[Settings, Report], Awaitable[LanguagePipeline]]


async def start_speech(settings: Settings, report: Report) -> SpeechPipeline:
    """Load the checkpoint that `SPEECH_MODEL` names into a new engine; `report` hears of each stage.

    Raises:
        CheckpointError: the checkpoint cannot be had or used.
        EngineDead: the engine did not start.
    """
    report("resolving checkpoint")
    checkpoint = await asyncio.to_thread(_speech_checkpoint, settings)
    await _load_vllm("app.pipeline.engine", report)

    from app.pipeline.engine import SpeechEngine  # noqa: PLC0415

    tokenizer = await asyncio.to_thread(TextTokenizer.from_checkpoint, checkpoint)
    report("starting engine")
    share = _resources(settings).speech
    engine = await SpeechEngine.start(
        checkpoint,
        EngineOptions(
            max_num_seqs=settings.speech_max_num_seqs,
            max_num_batched_tokens=settings.speech_max_num_batched_tokens,
            max_model_len=settings.speech_max_model_len,
            kv_cache_bytes=share.kv_cache_bytes,
            gpu_memory_utilization=share.gpu_memory_utilization,
            devices=share.devices,
            cores=share.cores,
            tensor_parallel_size=settings.speech_tensor_parallel_size,
            dtype=settings.speech_dtype,
            prefix_caching=settings.speech_prefix_caching,
        ),
    )
    return SpeechPipeline(engine, tokenizer)


async def start_language(settings: Settings, report: Report) -> LanguagePipeline:
    """Load the checkpoint that `LLM_MODEL` names into a new engine; `report` hears of each stage.

    Raises:
        CheckpointError: the checkpoint cannot be had.
        EngineDead: the engine did not start.
    """
    assert settings.llm_model is not None
    os.environ[MIMO_V2_VARIABLE] = settings.llm_classes  # before either engine has vLLM load its plug-ins
    report("resolving checkpoint")
    checkpoint = await asyncio.to_thread(
        _language_checkpoint, settings.llm_model, settings.llm_model_revision
    )
    await _load_vllm("app.language.engine", report)

    from app.language.engine import VllmPipeline  # noqa: PLC0415

    report("starting engine")
    share = _resources(settings).language
    return await VllmPipeline.start(
        checkpoint,
        settings.llm_names,
        LanguageOptions(
            max_num_seqs=settings.llm_max_num_seqs,
            max_num_batched_tokens=settings.llm_max_num_batched_tokens,
            max_model_len=settings.llm_max_model_len,
            kv_cache_bytes=share.kv_cache_bytes,
            gpu_memory_utilization=share.gpu_memory_utilization,
            devices=share.devices,
            cores=share.cores,
            tensor_parallel_size=settings.llm_tensor_parallel_size,
            pipeline_parallel_size=settings.llm_pipeline_parallel_size,
            expert_parallel=settings.llm_expert_parallel,
            draft_tokens=settings.llm_draft_tokens,
            own_classes=settings.llm_classes == "own",
            dtype=settings.llm_dtype,
            prefix_caching=settings.llm_prefix_caching,
        ),
    )


async def _load_vllm(module: str, report: Report) -> None:
    if reason := why_invisible():
        raise EngineDead(f"vLLM's processes would not find our models: {reason}")
    report("loading vLLM")
    os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "spawn"
    await asyncio.to_thread(importlib.import_module, module)


def _language_checkpoint(model: str, revision: str | None) -> Path:
    from app.pipeline.checkpoint import LANGUAGE_FILES, resolve_checkpoint  # noqa: PLC0415

    return resolve_checkpoint(model, revision, LANGUAGE_FILES)


def _speech_checkpoint(settings: Settings) -> Path:
    from app.pipeline.checkpoint import resolve_checkpoint  # noqa: PLC0415
    from models.voxcpm2.make_checkpoint import default_checkpoint  # noqa: PLC0415

    if settings.speech_model:
        return resolve_checkpoint(settings.speech_model, settings.speech_model_revision)
    logger.warning(
        "SPEECH_MODEL is not set: a tiny random model answers with NOISE, for trying the interfaces; "
        "set SPEECH_MODEL=openbmb/VoxCPM2 for speech"
    )
    return default_checkpoint(settings.voxserve_cache_dir)


def _resources(settings: Settings) -> Resources:
    import torch  # noqa: PLC0415

    return divide(settings, on_cpu=not torch.cuda.is_available(), cores=sorted(os.sched_getaffinity(0)))
