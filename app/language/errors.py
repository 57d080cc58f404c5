"""vLLM's errors as the service's own.

vLLM names some fields by what it made of them; `FIELDS` gives the name that the client knows.
"""

import logging
import re
from http import HTTPStatus

from vllm.entrypoints.serve.engine.protocol import ErrorResponse
from vllm.entrypoints.serve.exception_handling.error_response import create_error_response
from vllm.exceptions import VLLMValidationError

from app.errors import GenerationFailed, InvalidRequest, Overloaded, VoxserveError
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

MAX_MESSAGE_CHARS = 300  # of what vLLM and others say; some repeat the whole request

logger = logging.getLogger(__name__)


def shortened(text: str) -> str:
    """A text that may be as long as a request, at a length for messages."""
    return text if len(text) <= MAX_MESSAGE_CHARS else f"{text[:MAX_MESSAGE_CHARS]}..."


def from_exception(raised: Exception, endpoint: Endpoint) -> VoxserveError:
    """What a handler raised."""
    response = create_error_response(raised)
    if isinstance(raised, VLLMValidationError):
        response.error.message = str(raised.args[0])  # without the value, which may be a whole prompt
    ours = _translated(response, endpoint)
    if isinstance(ours, GenerationFailed):
        logger.error("the engine failed on a request", exc_info=raised)
    return ours


def from_response(response: ErrorResponse, endpoint: Endpoint) -> VoxserveError:
    """What a handler returned, or a stream said."""
    ours = _translated(response, endpoint)
    if isinstance(ours, GenerationFailed):
        logger.error("the engine failed on a request: %s", shortened(response.error.message))
    return ours


def _translated(response: ErrorResponse, endpoint: Endpoint) -> VoxserveError:
    error = response.error
    message = shortened(error.message)
    param = PROMPT[endpoint] if error.param in PROMPT_FIELDS else error.param or _field(message, endpoint)
    if error.code == HTTPStatus.SERVICE_UNAVAILABLE:
        return Overloaded(message)
    if error.code < HTTPStatus.INTERNAL_SERVER_ERROR or error.code == HTTPStatus.NOT_IMPLEMENTED:
        return InvalidRequest(message, param)
    return GenerationFailed(FAILED)


def _field(message: str, endpoint: Endpoint) -> str | None:
    """The field that a message speaks of."""
    if OF_THE_PROMPT.match(message):
        return PROMPT[endpoint]
    found = FIELD_FIRST.match(message)
    return found[1] if found else None
