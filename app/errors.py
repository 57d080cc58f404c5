"""Every error that a caller can meet, and what it becomes on the wire.

    VoxserveError
    ├── InvalidRequest          the request cannot be served as it stands; says what to change
    │   └── UnsupportedVoice
    ├── UnknownModel            the model named is not served here
    ├── NotFound                what is asked for by id is not there
    ├── Overloaded              more requests than the engine is to hold
    ├── EngineUnavailable
    │   ├── EngineStarting      not ready yet; says which stage it is in
    │   └── EngineDead          the engine's process ended; the service stops
    ├── GenerationFailed        this request broke inside the engine; others go on
    └── StorageFailed           the voice library's files cannot be read or written

`WIRE` is the one table from class to HTTP status and OpenAI error type and code.
"""

from dataclasses import dataclass


class VoxserveError(Exception):
    """Base of all; `str()` is the message for the caller, `param` the field to blame."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class InvalidRequest(VoxserveError):
    """The request cannot be served as it stands."""


class UnsupportedVoice(InvalidRequest):
    """No such voice."""


class UnknownModel(VoxserveError):
    """No such model."""


class NotFound(VoxserveError):
    """No such voice, or no such consent."""


class Overloaded(VoxserveError):
    """More requests than the engine is to hold."""


class EngineUnavailable(VoxserveError):
    """The engine cannot take requests."""


class EngineStarting(EngineUnavailable):
    """The engine is not ready yet."""


class EngineDead(EngineUnavailable):
    """The engine's process ended."""


class GenerationFailed(VoxserveError):
    """This request broke inside the engine."""


class StorageFailed(VoxserveError):
    """Files cannot be read or written."""


@dataclass(frozen=True)
class Wire:
    """An error on the wire: HTTP status, OpenAI error type and code, and when to try again."""

    status: int
    type: str
    code: str
    retry_after_s: int | None = None


OVERLOADED_RETRY_S = 1  # the queue moves with every request that ends
ENGINE_START_RETRY_S = 5  # a start takes about a minute; polling more often than this tells nobody more
ENGINE_DEAD_RETRY_S = 30  # the process has to come back first


WIRE: dict[type[VoxserveError], Wire] = {
    InvalidRequest: Wire(400, "invalid_request_error", "invalid_request"),
    UnsupportedVoice: Wire(400, "invalid_request_error", "unsupported_voice"),
    UnknownModel: Wire(404, "invalid_request_error", "model_not_found"),
    NotFound: Wire(404, "invalid_request_error", "not_found"),
    Overloaded: Wire(429, "rate_limit_error", "engine_overloaded", OVERLOADED_RETRY_S),
    EngineStarting: Wire(503, "server_error", "engine_starting", ENGINE_START_RETRY_S),
    EngineDead: Wire(503, "server_error", "engine_dead", ENGINE_DEAD_RETRY_S),
    GenerationFailed: Wire(500, "server_error", "generation_failed"),
    StorageFailed: Wire(500, "server_error", "storage_failed"),
}


def dead_message(engine: str) -> str:
    """What callers hear once an engine's process has ended."""
    return f"the {engine} engine died: the service stops, try again in a minute"


def wire_of(error: VoxserveError) -> Wire:
    """The table's entry of the error's class, or of the nearest class above it."""
    return next(WIRE[cls] for cls in type(error).__mro__ if cls in WIRE)


def error_body(message: str, type_: str, code: str | None, param: str | None = None) -> dict[str, object]:
    """An OpenAI error object: always all four keys."""
    return {"error": {"message": message, "type": type_, "param": param, "code": code}}
