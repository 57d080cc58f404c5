"""vLLM's errors as the service's own.

vLLM names some fields by what it made of them; `FIELDS` gives the name that the client knows.
"""

import json
import logging
import re
from http import HTTPStatus

from vllm.entrypoints.serve.engine.protocol import ErrorResponse
from vllm.entrypoints.serve.exception_handling.error_response import create_error_response
from vllm.exceptions import VLLMValidationError

from app.errors import (
    GenerationFailed,
    InvalidRequest,
    Overloaded,
    VoxserveError,
    error_body,
    wire_of,
)
from app.language.pipeline import Endpoint

FAILED = "the language engine failed on this request: see the log"
PROMPT: dict[Endpoint, str] = {
    "chat": "messages",
    "completion": "prompt",
    "response": "input",
    "tokenize": "prompt",
    "detokenize": "tokens",
}
PROMPT_FIELDS = ("input_tokens", "input_text")  # vLLM's names of the rendered prompt
OF_THE_PROMPT = re.compile("Token id -?[0-9]+ is out of vocabulary|.* is not a multimodal model")
FIELD_FIRST = re.compile("([a-z][a-z_]*) (must|cannot) ")  # how messages begin that come without a field

logger = logging.getLogger(__name__)


def from_exception(error: Exception, endpoint: Endpoint) -> VoxserveError:
    """What a handler raised."""
    response = create_error_response(error)
    if isinstance(error, VLLMValidationError):
        response.error.message = str(error.args[0])  # without the value, which may be a whole prompt
    if response.error.code >= HTTPStatus.INTERNAL_SERVER_ERROR:
        logger.error("the engine failed on a request", exc_info=error)
    return from_response(response, endpoint)


def from_response(response: ErrorResponse, endpoint: Endpoint) -> VoxserveError:
    """What a handler returned, or a stream said."""
    error = response.error
    param = (
        PROMPT[endpoint] if error.param in PROMPT_FIELDS else error.param or _field(error.message, endpoint)
    )
    if error.code == HTTPStatus.SERVICE_UNAVAILABLE:
        return Overloaded(error.message)
    if error.code < HTTPStatus.INTERNAL_SERVER_ERROR or error.code == HTTPStatus.NOT_IMPLEMENTED:
        return InvalidRequest(error.message, param)
    return GenerationFailed(FAILED)


def _field(message: str, endpoint: Endpoint) -> str | None:
    """The field that a message speaks of."""
    if OF_THE_PROMPT.match(message):
        return PROMPT[endpoint]
    found = FIELD_FIRST.match(message)
    return found[1] if found else None


def as_event(error: VoxserveError) -> bytes:
    """An error within a stream of server-sent events."""
    wire = wire_of(error)
    return f"data: {json.dumps(error_body(str(error), wire.type, wire.code, error.param))}\n\n".encode()
