"""Two engines in one service: side by side or in turn, each alone, one failing, one dying, both full."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from app import lifecycle
from app.engines import Engines
from app.errors import EngineDead, GenerationFailed
from app.language.pipeline import LanguagePipeline
from app.lifecycle import EngineService, Report
from app.pipeline.speech import SpeechPipeline
from app.settings import Settings
from models.checkpoint import CheckpointError
from tests.app.test_errors import check
from tests.support.fake_engine import FakeEngine
from tests.support.fake_language import FakeLanguage
from tests.support.serving import (
    LANGUAGE_ONLY,
    SPEECH,
    Service,
    factory,
    in_process,
    language_factory,
    no_speech,
    settings,
    until,
)

CHAT = "/v1/chat/completions"
SPEECH_BODY = {"model": "voxcpm2", "input": "Hello."}
CHAT_BODY = {"model": "mimo-v2", "messages": [{"role": "user", "content": "Hello."}]}
BOTH = {"llm_model": "somewhere"}
IDLE = {"status": "ready", "running": 0, "streams_aborted": 0}


async def no_language(_settings: Settings, _report: Report) -> LanguagePipeline:
    raise AssertionError


def failing(error: Exception) -> Callable[[Settings, Report], Awaitable[Any]]:
    """A start that ends with `error`."""

    async def start(_settings: Settings, report: Report) -> object:
        report("starting engine")
        raise error

    return start


class Held:
    """A start that waits to be let go on, and what it has seen of others meanwhile."""

    def __init__(self, pipeline: object) -> None:
        self.pipeline = pipeline
        self.began = asyncio.Event()
        self.go_on = asyncio.Event()
        self.ended = False

    async def __call__(self, _settings: Settings, report: Report) -> Any:
        report("starting engine")
        self.began.set()
        await self.go_on.wait()
        report("almost there")
        self.ended = True
        return self.pipeline


def speech_pipeline() -> SpeechPipeline:
    from models.voxcpm2.tokenizer import TextTokenizer
    from tests.support.golden import CHECKPOINT

    return SpeechPipeline(FakeEngine(), TextTokenizer.from_checkpoint(CHECKPOINT))


async def readiness(service: Service) -> tuple[int, dict[str, Any]]:
    answer = await service.client.get("/readyz")
    return answer.status_code, answer.json()


async def soon(event: asyncio.Event) -> None:
    await asyncio.wait_for(event.wait(), 5)


# Starts


async def test_both_engines_start_side_by_side() -> None:
    speech, language = Held(speech_pipeline()), Held(FakeLanguage())
    async with in_process(speech, wait=False, language=language, **BOTH) as service:
        await soon(speech.began)
        await soon(language.began)
        status, body = await readiness(service)
        assert (status, body["status"]) == (503, "starting")
        assert (body["speech"]["stage"], body["language"]["stage"]) == ("starting engine",) * 2
        language.go_on.set()
        await until(lambda: service.language.status == "ready")
        status, body = await readiness(service)
        assert (status, body["status"], body["language"]) == (503, "starting", IDLE)
        assert (await service.client.post(CHAT, json=CHAT_BODY)).status_code == 200
        check(await service.client.post(SPEECH, json=SPEECH_BODY), 503, "engine_starting")
        speech.go_on.set()
        await until(lambda: service.speech.status == "ready")
        assert await readiness(service) == (200, {"status": "ready", "speech": IDLE, "language": IDLE})
    assert speech.pipeline.engine.shut_down
    assert language.pipeline.shut_down
    assert language.pipeline.warm_ups == 1


@pytest.mark.parametrize("wide", ["speech_tensor_parallel_size", "llm_pipeline_parallel_size"])
async def test_engines_that_span_cores_start_in_turn(wide: str) -> None:
    speech, language = Held(speech_pipeline()), Held(FakeLanguage())
    async with in_process(speech, wait=False, language=language, **BOTH, **{wide: 2}) as service:
        await soon(speech.began)
        _, body = await readiness(service)
        assert body["speech"]["stage"] == "starting engine", "it waited for nobody"
        assert body["language"]["stage"] == "waiting for the other engine"
        assert not language.began.is_set()
        speech.go_on.set()
        await soon(language.began)
        assert speech.ended
        language.go_on.set()
        await until(lambda: service.language.status == service.speech.status == "ready")


async def test_a_start_that_fails_gives_its_turn_away() -> None:
    language = Held(FakeLanguage())
    async with in_process(
        failing(EngineDead("broke")), wait=False, language=language, **BOTH, llm_tensor_parallel_size=2
    ) as service:
        await soon(language.began)
        language.go_on.set()
        await until(lambda: service.language.status == "ready")
        assert service.speech.status == "failed"


async def test_speech_alone() -> None:
    async with in_process(factory(FakeEngine()), language=no_language) as service:
        assert service.engines.language is None
        assert await readiness(service) == (200, {"status": "ready", "speech": IDLE})


async def test_language_alone() -> None:
    async with in_process(no_speech, language=language_factory(FakeLanguage()), **LANGUAGE_ONLY) as service:
        assert service.engines.speech is None
        assert await readiness(service) == (200, {"status": "ready", "language": IDLE})
        said = check(await service.client.post(SPEECH, json=SPEECH_BODY), 404, "model_not_found", "model")
        assert "SPEECH_MODEL" in said
        listed = (await service.client.get("/v1/models")).json()["data"]
        assert [model["id"] for model in listed] == ["mimo-v2"]
        answer = await service.client.get("/v1/models/voxcpm2")
        assert "'mimo-v2'" in check(answer, 404, "model_not_found", "model")


# Failures


@pytest.mark.parametrize("ill", ["speech", "language"])
@pytest.mark.parametrize(
    ("error", "said"),
    [
        (CheckpointError("config.json is missing: download it"), "config.json is missing: download it"),
        (EngineDead("the engine did not start: no memory"), "the engine did not start: no memory"),
        (ImportError("no vLLM"), "no vLLM"),
        (RuntimeError("secret"), "unexpected error while starting: see the log"),
    ],
)
async def test_one_that_fails_stops_the_service(ill: str, error: Exception, said: str) -> None:
    starts: dict[str, Any] = {"speech": factory(FakeEngine()), "language": language_factory(FakeLanguage())}
    starts[ill] = failing(error)
    async with in_process(starts["speech"], wait=False, language=starts["language"], **BOTH) as service:
        await soon(service.engines.failed)
        await until(lambda: "ready" in (service.speech.status, service.language.status))
        status, body = await readiness(service)
        assert (status, body["status"]) == (503, "failed")
        well = "language" if ill == "speech" else "speech"
        assert (body[ill], body[well]) == ({"status": "failed", "message": said}, IDLE)
        asked: dict[str, tuple[str, dict[str, Any]]] = {
            "speech": (SPEECH, SPEECH_BODY),
            "language": (CHAT, CHAT_BODY),
        }
        path, request = asked[ill]
        assert check(await service.client.post(path, json=request), 503, "engine_dead") == said
        path, request = asked[well]
        assert (await service.client.post(path, json=request)).status_code == 200


async def test_a_warm_up_that_fails() -> None:
    class Silent(FakeLanguage):
        async def warm_up(self) -> None:
            raise GenerationFailed("the checkpoint has no chat template")

    pipeline = Silent()
    async with in_process(
        no_speech, wait=False, language=language_factory(pipeline), **LANGUAGE_ONLY
    ) as service:
        await soon(service.engines.failed)
        assert (await readiness(service))[1]["language"]["message"] == "the checkpoint has no chat template"
    assert pipeline.shut_down


@pytest.mark.parametrize("ill", ["speech", "language"])
async def test_one_that_dies_stops_the_service(ill: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "WATCH_INTERVAL_S", 0.05)
    engine, pipeline = FakeEngine(), FakeLanguage()
    async with in_process(factory(engine), language=language_factory(pipeline), **BOTH) as service:
        dying: FakeEngine | FakeLanguage = engine if ill == "speech" else pipeline
        dying.errored = True
        dead = {
            "status": "dead",
            "message": f"the {ill} engine died: the service stops, try again in a minute",
        }
        status, body = await readiness(service)
        assert (status, body["status"], body[ill]) == (503, "dead", dead), "before the watch has seen it"
        await soon(service.engines.failed)
        status, body = await readiness(service)
        assert (status, body["status"], body[ill]) == (503, "dead", dead)
        assert body["language" if ill == "speech" else "speech"] == IDLE
    assert engine.shut_down
    assert pipeline.shut_down


# Ends


async def stop(engines: Engines) -> None:
    await asyncio.wait_for(engines.stop(), 10)


def engines_of(speech: Any, language: Any, **values: object) -> Engines:
    engines = Engines(settings(**BOTH, **values), speech, language)
    for service in engines.services:
        service.begin()
    return engines


async def test_a_stop_while_both_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "ABANDON_TIMEOUT_S", 0.2)
    engines = engines_of(Held(speech_pipeline()), Held(FakeLanguage()))
    await asyncio.sleep(0)
    await stop(engines)
    assert [service.status for service in engines.services] == ["stopping", "stopping"]
    assert not engines.failed.is_set()


async def test_a_stop_while_one_starts_ends_the_other_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start is ended by killing all processes: the engine that runs must have ended its own before."""
    pipeline, speech = FakeLanguage(), Held(speech_pipeline())
    killed: list[bool] = []

    def kill() -> None:
        killed.append(pipeline.shut_down)
        speech.go_on.set()  # what the start waited for is gone

    monkeypatch.setattr(lifecycle, "kill_children", kill)
    engines = engines_of(speech, language_factory(pipeline))
    await until(lambda: engines.language is not None and engines.language.status == "ready")
    await stop(engines)
    assert killed
    assert all(killed)
    assert not speech.ended, "it hears of the stop at its next stage"
    assert not engines.failed.is_set()


