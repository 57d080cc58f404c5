"""vLLM's errors as the service's own: which, of which field, and never with the whole request in it."""

import logging
from http import HTTPStatus

import pytest
from vllm.entrypoints.serve.engine.protocol import ErrorInfo, ErrorResponse
from vllm.exceptions import (
    GenerationError,
    QueueOverflowError,
    RetryableRequestError,
    VLLMNotFoundError,
    VLLMUnprocessableEntityError,
    VLLMValidationError,
)

from app.errors import GenerationFailed, InvalidRequest, Overloaded, VoxserveError
from app.language.errors import FAILED, MAX_MESSAGE_CHARS, from_exception, from_response, shortened
from app.language.pipeline import Endpoint

SECRET = "the whole prompt of somebody " * 100


class TemplateError(Exception):
    """As jinja2's: known by its name alone."""


@pytest.mark.parametrize(
    ("error", "expected", "message", "param"),
    [
        (VLLMValidationError("too long", parameter="max_tokens"), InvalidRequest, "too long", "max_tokens"),
        (VLLMValidationError("no", parameter="input_tokens"), InvalidRequest, "no", "messages"),
        (VLLMValidationError("no", parameter="input_text", value=SECRET), InvalidRequest, "no", "messages"),
        (
            VLLMValidationError("n must be at least 1, got 0."),
            InvalidRequest,
            "n must be at least 1, got 0.",
            "n",
        ),
        (VLLMValidationError("Nothing fits"), InvalidRequest, "Nothing fits", None),
        (
            ValueError("Token id 999 is out of vocabulary"),
            InvalidRequest,
            "Token id 999 is out of vocabulary",
            "messages",
        ),
        (ValueError("top_k cannot be 0"), InvalidRequest, "top_k cannot be 0", "top_k"),
        (TypeError("odd"), InvalidRequest, "odd", None),
        (OverflowError("too big"), InvalidRequest, "too big", None),
        (NotImplementedError("no beams"), InvalidRequest, "no beams", None),
        (TemplateError("roles must alternate"), InvalidRequest, "roles must alternate", "roles"),
        (VLLMNotFoundError("no such response"), InvalidRequest, "no such response", None),
        (VLLMUnprocessableEntityError("no image", parameter="messages"), InvalidRequest, None, "messages"),
        (QueueOverflowError(), Overloaded, None, None),
        (RetryableRequestError(), Overloaded, None, None),
        (GenerationError(), GenerationFailed, FAILED, None),
        (RuntimeError("secret path"), GenerationFailed, FAILED, None),
        (AttributeError("secret name"), GenerationFailed, FAILED, None),
        (KeyError("secret key"), GenerationFailed, FAILED, None),
    ],
)
def test_exceptions(
    error: Exception, expected: type[VoxserveError], message: str | None, param: str | None
) -> None:
    ours = from_exception(error, "chat")
    assert type(ours) is expected
    assert ours.param == param
    assert message in (None, str(ours))
    assert "secret" not in str(ours)
    assert SECRET[:50] not in str(ours)


@pytest.mark.parametrize(
    ("endpoint", "param"),
    [
        ("chat", "messages"),
        ("completion", "prompt"),
        ("response", "input"),
        ("tokenize", "prompt"),
        ("detokenize", "tokens"),
    ],
)
def test_the_prompt_has_the_name_that_the_client_knows(endpoint: Endpoint, param: str) -> None:
    for error in (
        VLLMValidationError("too long", parameter="input_tokens"),
        ValueError("Token id -1 is out of vocabulary"),
        ValueError("this is not a multimodal model"),
    ):
        assert from_exception(error, endpoint).param == param


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (HTTPStatus.BAD_REQUEST, InvalidRequest),
        (HTTPStatus.NOT_FOUND, InvalidRequest),
        (HTTPStatus.UNPROCESSABLE_ENTITY, InvalidRequest),
        (HTTPStatus.NOT_IMPLEMENTED, InvalidRequest),
        (HTTPStatus.SERVICE_UNAVAILABLE, Overloaded),
        (HTTPStatus.INTERNAL_SERVER_ERROR, GenerationFailed),
        (HTTPStatus.BAD_GATEWAY, GenerationFailed),
    ],
)
def test_responses(code: HTTPStatus, expected: type[VoxserveError]) -> None:
    response = ErrorResponse(error=ErrorInfo(message="why", type="T", param="stop", code=code))
    ours = from_response(response, "chat")
    assert type(ours) is expected
    assert str(ours) == (FAILED if expected is GenerationFailed else "why")
    assert ours.param == ("stop" if expected is InvalidRequest else None)


def test_what_the_log_is_said_to_tell_is_there(caplog: pytest.LogCaptureFixture) -> None:
    from_exception(RuntimeError("the inner reason"), "chat")
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert "the inner reason" in caplog.text
    caplog.clear()
    response = ErrorResponse(error=ErrorInfo(message="another reason", type="T", code=500))
    from_response(response, "chat")
    assert "another reason" in caplog.text
    assert len(caplog.records) == 1


def test_mistakes_of_clients_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="app"):
        from_exception(VLLMValidationError("no", parameter="input_text", value=SECRET), "chat")
    assert [record for record in caplog.records if record.name.startswith("app")] == []


def test_long_messages_are_cut() -> None:
    for error in (ValueError(SECRET), VLLMValidationError(SECRET, parameter="messages")):
        assert len(str(from_exception(error, "chat"))) <= MAX_MESSAGE_CHARS + 3
    assert shortened("a" * MAX_MESSAGE_CHARS) == "a" * MAX_MESSAGE_CHARS
    assert shortened("a" * MAX_MESSAGE_CHARS + "b") == "a" * MAX_MESSAGE_CHARS + "..."
