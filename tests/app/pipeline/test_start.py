"""From settings to the engines' options, without an engine."""

import asyncio
import os
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from app.errors import EngineDead
from app.language.pipeline import LanguagePipeline
from app.pipeline import start as starter
from app.pipeline.options import EngineOptions, LanguageOptions
from app.pipeline.start import start_language, start_speech
from models.checkpoint import CheckpointError
from models.plugin import MIMO_V2_VARIABLE
from tests.support.fake_engine import FakeEngine
from tests.support.golden import CHECKPOINT
from tests.support.serving import settings

STAGES = ["resolving checkpoint", "loading vLLM", "starting engine"]
ONE_ENGINE = {"cores": None, "gpu_memory_utilization": 0.9}


class Starts:
    """Engine modules that note what they are started with."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.speech: list[tuple[Any, ...]] = []
        self.language: list[tuple[Any, ...]] = []
        self.stages: list[str] = []
        self.engine = FakeEngine()

        async def speech(*arguments: object) -> FakeEngine:
            self.speech.append(arguments)
            return self.engine

        async def language(*arguments: object) -> object:
            self.language.append((*arguments, os.environ[MIMO_V2_VARIABLE]))
            return self

        for module, name, begin in (
            ("app.pipeline.engine", "SpeechEngine", speech),
            ("app.language.engine", "VllmPipeline", language),
        ):
            fake = types.ModuleType(module)
            setattr(fake, name, types.SimpleNamespace(start=begin))
            monkeypatch.setitem(sys.modules, module, fake)
            monkeypatch.setattr(sys.modules[module.rpartition(".")[0]], "engine", fake, raising=False)


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> Starts:
    monkeypatch.delenv("VLLM_PLUGINS", raising=False)
    monkeypatch.setenv("VLLM_WORKER_MULTIPROC_METHOD", "fork")
    monkeypatch.setenv(MIMO_V2_VARIABLE, "own")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr(starter.os, "sched_getaffinity", lambda _pid: {3, 1, 2, 0})
    return Starts(monkeypatch)


async def test_speech_by_default(starts: Starts) -> None:
    pipeline = await start_speech(settings(speech_model=str(CHECKPOINT)), starts.stages.append)
    assert pipeline.engine is starts.engine
    assert starts.stages == STAGES
    assert starts.speech == [(CHECKPOINT, EngineOptions(kv_cache_bytes=2**30, **ONE_ENGINE))]
    assert os.environ["VLLM_WORKER_MULTIPROC_METHOD"] == "spawn"


async def test_every_speech_setting_reaches_the_engine(starts: Starts) -> None:
    values: dict[str, Any] = {
        "max_num_seqs": 3,
        "max_num_batched_tokens": 99,
        "max_model_len": 512,
        "kv_cache_bytes": 2**28,
        "devices": (1, 2),
        "cores": (2, 3),
        "tensor_parallel_size": 2,
        "dtype": "float32",
        "prefix_caching": False,
    }
    given = settings(speech_model=str(CHECKPOINT), **{f"speech_{name}": v for name, v in values.items()})
    await start_speech(given, starts.stages.append)
    assert starts.speech == [(CHECKPOINT, EngineOptions(gpu_memory_utilization=0.9, **values))]


async def test_without_a_model_speech_is_noise(
    starts: Starts, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await start_speech(settings(voxserve_cache_dir=tmp_path), starts.stages.append)
    (checkpoint, _) = starts.speech[0]
    assert checkpoint.is_relative_to(tmp_path)
    assert "NOISE" in caplog.text


async def test_language_by_default(starts: Starts, tmp_path: Path) -> None:
    given = settings(llm_model=str(tmp_path), speech_model="none")
    pipeline: LanguagePipeline = await start_language(given, starts.stages.append)
    assert pipeline is starts
    assert starts.stages == STAGES
    options = LanguageOptions(max_num_seqs=64, kv_cache_bytes=2**30, **ONE_ENGINE)
    assert starts.language == [(tmp_path, ("mimo-v2", str(tmp_path)), options, "own")]


async def test_every_language_setting_reaches_the_engine(starts: Starts, tmp_path: Path) -> None:
    values: dict[str, Any] = {
        "max_num_seqs": 3,
        "max_num_batched_tokens": 99,
        "max_model_len": 512,
        "gpu_memory_utilization": 0.4,
        "devices": (1, 2, 4, 7),
        "cores": (0, 1, 2, 3),
        "tensor_parallel_size": 2,
        "pipeline_parallel_size": 2,
        "expert_parallel": True,
        "draft_tokens": 2,
        "dtype": "float32",
        "prefix_caching": False,
    }
    given = settings(
        llm_model=str(tmp_path),
        llm_model_name="flash",
        llm_classes="vllm",
        **{f"llm_{name}": value for name, value in values.items()},
    )
    await start_language(given, starts.stages.append)
    options = LanguageOptions(kv_cache_bytes=2**30, own_classes=False, **values)
    assert starts.language == [(tmp_path, ("flash", str(tmp_path)), options, "vllm")]


async def test_side_by_side_each_has_its_part(starts: Starts, tmp_path: Path) -> None:
    given = settings(llm_model=str(tmp_path), speech_model=str(CHECKPOINT))
    await asyncio.gather(
        start_speech(given, starts.stages.append), start_language(given, starts.stages.append)
    )
    speech, language = starts.speech[0][-1], starts.language[0][2]
    assert (speech.cores, language.cores) == ((0, 1), (2, 3))
    assert speech.gpu_memory_utilization + language.gpu_memory_utilization <= 0.9


@pytest.mark.parametrize("start", [start_speech, start_language])
async def test_a_plug_in_that_vllm_would_not_load(
    start: Any, starts: Starts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_PLUGINS", "another")
    given = settings(llm_model=str(tmp_path), speech_model=str(CHECKPOINT))
    with pytest.raises(EngineDead, match="VLLM_PLUGINS=another excludes voxserve"):
        await start(given, starts.stages.append)
    assert starts.speech == starts.language == []


@pytest.mark.parametrize(
    ("start", "setting"),
    [(start_speech, "speech_model"), (start_language, "llm_model")],
)
async def test_a_directory_that_is_not_there(
    start: Any, setting: str, starts: Starts, tmp_path: Path
) -> None:
    given = settings(**{setting: str(tmp_path / "gone")})
    with pytest.raises(CheckpointError, match="is not a directory"):
        await start(given, starts.stages.append)
    assert starts.stages == STAGES[:1]


async def test_cores_that_the_process_may_not_use(starts: Starts, tmp_path: Path) -> None:
    given = settings(llm_model=str(tmp_path), speech_model="none", llm_cores="4")
    with pytest.raises(EngineDead, match="LLM_CORES has core 4"):
        await start_language(given, starts.stages.append)
    assert starts.language == []