async def test_a_stop_while_one_waits_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    speech, language = Held(speech_pipeline()), Held(FakeLanguage())
    monkeypatch.setattr(lifecycle, "kill_children", speech.go_on.set)
    engines = engines_of(speech, language, llm_tensor_parallel_size=2)
    await soon(speech.began)
    await stop(engines)
    assert not language.began.is_set()
    assert not engines.failed.is_set()


async def test_a_stop_with_the_start_of_an_engine_just_over() -> None:
    """An engine whose start could not be interrupted is ended all the same."""
    pipeline = FakeLanguage()
    waiting = asyncio.Event()

    async def start(_settings: Settings, _report: Report) -> LanguagePipeline:
        await waiting.wait()
        return pipeline

    engines = engines_of(factory(FakeEngine()), start)
    await until(lambda: engines.speech is not None and engines.speech.status == "ready")
    asyncio.get_running_loop().call_later(0.05, waiting.set)
    await stop(engines)
    assert pipeline.shut_down


async def test_stopping_refuses_requests_and_stops_twice_without_harm() -> None:
    async with in_process(
        factory(FakeEngine()), language=language_factory(FakeLanguage()), **BOTH
    ) as service:
        await service.engines.stop()
        status, body = await readiness(service)
        assert (status, body["status"]) == (503, "stopping")
        assert body["speech"] == body["language"] == {"status": "stopping", "message": ""}
        for path, request in ((SPEECH, SPEECH_BODY), (CHAT, CHAT_BODY)):
            answer = await service.client.post(path, json=request)
            assert "the service is stopping" in check(answer, 503, "engine_dead")
        await stop(service.engines)


