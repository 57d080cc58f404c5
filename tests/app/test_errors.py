"""Every error, whoever raises it, is an OpenAI error object."""

import logging

import httpx
import pytest

from app import errors
from app.errors import VoxserveError, wire_of
from app.middleware import MAX_BODY_BYTES
from tests.support.fake_engine import FakeEngine
from tests.support.serving import SPEECH, factory, in_process

BODY = {"model": "voxcpm2", "input": "Hello."}
JSON = {"content-type": "application/json"}


def check(response: httpx.Response, status: int, code: str, param: str | None = None) -> str:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-request-id"]
    error = response.json()["error"]
    assert set(response.json()) == {"error"}
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["code"], error["param"]) == (code, param), error
    return error["message"]


def test_the_table_covers_every_leaf() -> None:
    def leaves(cls: type[VoxserveError]) -> list[type[VoxserveError]]:
        below = cls.__subclasses__()
        return [leaf for sub in below for leaf in leaves(sub)] if below else [cls]

    for cls in leaves(VoxserveError):
        assert wire_of(cls("message")) is errors.WIRE[cls]


@pytest.mark.parametrize(
    ("content", "param", "said"),
    [
        ("", None, "empty"),
        ("{", None, "not valid JSON"),
        ("[]", None, "JSON object"),
        ("null", None, "send a JSON object"),
        ("3", None, "JSON object"),
        ("[" * 100_000, None, "body"),
        ('{"model": "voxcpm2", "input": "Hi.", "seed": ' + "9" * 5000 + "}", None, "body"),
        ('{"input": "Hi."}', "model", "model is required"),
        ('{"model": "voxcpm2"}', "input", "input is required"),
        ('{"model": "voxcpm2", "input": "Hi.", "cfg_value": NaN}', "cfg_value", "finite"),
        ('{"model": "voxcpm2", "input": "Hi.", "temperature": -Infinity}', "temperature", "finite"),
        ('{"model": "voxcpm2", "input": "Hi.", "seed": NaN}', "seed", "integer"),
        ('{"model": "voxcpm2", "input": "\\ud800"}', "input", "valid Unicode"),
        ('{"model": "voxcpm2", "input": "Hi.", "frequency": 1}', "frequency", "not a parameter"),
        ('{"model": "voxcpm2", "input": "Hi.", "\\ud800": 1}', None, "JSON object"),
    ],
)
async def test_bad_bodies(content: str, param: str | None, said: str) -> None:
    async with in_process(factory(FakeEngine())) as service:
        answer = await service.client.post(SPEECH, content=content, headers=JSON)
    assert said in check(answer, 400, "invalid_request", param)


async def test_several_problems_in_one_answer() -> None:
    async with in_process(factory(FakeEngine())) as service:
        answer = await service.client.post(SPEECH, json={"input": 5, "cfg_value": 99, "x" * 500: 1})
    message = check(answer, 400, "invalid_request", "cfg_value")
    assert "cfg_value: input should be less than or equal to 10; model is required; input: " in message
    assert "; xxx" in message
    assert len(message) < 500


@pytest.mark.parametrize("headers", [{"content-type": "text/plain"}, {"content-type": ""}])
async def test_wrong_content_type(headers: dict[str, str]) -> None:
    async with in_process(factory(FakeEngine())) as service:
        answer = await service.client.post(SPEECH, content='{"model": "voxcpm2"}', headers=headers)
    assert "application/json" in check(answer, 415, "unsupported_media_type")


async def test_routes_and_methods() -> None:
    async with in_process(factory(FakeEngine())) as service:
        check(await service.client.get("/nowhere"), 404, "not_found")
        check(await service.client.post("/v1/audio/speech/"), 404, "not_found")
        answer = await service.client.get(SPEECH)
        check(answer, 405, "method_not_allowed")
        assert answer.headers["allow"] == "POST"


async def test_a_huge_body_is_refused() -> None:
    async with in_process(factory(FakeEngine())) as service:
        body = BODY | {"reference_audio": "x" * 16 * MAX_BODY_BYTES}  # room for a recording, but not for all
        check(await service.client.post(SPEECH, json=body), 413, "request_too_large")


async def test_unexpected_errors_say_nothing_of_the_inside(caplog: pytest.LogCaptureFixture) -> None:
    engine = FakeEngine(fail_at=0, error=RuntimeError("secret path"))
    async with in_process(factory(FakeEngine())) as service:
        service.speech.pipeline.engine = engine
        with caplog.at_level(logging.ERROR):
            answer = await service.client.post(SPEECH, json=BODY)
    assert "secret" not in check(answer, 500, "internal_error")
    assert any(record.exc_info for record in caplog.records)


async def test_request_ids() -> None:
    async with in_process(factory(FakeEngine())) as service:
        for given, kept in (("abc-123", True), ("x" * 129, False), ("a b", False), ("", False)):
            answer = await service.client.get("/healthz", headers={"x-request-id": given})
            assert (answer.headers["x-request-id"] == given) is kept
