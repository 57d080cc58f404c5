"""OpenAI's text to speech.

Whatever can be refused is refused before the answer begins: a streamed one waits for its first audio too.
"""

import base64
import json
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any

from fastapi import APIRouter, Body, Request
from starlette.responses import Response

from app.audio.formats import FORMATS
from app.deps import SettingsDep, SpeakerDep, SpeechDep
from app.disconnect import unless_gone
from app.errors import GenerationFailed, VoxserveError, error_body, wire_of
from app.routes.models import check_speech_model
from app.schemas import ErrorBody, SpeechBody
from app.speaking import Spoken, one_by_one
from app.streaming import StreamedAnswer

PATH = "/v1/audio/speech"
router = APIRouter(tags=["speech"])

EVENT_STREAM = "text/event-stream"
EXAMPLES: dict[str, Any] = {
    "whole": {"value": {"model": "voxcpm2", "voice": "alloy", "input": "Hello world."}},
    "streamed": {
        "value": {"model": "voxcpm2", "voice": "alloy", "input": "Hello world.", "response_format": "pcm"}
    },
    "described": {
        "value": {"model": "voxcpm2", "input": "Hello world.", "instructions": "a calm old man, whispering"}
    },
}


@router.post(
    PATH,
    response_class=Response,
    responses={
        200: {"content": {form.media_type: {} for form in FORMATS.values()} | {EVENT_STREAM: {}}},
        "4XX": {"model": ErrorBody},
        "5XX": {"model": ErrorBody},
    },
)
async def create_speech(
    body: Annotated[SpeechBody, Body(openapi_examples=EXAMPLES)],
    request: Request,
    speech: SpeechDep,
    speaker: SpeakerDep,
    settings: SettingsDep,
) -> Response:
    """Speak a text. Headers tell the sample rate, the seed, and, where it comes whole, the duration."""
    check_speech_model(body.model, settings)
    parts = await speaker.parts(body.input)
    began = time.monotonic()
    manner = await speaker.manner(body)
    form = manner.output.format
    events = body.stream_format == "sse"
    streamed = events or (form.streams if body.stream is None else body.stream)
    spoken = speaker.speak(manner, one_by_one(parts), streamed=streamed)
    headers = {
        "x-sample-rate": str(manner.output.rate),
        "x-seed": str(manner.request.generation.seed),
    }
    if not streamed:
        audio = await unless_gone(_whole(spoken.audio), request.receive)
        seconds = spoken.utterance.seconds / manner.speed
        headers |= {"x-audio-duration": f"{seconds:.3f}", **_timing(spoken, began)}
        return Response(audio, 200, headers, form.media_type)
    chunks = _events(spoken) if events else spoken.audio
    first = await unless_gone(_first(chunks), request.receive)
    media_type = EVENT_STREAM if events else form.media_type
    headers |= {"cache-control": "no-cache", **_timing(spoken, began)}
    return StreamedAnswer(first, chunks, speech.count_aborted_stream, media_type, headers)


def _timing(spoken: Spoken, began: float) -> dict[str, str]:
    """In the form of the Server-Timing specification, in milliseconds."""
    first_s = spoken.utterance.progress.first_s or 0.0
    total_s = time.monotonic() - began
    return {"server-timing": f"first-audio;dur={1000 * first_s:.1f}, total;dur={1000 * total_s:.1f}"}


async def _events(spoken: Spoken) -> AsyncGenerator[bytes, None]:
    """Server-sent events of OpenAI's kind; an error after the first is an event too."""
    begun = False
    try:
        async with aclosing(spoken.audio) as chunks:
            async for chunk in chunks:
                yield _event({"type": "speech.audio.delta", "audio": base64.b64encode(chunk).decode()})
                begun = True
    except VoxserveError as error:
        if not begun:
            raise
        wire = wire_of(error)
        body = error_body(str(error), wire.type, wire.code, error.param)
        yield _event({"type": "speech.audio.error", **body})
        raise
    text_tokens, patches = spoken.utterance.text_tokens, spoken.utterance.progress.patches
    usage = {"input_tokens": text_tokens, "output_tokens": patches, "total_tokens": text_tokens + patches}
    yield _event({"type": "speech.audio.done", "usage": usage})


def _event(content: dict[str, Any]) -> bytes:
    return f"event: {content['type']}\ndata: {json.dumps(content)}\n\n".encode()


async def _first(chunks: AsyncGenerator[bytes, None]) -> bytes:
    async for chunk in chunks:
        return chunk
    raise GenerationFailed("the engine made no audio: try again")


async def _whole(chunks: AsyncGenerator[bytes, None]) -> bytes:
    async with aclosing(chunks):
        return b"".join([chunk async for chunk in chunks])
