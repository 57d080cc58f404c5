"""What each engine gets of the machine: memory, GPUs, cores.

| | both engines | one engine |
|---|---|---|
| KV cache on a CPU | 1GiB each | 1GiB |
| share of a GPU's memory | 0.45 each where they share a GPU, else 0.9 | 0.9 |
| cores of a CPU | half each | all |

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
        EngineDead: the settings name cores that this process may not use.
    """
    both = settings.serves_speech and settings.serves_language
    apart = (
        settings.speech_devices is not None
        and settings.llm_devices is not None
        and not set(settings.speech_devices) & set(settings.llm_devices)
    )
    default_utilization = GPU_MEMORY_UTILIZATION / (2 if both and not apart else 1)
    half = len(cores) // 2
    first, second = (cores[:half], cores[half:]) if both and half else (None, None)
    for name, wanted in (("SPEECH_CORES", settings.speech_cores), ("LLM_CORES", settings.llm_cores)):
        if on_cpu and wanted and (missing := sorted(set(wanted) - set(cores))):
            raise EngineDead(
                f"{name} has core {missing[0]}, which this process may not use: see `nproc`, `taskset`"
            )

    def share(
        kv_cache_bytes: int | None,
        utilization: float | None,
        devices: tuple[int, ...] | None,
        own_cores: Sequence[int] | None,
    ) -> Share:
        return Share(
            kv_cache_bytes=kv_cache_bytes or (CPU_KV_CACHE_BYTES if on_cpu else None),
            gpu_memory_utilization=utilization or default_utilization,
            devices=devices,
            cores=tuple(own_cores) if on_cpu and own_cores else None,
        )

    return Resources(
        speech=share(
            settings.speech_kv_cache_bytes,
            settings.speech_gpu_memory_utilization,
            settings.speech_devices,
            settings.speech_cores or first,
        ),
        language=share(
            settings.llm_kv_cache_bytes,
            settings.llm_gpu_memory_utilization,
            settings.llm_devices,
            settings.llm_cores or second,
        ),
    )
