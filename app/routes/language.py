"""OpenAI's text endpoints, and vLLM's for token ids."""

import json
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Annotated, Any

from fastapi import APIRouter, Body, Request
from starlette.responses import Response

from app.deps import LanguageDep, SettingsDep
from app.disconnect import unless_gone
from app.errors import GenerationFailed, UnknownModel, VoxserveError, error_body, wire_of
from app.language.pipeline import Endpoint, JsonObject
from app.routes.models import check_language_model
from app.schemas import ErrorBody
from app.settings import Settings
from app.streaming import StreamedAnswer

router = APIRouter(tags=["language"], responses={"4XX": {"model": ErrorBody}, "5XX": {"model": ErrorBody}})

logger = logging.getLogger(__name__)

PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/tokenize", "/detokenize")
MAX_BODY_BYTES = 16 * 2**20  # a million tokens of context take some 7 bytes each, escaped more
EVENT_STREAM = "text/event-stream"
DONE = b"data: [DONE]\n\n"  # how OpenAI ends streams, those of responses excepted, whose clients pass it over
EXAMPLE_CHAT = {"model": "mimo-v2", "messages": [{"role": "user", "content": "Hello!"}], "stream": True}
EXAMPLE_TEXT = {"model": "mimo-v2", "prompt": "Once upon a time", "max_tokens": 64}
EXAMPLE_RESPONSE = {"model": "mimo-v2", "input": "Hello!"}
EXAMPLE_TOKENS = {"model": "mimo-v2", "tokens": [263, 264]}
STREAMS: dict[int | str, dict[str, Any]] = {200: {"content": {"application/json": {}, EVENT_STREAM: {}}}}


@router.post("/v1/chat/completions", responses=STREAMS)
async def create_chat_completion(
    body: Annotated[JsonObject, Body(examples=[EXAMPLE_CHAT])],
    request: Request,
    language: LanguageDep,
    settings: SettingsDep,
) -> Response:
    """Continue a conversation, as OpenAI does.

    Reasoning is off by default; `reasoning_effort`, or `chat_template_kwargs: {"enable_thinking": true}`,
    switches it on.
    """
    return await _answer("chat", body, request, language, settings)


@router.post("/v1/completions", responses=STREAMS)
async def create_completion(
    body: Annotated[JsonObject, Body(examples=[EXAMPLE_TEXT])],
    request: Request,
    language: LanguageDep,
    settings: SettingsDep,
) -> Response:
    """Continue a text, as OpenAI did."""
    return await _answer("completion", body, request, language, settings)


@router.post("/v1/responses", responses=STREAMS)
async def create_response(
    body: Annotated[JsonObject, Body(examples=[EXAMPLE_RESPONSE])],
    request: Request,
    language: LanguageDep,
    settings: SettingsDep,
) -> Response:
    """Answer, as OpenAI's responses API does; nothing is stored."""
    return await _answer("response", body, request, language, settings)


@router.post("/tokenize")
async def tokenize(
    body: Annotated[JsonObject, Body(examples=[EXAMPLE_CHAT, EXAMPLE_TEXT])],
    request: Request,
    language: LanguageDep,
    settings: SettingsDep,
) -> Response:
    """Token ids of a text (`prompt`), or of a conversation (`messages`) as the model sees it."""
    return await _answer("tokenize", body, request, language, settings)


@router.post("/detokenize")
async def detokenize(
    body: Annotated[JsonObject, Body(examples=[EXAMPLE_TOKENS])],
    request: Request,
    language: LanguageDep,
    settings: SettingsDep,
) -> Response:
    """Text of token ids (`tokens`)."""
    return await _answer("detokenize", body, request, language, settings)


@router.post("/v1/embeddings", include_in_schema=False)
async def refuse_embeddings() -> Response:
    """Say that there are none, in a way that clients understand."""
    raise UnknownModel("embeddings are not served here: neither model makes them", "model")


async def _answer(
    endpoint: Endpoint, body: JsonObject, request: Request, language: LanguageDep, settings: Settings
) -> Response:
    """Answer whole, or as a stream that begins once its first event is there."""
    name = body.get("model")
    if isinstance(name, str):  # vLLM's clients may leave it out, since there is but one
        check_language_model(name, settings)
    answer = await unless_gone(language.pipeline.answer(endpoint, body), request.receive)
    if isinstance(answer, bytes):
        return Response(answer, media_type="application/json")
    events = _events(answer, language.count_aborted_stream)
    first = await unless_gone(_first(events), request.receive)
    return StreamedAnswer(
        first, events, language.count_aborted_stream, EVENT_STREAM, {"cache-control": "no-cache"}
    )


async def _first(events: AsyncGenerator[bytes, None]) -> bytes:
    async for event in events:
        return event
    raise GenerationFailed("the engine said nothing: try again")


async def _events(
    answer: AsyncGenerator[bytes, None], on_abort: Callable[[], None]
) -> AsyncGenerator[bytes, None]:
    """An answer's events. An error in the place of the first is raised, a later one is an event."""
    begun = False
    async with aclosing(answer):
        try:
            async for event in answer:
                yield event
                begun = True
        except VoxserveError as error:
            if not begun:
                raise
            on_abort()
            logger.error("stream aborted: %s", error)
            yield _error_event(error)
            yield DONE


def _error_event(error: VoxserveError) -> bytes:
    wire = wire_of(error)
    return f"data: {json.dumps(error_body(str(error), wire.type, wire.code, error.param))}\n\n".encode()