async def test_an_engine_that_does_not_end_is_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Stubborn(FakeLanguage):
        async def shutdown(self) -> None:
            await asyncio.Event().wait()

    monkeypatch.setattr(lifecycle, "ENGINE_SHUTDOWN_TIMEOUT_S", 0.05)
    async with in_process(no_speech, language=language_factory(Stubborn()), **LANGUAGE_ONLY):
        pass
    assert "the language engine did not shut down within 0.05 s" in caplog.text


# Too many requests


@pytest.mark.parametrize("body", [CHAT_BODY, CHAT_BODY | {"stream": True}])
async def test_a_burst_beyond_the_limit_is_refused(body: dict[str, object]) -> None:
    """Counted as they come: the engine hears of none before all have been let in or refused."""
    held = asyncio.Event()
    pipeline = FakeLanguage(held=held)
    async with in_process(
        no_speech, language=language_factory(pipeline), **LANGUAGE_ONLY, llm_max_requests=3
    ) as service:
        asked = [asyncio.create_task(service.client.post(CHAT, json=body)) for _ in range(8)]
        await until(lambda: sum(task.done() for task in asked) == 5)
        assert len(pipeline.requests) == 3
        held.set()
        answers = await asyncio.gather(*asked)
        assert sorted(answer.status_code for answer in answers) == [200] * 3 + [429] * 5
        refused = next(answer for answer in answers if answer.status_code == 429)
        assert "3 requests already" in check(refused, 429, "engine_overloaded")
        assert refused.json()["error"]["type"] == "rate_limit_error"
        assert int(refused.headers["retry-after"]) > 0
        assert (await service.client.post(CHAT, json=body)).status_code == 200, "there is room again"


