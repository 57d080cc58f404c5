"""Every error becomes an OpenAI error object: ours, those of validation, and those of routing."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from app.disconnect import ClientGone
from app.errors import InvalidRequest, VoxserveError, error_body, wire_of

CLIENT_GONE_STATUS = 499  # nginx's; nobody receives it, the access log shows it
MAX_NAME_CHARS = 64  # of a field's name that a client made up
MAX_PROBLEMS = 5  # told of a body, which may have thousands
USER_ERROR = "invalid_request_error"
UNREADABLE = "There was an error parsing the body"  # FastAPI's, of what is not even JSON with a mistake
STATUS_CODES = {
    400: "invalid_request",
    404: "not_found",
    405: "method_not_allowed",
    413: "request_too_large",
    415: "unsupported_media_type",
}


def add_error_handlers(app: FastAPI) -> None:
    """Let `app` answer errors as OpenAI does."""
    app.add_exception_handler(VoxserveError, _voxserve_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(ClientGone, _client_gone)


def error_response(
    status: int, body: Mapping[str, object], headers: Mapping[str, str] | None = None
) -> Response:
    """A JSON answer. Escaped to ASCII, since names that clients make up need not be valid Unicode."""
    return Response(json.dumps(body), status, headers, "application/json")


async def _voxserve_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, VoxserveError)
    return voxserve_error_response(error)


def voxserve_error_response(error: VoxserveError) -> Response:
    """An error of ours as an answer."""
    wire = wire_of(error)
    headers = {"retry-after": str(wire.retry_after_s)} if wire.retry_after_s else None
    return error_response(wire.status, error_body(str(error), wire.type, wire.code, error.param), headers)


async def _validation_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    if isinstance(error.body, bytes):
        message = "the body is not declared as JSON: send it with content-type: application/json"
        return error_response(415, error_body(message, USER_ERROR, "unsupported_media_type"))
    found = invalid_request(error.errors())
    return error_response(400, error_body(str(found), USER_ERROR, "invalid_request", found.param))


def invalid_request(problems: Sequence[Mapping[str, Any]]) -> InvalidRequest:
    """Problems that pydantic found, as one error. The first part of a location, `body`, is not a field's."""
    told = list(dict.fromkeys(map(_describe, problems)))
    more = [f"and {len(told) - MAX_PROBLEMS} more"] if len(told) > MAX_PROBLEMS else []
    return InvalidRequest("; ".join(told[:MAX_PROBLEMS] + more), _field(problems[0]))


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = {
        404: f"there is no {request.url.path}: /docs lists what there is",
        405: f"{request.method} is not allowed on {request.url.path}: /docs lists what is",
    }.get(error.status_code, str(error.detail))
    if error.detail == UNREADABLE:
        message = "the body cannot be read: send JSON in UTF-8, with no number and no nesting beyond reason"
    code = STATUS_CODES.get(error.status_code)
    return error_response(error.status_code, error_body(message, USER_ERROR, code), error.headers)


async def _client_gone(_request: Request, _error: Exception) -> Response:
    return Response(status_code=CLIENT_GONE_STATUS)


def _field(problem: Mapping[str, Any]) -> str | None:
    location: Sequence[int | str] = problem["loc"]
    names = [str(part)[:MAX_NAME_CHARS] for part in location[1:]]
    return None if problem["type"] == "json_invalid" or not names else ".".join(names)


def _describe(problem: Mapping[str, Any]) -> str:
    kind, field = problem["type"], _field(problem)
    if kind == "json_invalid":
        return f"the body is not valid JSON ({problem['ctx']['error']} at character {problem['loc'][1]})"
    message = str(problem["msg"]).removeprefix("Value error, ")
    if kind == "value_error" and field is None:
        return message  # of fields that contradict each other
    if field is None:
        return (
            "the body is empty: send a JSON object" if kind == "missing" else "the body must be a JSON object"
        )
    if kind == "missing":
        return f"{field} is required"
    if kind == "extra_forbidden":
        return f"{field} is not a parameter of this route: leave it out"
    return f"{field}: {message[:1].lower()}{message[1:]}"
