"""The language endpoints on a fake pipeline: answers, streams, refusals, and clients that leave."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from app.errors import EngineDead, GenerationFailed, InvalidRequest, Overloaded, VoxserveError
from tests.app.test_errors import check
from tests.support.fake_engine import FakeEngine
from tests.support.fake_language import ANSWER, FakeLanguage, event
from tests.support.serving import (
    LANGUAGE_ONLY,
    Service,
    factory,
    in_process,
    language_factory,
    no_speech,
    on_port,
    until,
)

ENDPOINTS = {
    "/v1/chat/completions": "chat",
    "/v1/completions": "completion",
    "/v1/responses": "response",
    "/tokenize": "tokenize",
    "/detokenize": "detokenize",
}
CHAT = "/v1/chat/completions"
BODY = {"model": "mimo-v2", "messages": [{"role": "user", "content": "Hello."}]}
STREAM = BODY | {"stream": True}
JSON = {"content-type": "application/json"}
LONG = 100_000  # events: more than any test waits for


@pytest.fixture
def pipeline() -> FakeLanguage:
    return FakeLanguage()


@pytest.fixture
async def service(pipeline: FakeLanguage) -> AsyncIterator[Service]:
    async with in_process(no_speech, language=language_factory(pipeline), **LANGUAGE_ONLY) as running:
        yield running


async def test_each_endpoint_passes_the_body_on_and_the_answer_back(
    service: Service, pipeline: FakeLanguage
) -> None:
    for path, endpoint in ENDPOINTS.items():
        body = {"model": "mimo-v2", "path": path, "nested": {"list": [1, None, 2.5]}}
        answer = await service.client.post(path, json=body)
        assert (answer.status_code, answer.content) == (200, ANSWER)
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["x-request-id"]
        assert pipeline.requests[-1] == (endpoint, body)


async def test_names_of_the_model(service: Service, pipeline: FakeLanguage) -> None:
    for body in ({"model": "mimo-v2"}, {"model": "somewhere"}, {"model": None}, {}):
        assert (await service.client.post(CHAT, json=body)).status_code == 200
        assert pipeline.requests[-1] == ("chat", body)


@pytest.mark.parametrize("path", ENDPOINTS)
async def test_another_model(service: Service, path: str, pipeline: FakeLanguage) -> None:
    for name in ("gpt-4", "", "voxcpm2", "none", "\ud800"):
        answer = await service.client.post(path, content=json.dumps({"model": name}), headers=JSON)
        assert "use 'mimo-v2'" in check(answer, 404, "model_not_found", "model")
    answer = await service.client.post(path, json={"model": "x" * 100_000})
    assert len(check(answer, 404, "model_not_found", "model")) < 300
    assert pipeline.requests == []


@pytest.mark.parametrize("path", [*ENDPOINTS, "/v1/embeddings"])
async def test_without_a_language_model(path: str) -> None:
    async with in_process(factory(FakeEngine())) as service:
        said = check(await service.client.post(path, json=BODY), 404, "model_not_found", "model")
        assert ("LLM_MODEL" in said) is (path in ENDPOINTS)
        answer = await service.client.get("/v1/models/mimo-v2")
        assert "'voxcpm2'" in check(answer, 404, "model_not_found", "model")


@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "empty"),
        ("{", "not valid JSON"),
        ("[]", "must be a JSON object"),
        ('"text"', "must be a JSON object"),
        ("3", "must be a JSON object"),
        ("null", "send a JSON object"),
        ("[" * 100_000, "body"),
        ('{"seed": ' + "9" * 5000 + "}", "body"),
        (b'{"model": "\xff"}', "body"),
    ],
)
async def test_bodies_that_are_no_json_object(
    service: Service, path: str, content: str | bytes, said: str, pipeline: FakeLanguage
) -> None:
    answer = await service.client.post(path, content=content, headers=JSON)
    assert said in check(answer, 400, "invalid_request")
    assert pipeline.requests == []


@pytest.mark.parametrize("path", ENDPOINTS)
async def test_other_methods_and_types(service: Service, path: str) -> None:
    answer = await service.client.get(path)
    check(answer, 405, "method_not_allowed")
    assert answer.headers["allow"] == "POST"
    answer = await service.client.post(path, content=json.dumps(BODY), headers={"content-type": "text/plain"})
    check(answer, 415, "unsupported_media_type")


ERRORS: list[tuple[VoxserveError, int, str, str | None]] = [
    (InvalidRequest("n must be at least 1", "n"), 400, "invalid_request", "n"),
    (InvalidRequest("something is wrong"), 400, "invalid_request", None),
    (Overloaded("the queue is full"), 429, "engine_overloaded", None),
    (EngineDead("it died"), 503, "engine_dead", None),
    (GenerationFailed("it broke"), 500, "generation_failed", None),
]


@pytest.mark.parametrize(("error", "status", "code", "param"), ERRORS)
@pytest.mark.parametrize("body", [BODY, STREAM], ids=["whole", "stream"])
async def test_an_error_before_the_first_event_is_a_status(
    error: VoxserveError, status: int, code: str, param: str | None, body: dict[str, object]
) -> None:
    pipeline = FakeLanguage(fail_at=0, error=error)
    async with in_process(no_speech, language=language_factory(pipeline), **LANGUAGE_ONLY) as service:
        answer = await service.client.post(CHAT, json=body)
        assert check(answer, status, code, param) == str(error)
        assert ("retry-after" in answer.headers) is (status in (429, 503))
        assert pipeline.running == 0
        assert service.language.streams_aborted == 0


@pytest.mark.parametrize("body", [BODY, STREAM], ids=["whole", "stream"])
async def test_an_unforeseen_error_says_nothing_of_the_inside(body: dict[str, object]) -> None:
    pipeline = FakeLanguage(fail_at=0, error=RuntimeError("secret path"))
    async with in_process(no_speech, language=language_factory(pipeline), **LANGUAGE_ONLY) as service:
        assert "secret" not in check(await service.client.post(CHAT, json=body), 500, "internal_error")


async def test_a_stream_without_events_is_an_error() -> None:
    pipeline = FakeLanguage(events=0)
    async with in_process(no_speech, language=language_factory(pipeline), **LANGUAGE_ONLY) as service:
        check(await service.client.post(CHAT, json=STREAM), 500, "generation_failed")


# Streams


async def test_a_stream(service: Service, pipeline: FakeLanguage) -> None:
    for path in list(ENDPOINTS)[:3]:
        answer = await service.client.post(path, json=STREAM)
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert answer.headers["cache-control"] == "no-cache"
        assert "content-length" not in answer.headers
        assert answer.content == b"".join(map(event, range(3)))
    assert pipeline.closed == 3
    assert service.language.streams_aborted == 0


@pytest.mark.parametrize(("error", "status", "code", "param"), ERRORS)
async def test_an_error_in_mid_stream_is_an_event(
    error: VoxserveError, status: int, code: str, param: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = FakeLanguage(events=9, fail_at=2, error=error)
    async with on_port(no_speech, language=language_factory(pipeline), **LANGUAGE_ONLY) as service:
        answer = await service.client.post(CHAT, json=STREAM)
        assert answer.status_code == 200
        *events, last, done, rest = answer.content.split(b"\n\n")
        assert events == [event(0)[:-2], event(1)[:-2]]
        said = json.loads(last.removeprefix(b"data: "))["error"]
        kind = (
            "server_error"
            if status >= 500
            else "rate_limit_error"
            if status == 429
            else "invalid_request_error"
        )
        assert said == {"message": str(error), "type": kind, "code": code, "param": param}
        assert (done, rest) == (b"data: [DONE]", b"")
        assert service.language.streams_aborted == 1
        assert (pipeline.running, pipeline.closed) == (0, 1)
    assert str(error) in caplog.text


async def test_an_unforeseen_error_in_mid_stream_breaks_the_connection() -> None:
    pipeline = FakeLanguage(events=9, fail_at=2, error=RuntimeError("unforeseen"))
    async with on_port(no_speech, language=language_factory(pipeline), **LANGUAGE_ONLY) as service:
        with pytest.raises(httpx.RemoteProtocolError, match="incomplete chunked read"):
            await service.client.post(CHAT, json=STREAM)
        assert service.language.streams_aborted == 1
        assert pipeline.closed == 1


async def test_events_are_sent_as_they_are_made() -> None:
    pipeline = FakeLanguage(events=5, delay_s=0.05)
    async with on_port(no_speech, language=language_factory(pipeline), **LANGUAGE_ONLY) as service:
        seen = []
        async with service.client.stream("POST", CHAT, json=STREAM) as answer:
            async for chunk in answer.aiter_raw():
                seen.append((chunk, service.language.running))
    assert [chunk for chunk, _ in seen] == [event(index) for index in range(5)]
    assert seen[0][1] == 1, "the first event came while the engine still ran"


# Clients that leave


async def _post(port: int, body: dict[str, object]) -> asyncio.StreamWriter:
    content = json.dumps(body).encode()
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(
        b"POST %s HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s"
        % (CHAT.encode(), len(content), content)
    )
    await writer.drain()
    return writer


@pytest.mark.parametrize(
    ("body", "delay_s"),
    [(BODY, 30.0), (STREAM, 30.0), (STREAM, 0.02)],
    ids=["whole", "first event", "stream"],
)
async def test_a_client_that_leaves_ends_its_request(body: dict[str, object], delay_s: float) -> None:
    pipeline = FakeLanguage(events=LONG, delay_s=delay_s)
    limit = {"llm_max_requests": 1}
    async with on_port(no_speech, language=language_factory(pipeline), **LANGUAGE_ONLY, **limit) as service:
        writer = await _post(service.port, body)
        await until(lambda: pipeline.running == 1)
        refused = await service.client.post(CHAT, json=BODY)
        writer.close()
        check(refused, 429, "engine_overloaded")
        await writer.wait_closed()
        await until(lambda: pipeline.running == 0)
        assert pipeline.closed == (body is STREAM)
        assert service.language.streams_aborted == 0
        pipeline._delay_s = 0
        await until_status(service, 200)


async def until_status(service: Service, status: int) -> None:
    """The place of a request is free a moment after the engine is."""
    async with asyncio.timeout(5):
        while (await service.client.post(CHAT, json=BODY)).status_code != status:  # noqa: ASYNC110 (nothing tells)
            await asyncio.sleep(0.01)


async def test_a_server_that_stops_says_so() -> None:
    pipeline = FakeLanguage(delay_s=60)
    async with on_port(no_speech, language=language_factory(pipeline), **LANGUAGE_ONLY) as service:
        answer = asyncio.create_task(service.client.post(CHAT, json=BODY))
        await until(lambda: pipeline.running == 1)
        assert service.server
        service.server.should_exit = True
        check(await answer, 503, "server_stopping")
        assert pipeline.running == 0


# What is not served, and what is told of what is


async def test_embeddings_are_refused(service: Service) -> None:
    for body in ({"model": "mimo-v2", "input": "Hello."}, {}):
        said = check(await service.client.post("/v1/embeddings", json=body), 404, "model_not_found", "model")
        assert "embeddings are not served here" in said


async def test_both_models_are_listed() -> None:
    async with in_process(
        factory(FakeEngine()),
        language=language_factory(FakeLanguage()),
        llm_model="a/b",
        llm_model_name="chat",
    ) as service:
        listed = (await service.client.get("/v1/models")).json()["data"]
        assert [model["id"] for model in listed] == ["voxcpm2", "chat"]
        for name in ("voxcpm2", "chat", "a/b"):
            assert (await service.client.get(f"/v1/models/{name}")).json()["id"] == name
        said = check(await service.client.get("/v1/models/c"), 404, "model_not_found", "model")
        assert "'voxcpm2' or 'chat'" in said


async def test_the_schema_tells_of_each_route(service: Service) -> None:
    paths: dict[str, Any] = (await service.client.get("/openapi.json")).json()["paths"]
    assert "/v1/embeddings" not in paths
    for path in ENDPOINTS:
        operation = paths[path]["post"]
        assert operation["description"]
        assert operation["tags"] == ["language"]
        content = operation["requestBody"]["content"]["application/json"]
        assert content["schema"]["type"] == "object"
        for example in content["schema"]["examples"]:
            assert (await service.client.post(path, json=example)).status_code == 200
        assert set(operation["responses"]) == {"200", "4XX", "5XX"}
        streams = {"text/event-stream"} if path.startswith("/v1/") else set()
        assert set(operation["responses"]["200"]["content"]) == {"application/json"} | streams
        for kind in ("4XX", "5XX"):
            assert operation["responses"][kind]["content"]["application/json"]["schema"]["$ref"].endswith(
                "ErrorBody"
            )