async def test_speech_has_a_limit_of_its_own() -> None:
    engine, pipeline = FakeEngine(delay_s=0.02), FakeLanguage()
    async with in_process(
        factory(engine), language=language_factory(pipeline), **BOTH, speech_max_requests=2
    ) as service:
        asked = [service.client.post(SPEECH, json=SPEECH_BODY) for _ in range(5)]
        others = [service.client.post(CHAT, json=CHAT_BODY) for _ in range(5)]
        answers: list[httpx.Response] = list(await asyncio.gather(*asked, *others))
        statuses = [answer.status_code for answer in answers]
        assert sorted(statuses[:5]) == [200, 200, 429, 429, 429]
        assert statuses[5:] == [200] * 5


async def test_what_can_never_work_is_said_before_that_there_is_no_room() -> None:
    held = asyncio.Event()
    async with in_process(
        no_speech, language=language_factory(FakeLanguage(held=held)), **LANGUAGE_ONLY, llm_max_requests=1
    ) as service:
        running = asyncio.create_task(service.client.post(CHAT, json=CHAT_BODY))
        asyncio.get_running_loop().call_later(
            5, held.set
        )  # a refusal that does not come is a failure, no hang
        await asyncio.sleep(0.05)
        check(
            await service.client.post(CHAT, json=CHAT_BODY | {"model": "gpt"}),
            404,
            "model_not_found",
            "model",
        )
        check(await service.client.post(CHAT, json=[]), 400, "invalid_request")
        check(await service.client.post(CHAT, json=CHAT_BODY), 429, "engine_overloaded")
        held.set()
        assert (await running).status_code == 200


async def test_requests_that_end_in_any_way_make_room() -> None:
    service: EngineService[Any] = EngineService("language", _never, 1, asyncio.Event())
    service.status = "ready"
    service._pipeline = FakeLanguage()
    with pytest.raises(RuntimeError), service.request():  # noqa: PT012
        assert service.pipeline
        raise RuntimeError
    with service.request():
        assert service.pipeline


async def _never(_report: Report) -> Any:
    raise AssertionError


async def test_running_requests_are_reported() -> None:
    held = asyncio.Event()
    pipeline = FakeLanguage()
    original = pipeline._step

    async def step(index: int) -> None:
        await held.wait()
        await original(index)

    pipeline._step = step  # type: ignore[method-assign]
    async with in_process(no_speech, language=language_factory(pipeline), **LANGUAGE_ONLY) as service:
        asked = [asyncio.create_task(service.client.post(CHAT, json=CHAT_BODY)) for _ in range(3)]
        await until(lambda: pipeline.running == 3)
        assert (await readiness(service))[1]["language"] == IDLE | {"running": 3}
        held.set()
        await asyncio.gather(*asked)
        assert (await readiness(service))[1]["language"] == IDLE


async def test_broken_streams_are_reported_of_their_engine() -> None:
    pipeline = FakeLanguage(fail_at=1, error=GenerationFailed("broke"))
    async with in_process(factory(FakeEngine()), language=language_factory(pipeline), **BOTH) as service:
        for _ in range(2):
            await service.client.post(CHAT, json=CHAT_BODY | {"stream": True})
        _, body = await readiness(service)
        assert (body["speech"]["streams_aborted"], body["language"]["streams_aborted"]) == (0, 2)
