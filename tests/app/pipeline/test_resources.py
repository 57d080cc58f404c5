"""What each engine gets of the machine."""

import pytest

from app.errors import EngineDead
from app.pipeline.resources import CPU_KV_CACHE_BYTES, Share, divide
from tests.support.serving import settings

BOTH = {"llm_model": "somewhere"}
LANGUAGE_ONLY = BOTH | {"speech_model": "none"}
EIGHT = range(8)


def cores(count: int = 8, **values: object) -> tuple[tuple[int, ...] | None, tuple[int, ...] | None]:
    divided = divide(settings(**values), on_cpu=True, cores=range(count))
    return divided.speech.cores, divided.language.cores


def test_one_engine_has_the_machine() -> None:
    alone = Share(CPU_KV_CACHE_BYTES, 0.9, None, None)
    assert divide(settings(), on_cpu=True, cores=EIGHT).speech == alone
    assert divide(settings(**LANGUAGE_ONLY), on_cpu=True, cores=EIGHT).language == alone
    on_gpu = Share(None, 0.9, None, None)
    assert divide(settings(), on_cpu=False, cores=EIGHT).speech == on_gpu
    assert divide(settings(**LANGUAGE_ONLY), on_cpu=False, cores=EIGHT).language == on_gpu


def test_two_engines_share_it() -> None:
    on_cpu = divide(settings(**BOTH), on_cpu=True, cores=EIGHT)
    assert on_cpu.speech == Share(CPU_KV_CACHE_BYTES, 0.45, None, (0, 1, 2, 3))
    assert on_cpu.language == Share(CPU_KV_CACHE_BYTES, 0.45, None, (4, 5, 6, 7))
    on_gpu = divide(settings(**BOTH), on_cpu=False, cores=EIGHT)
    assert on_gpu.speech == on_gpu.language == Share(None, 0.45, None, None)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"llm_devices": (0,), "speech_devices": (0,)}, (0.45, 0.45)),
        ({"llm_devices": (1,), "speech_devices": (0,)}, (0.9, 0.9)),
        ({"llm_devices": (1,)}, (0.9, 0.9)),
        ({"llm_tensor_parallel_size": 2, "speech_devices": (1,)}, (0.45, 0.45)),
        ({"llm_gpu_memory_utilization": 0.7}, (0.45, 0.7)),
        ({"speech_gpu_memory_utilization": 0.2, "llm_gpu_memory_utilization": 0.75}, (0.2, 0.75)),
    ],
)
def test_shares_of_gpus(values: dict[str, object], expected: tuple[float, float]) -> None:
    divided = divide(settings(**BOTH, **values), on_cpu=False, cores=EIGHT)
    assert (divided.speech.gpu_memory_utilization, divided.language.gpu_memory_utilization) == expected
    assert divided.language.devices == values.get("llm_devices")
    assert divided.speech.devices == values.get("speech_devices")


@pytest.mark.parametrize("on_cpu", [False, True])
def test_settings_say_the_size_of_the_cache(on_cpu: bool) -> None:
    sizes = {"speech_kv_cache_bytes": 2**28, "llm_kv_cache_bytes": 2**29}
    divided = divide(settings(**BOTH, **sizes), on_cpu=on_cpu, cores=EIGHT)
    assert (divided.speech.kv_cache_bytes, divided.language.kv_cache_bytes) == (2**28, 2**29)


@pytest.mark.parametrize(
    ("count", "values", "expected"),
    [
        (1, {}, (None, None)),
        (2, {}, ((0,), (1,))),
        (5, {}, ((0, 1), (2, 3, 4))),
        (8, {"speech_cores": "0"}, ((0,), (1, 2, 3, 4, 5, 6, 7))),
        (8, {"speech_cores": "4-7"}, ((4, 5, 6, 7), (0, 1, 2, 3))),
        (8, {"llm_cores": "1-7"}, ((0,), (1, 2, 3, 4, 5, 6, 7))),
        (8, {"llm_cores": "0-7"}, (None, (0, 1, 2, 3, 4, 5, 6, 7))),
        (8, {"speech_cores": "0-1", "llm_cores": "1-2"}, ((0, 1), (1, 2))),
        (1, {"speech_cores": "0"}, ((0,), None)),
    ],
)
def test_cores_of_two_engines(count: int, values: dict[str, object], expected: object) -> None:
    assert cores(count, **BOTH, **values) == expected


def test_cores_of_one_engine() -> None:
    assert cores(speech_cores="2,3")[0] == (2, 3)
    assert cores(**LANGUAGE_ONLY, llm_cores="5")[1] == (5,)


def test_cores_mean_nothing_beside_a_gpu() -> None:
    divided = divide(settings(**BOTH, speech_cores="99", llm_cores="0"), on_cpu=False, cores=EIGHT)
    assert (divided.speech.cores, divided.language.cores) == (None, None)


def test_usable_cores_need_not_begin_with_0() -> None:
    divided = divide(settings(**BOTH), on_cpu=True, cores=(3, 5, 9, 11))
    assert (divided.speech.cores, divided.language.cores) == ((3, 5), (9, 11))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"speech_cores": "7-9"}, "SPEECH_CORES has core 8"),
        (BOTH | {"llm_cores": "8"}, "LLM_CORES has core 8"),
        (
            {"speech_tensor_parallel_size": 9},
            "9 workers .SPEECH_TENSOR_PARALLEL_SIZE and the like. need a core each",
        ),
        (
            BOTH | {"llm_tensor_parallel_size": 5},
            "there are 4: ask for fewer workers, or give more cores by LLM_CORES",
        ),
        (BOTH | {"llm_pipeline_parallel_size": 2, "llm_cores": "3"}, "there are 1"),
    ],
)
def test_cores_that_there_are_not(values: dict[str, object], said: str) -> None:
    with pytest.raises(EngineDead, match=said):
        divide(settings(**values), on_cpu=True, cores=EIGHT)


def test_an_engine_that_is_not_served_wants_nothing() -> None:
    assert cores(llm_cores="99", llm_tensor_parallel_size=64)[0] is None
    assert cores(**LANGUAGE_ONLY, speech_cores="99", speech_tensor_parallel_size=64)[1] is None
