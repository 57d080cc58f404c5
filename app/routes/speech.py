"""OpenAI's text to speech.

Whatever can be refused is refused before the answer begins: a streamed one waits for its first patch too.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from fastapi import APIRouter, Request
from starlette.responses import Response

from app.deps import SettingsDep, SpeechDep, VoicesDep
from app.disconnect import unless_gone
from app.errors import GenerationFailed, InvalidRequest
from app.pipeline.encode import CONTAINERS
from app.pipeline.generation import Generation, draw_seed
from app.pipeline.pcm import BYTES_PER_SAMPLE, speak_pcm
from app.pipeline.speech import SpeechRequest
from app.routes.models import check_speech_model
from app.schemas import ErrorBody, SpeechBody
from app.settings import Settings
from app.streaming import StreamedAnswer
from app.voices.resolver import Voice

router = APIRouter(prefix="/v1/audio", tags=["speech"])


@router.post(
    "/speech",
    response_class=Response,
    responses={
        200: {"content": {container.media_type: {} for container in CONTAINERS.values()}},
        "4XX": {"model": ErrorBody},
        "5XX": {"model": ErrorBody},
    },
)
async def create_speech(
    body: SpeechBody, request: Request, speech: SpeechDep, voices: VoicesDep, settings: SettingsDep
) -> Response:
    """Speak a text. Headers of the answer give its sample rate, seed and, where it comes whole, duration."""
    _check(body, settings)
    voice = await voices.resolve(body.voice)
    pipeline = speech.pipeline
    spoken = _speech_request(body, voice)
    prompt = await pipeline.prepare(spoken)
    chunks = speak_pcm(pipeline, prompt, spoken.generation)
    container = CONTAINERS[body.response_format]
    rate = pipeline.sample_rate
    headers = {"x-sample-rate": str(rate), "x-seed": str(spoken.generation.seed)}
    if container.streams if body.stream is None else body.stream:
        first = await unless_gone(_first(chunks), request.receive)
        head = container.header(rate, None) + first
        return StreamedAnswer(head, chunks, speech.count_aborted_stream, container.media_type, headers)
    pcm = await unless_gone(_whole(chunks), request.receive)
    headers["x-audio-duration"] = f"{len(pcm) / BYTES_PER_SAMPLE / rate:.3f}"
    return Response(container.header(rate, len(pcm)) + pcm, 200, headers, container.media_type)


def _check(body: SpeechBody, settings: Settings) -> None:
    """What depends on the settings; the rest the schema has checked."""
    check_speech_model(body.model, settings)
    limit = settings.max_input_chars
    if len(body.input) > limit:
        raise InvalidRequest(
            f"the text has {len(body.input)} characters, the limit is {limit}: send it in parts", "input"
        )


def _speech_request(body: SpeechBody, voice: Voice) -> SpeechRequest:
    seed = voice.seed if body.seed is None else body.seed
    asked = "cfg_value" in body.model_fields_set
    generation = Generation(
        seed=draw_seed() if seed is None else seed,
        cfg=body.cfg_value if asked or voice.cfg is None else voice.cfg,
        steps=body.inference_timesteps,
        temperature=body.temperature,
        min_patches=body.min_patches,
        max_patches=body.max_patches,
    )
    return SpeechRequest(
        text=body.input,
        generation=generation,
        reference=voice.reference,
        prompt=voice.reference if voice.transcript else None,
        prompt_text=voice.transcript,
        description=voice.description,
    )


async def _first(chunks: AsyncGenerator[bytes, None]) -> bytes:
    async for chunk in chunks:
        return chunk
    raise GenerationFailed("the engine made no audio: try again")


async def _whole(chunks: AsyncGenerator[bytes, None]) -> bytes:
    async with aclosing(chunks):
        return b"".join([chunk async for chunk in chunks])
