"""Liveness, readiness, and the engine's life behind them."""

import asyncio

import pytest

from app import lifecycle
from app.lifecycle import Report
from app.pipeline.speech import SpeechPipeline
from app.settings import Settings
from models.checkpoint import CheckpointError
from tests.app.test_errors import BODY, check
from tests.support.fake_engine import FakeEngine
from tests.support.serving import SPEECH, factory, in_process, until


async def test_ready() -> None:
    engine = FakeEngine()
    async with in_process(factory(engine)) as service:
        assert (await service.client.get("/healthz")).json() == {"status": "ok"}
        answer = await service.client.get("/readyz")
        assert answer.status_code == 200
        assert answer.json() == {
            "status": "ready",
            "speech": {"status": "ready", "running": 0, "streams_aborted": 0},
        }
        for probe in ("/healthz", "/readyz"):
            assert (await service.client.head(probe)).status_code == 200
        assert engine.made == 1, "one patch of warm-up"
    assert engine.shut_down


async def test_starting() -> None:
    go_on = asyncio.Event()

    async def start(settings: Settings, report: Report) -> SpeechPipeline:
        report("resolving checkpoint")
        await go_on.wait()
        return await factory(FakeEngine())(settings, report)

    async with in_process(start, wait=False) as service:
        await asyncio.sleep(0)
        assert (await service.client.get("/healthz")).status_code == 200
        answer = await service.client.get("/readyz")
        assert answer.status_code == 503
        report = answer.json()["speech"]
        assert (answer.json()["status"], report["stage"]) == ("starting", "resolving checkpoint")
        assert report["elapsed_s"] >= 0
        answer = await service.client.post(SPEECH, json=BODY)
        assert "resolving checkpoint" in check(answer, 503, "engine_starting")
        assert int(answer.headers["retry-after"]) > 0
        bad = await service.client.post(SPEECH, json={})
        assert bad.status_code == 400, "what can never work is said at once"
        go_on.set()
        await until(lambda: service.speech.status == "ready")
        assert (await service.client.post(SPEECH, json=BODY)).status_code == 200


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (CheckpointError("model.safetensors is missing: download it"), "model.safetensors is missing"),
        (RuntimeError("secret"), "see the log"),
    ],
)
async def test_failed_start(error: Exception, said: str) -> None:
    async def start(_settings: Settings, _report: Report) -> SpeechPipeline:
        raise error

    async with in_process(start, wait=False) as service:
        await asyncio.wait_for(service.speech.failed.wait(), 1)
        answer = await service.client.get("/readyz")
        assert answer.status_code == 503
        assert answer.json()["status"] == "failed"
        assert said in answer.json()["speech"]["message"]
        check(await service.client.post(SPEECH, json=BODY), 503, "engine_dead")


async def test_dead_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "WATCH_INTERVAL_S", 0.05)
    engine = FakeEngine()
    async with in_process(factory(engine)) as service:
        engine.errored = True
        assert (await service.client.get("/readyz")).json()["status"] == "dead"
        answer = await service.client.post(SPEECH, json=BODY)
        check(answer, 503, "engine_dead")
        assert int(answer.headers["retry-after"]) > 0
        await asyncio.wait_for(service.speech.failed.wait(), 1)
        assert (await service.client.get("/readyz")).status_code == 503
        assert (await service.client.get("/healthz")).status_code == 200


async def test_stopping_during_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "ABANDON_TIMEOUT_S", 0.1)

    async def start(_settings: Settings, _report: Report) -> SpeechPipeline:
        await asyncio.sleep(60)
        raise AssertionError

    async with in_process(start, wait=False) as service:
        pass
    assert service.speech.status == "stopping"
    assert not service.speech.failed.is_set()
