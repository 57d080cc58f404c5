"""What each engine gets of the machine: memory, GPUs, cores.

| | both engines | one engine |
|---|---|---|
| KV cache on a CPU | 1GiB each | 1GiB |
| share of a GPU's memory | 0.45 each where they share a GPU, else 0.9 | 0.9 |
| cores of a CPU | half each, or what the other's setting leaves | all |

Settings override each line. A single core is shared.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from app.errors import EngineDead
from app.settings import Settings

CPU_KV_CACHE_BYTES = 2**30  # vLLM's own default on a CPU is a share of all memory
GPU_MEMORY_UTILIZATION = 0.9  # vLLM's default; the rest is for what it cannot count beforehand


@dataclass(frozen=True)
class Share:
    """One engine's part; `None`: not limited."""

    kv_cache_bytes: int | None
    gpu_memory_utilization: float
    devices: tuple[int, ...] | None
    cores: tuple[int, ...] | None


@dataclass(frozen=True)
class Resources:
    """Both engines' parts."""

    speech: Share
    language: Share


def divide(settings: Settings, on_cpu: bool, cores: Sequence[int]) -> Resources:
    """Divide a machine with these usable cores.

    Raises:
        EngineDead: an engine that is served wants cores that this process may not use, or more workers than
            it has cores.
    """
    speech_cores, llm_cores = _deal(settings, cores) if on_cpu else (None, None)
    kv_cache_bytes = CPU_KV_CACHE_BYTES if on_cpu else None
    utilization = GPU_MEMORY_UTILIZATION / (2 if settings.shares_gpus else 1)
    return Resources(
        speech=Share(
            kv_cache_bytes=settings.speech_kv_cache_bytes or kv_cache_bytes,
            gpu_memory_utilization=settings.speech_gpu_memory_utilization or utilization,
            devices=settings.speech_devices,
            cores=speech_cores,
        ),
        language=Share(
            kv_cache_bytes=settings.llm_kv_cache_bytes or kv_cache_bytes,
            gpu_memory_utilization=settings.llm_gpu_memory_utilization or utilization,
            devices=settings.llm_devices,
            cores=llm_cores,
        ),
    )


Cores = tuple[int, ...] | None


def _deal(settings: Settings, cores: Sequence[int]) -> tuple[Cores, Cores]:
    """The cores of the speech and of the language engine."""
    speech, language = settings.speech_cores, settings.llm_cores
    half = len(cores) // 2
    if settings.serves_speech and settings.serves_language and half:
        speech_default, language_default = _without(cores, language), _without(cores, speech)
        if speech is None and language is None:
            speech_default, language_default = tuple(cores[:half]), tuple(cores[half:])
        speech, language = speech or speech_default, language or language_default
    if settings.serves_speech:
        _check("SPEECH", speech, settings.speech_ranks, cores)
    if settings.serves_language:
        _check("LLM", language, settings.llm_ranks, cores)
    return speech, language


def _without(cores: Sequence[int], taken: Cores) -> Cores:
    """What is left; where nothing is, all is shared."""
    return tuple(core for core in cores if core not in (taken or ())) or None


def _check(prefix: str, wanted: Cores, ranks: int, cores: Sequence[int]) -> None:
    if missing := sorted(set(wanted or ()) - set(cores)):
        raise EngineDead(
            f"{prefix}_CORES has core {missing[0]}, which this process may not use: see `nproc`, `taskset`"
        )
    count = len(cores if wanted is None else wanted)
    if count < ranks:
        raise EngineDead(
            f"{ranks} workers ({prefix}_TENSOR_PARALLEL_SIZE and the like) need a core each, and there are "
            f"{count}: ask for fewer workers, or give more cores by {prefix}_CORES"
        )
