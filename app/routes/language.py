"""OpenAI's text endpoints, and vLLM's for token ids."""

from collections.abc import AsyncGenerator
from typing import Annotated, Any

from fastapi import APIRouter, Body, Request
from starlette.responses import Response

from app.deps import LanguageDep, SettingsDep
from app.disconnect import unless_gone
from app.errors import GenerationFailed, UnknownModel
from app.language.pipeline import Endpoint, JsonObject
from app.routes.models import check_language_model
from app.schemas import ErrorBody
from app.settings import Settings
from app.streaming import StreamedAnswer

router = APIRouter(tags=["language"], responses={"4XX": {"model": ErrorBody}, "5XX": {"model": ErrorBody}})

EVENT_STREAM = "text/event-stream"
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
    if name is not None:  # vLLM's clients may leave it out, since there is but one
        check_language_model(name if isinstance(name, str) else repr(name), settings)
    answer = await unless_gone(language.pipeline.answer(endpoint, body), request.receive)
    if isinstance(answer, bytes):
        return Response(answer, media_type="application/json")
    first = await unless_gone(_first(answer), request.receive)
    return StreamedAnswer(
        first, answer, language.count_aborted_stream, EVENT_STREAM, {"cache-control": "no-cache"}
    )


async def _first(events: AsyncGenerator[bytes, None]) -> bytes:
    async for event in events:
        return event
    raise GenerationFailed("the engine said nothing: try again")
