"""The voice library in OpenAI's shapes, which Open WebUI's and vllm-omni's clients read too."""

from typing import Any, NoReturn

from fastapi import APIRouter, Request

from app.deps import SettingsDep, VoicesDep
from app.errors import InvalidRequest
from app.pipeline.generation import draw_seed
from app.routes.forms import (
    FORM,
    JSON,
    Form,
    checked_form,
    checked_json,
    media_type,
    not_served,
    read_form,
    read_json,
)
from app.routes.models import check_speech_model
from app.schemas import ErrorBody
from app.settings import Settings
from app.voice_schemas import BINARY, PromptVoiceBody, SampleVoiceForm, VoiceDeleted, VoiceList, VoiceObject
from app.voices.records import VoiceRecord
from app.voices.resolver import Voices

router = APIRouter(
    prefix="/v1/audio/voices",
    tags=["voices"],
    responses={"4XX": {"model": ErrorBody}, "5XX": {"model": ErrorBody}},
)

FILE = "audio_sample"
EXAMPLE_ID = "voice_5f0c4a3e9b1d2f6078c1a2b3"
EXAMPLE_PROMPT = {"type": "prompt", "name": "Narrator", "prompt": "an old man with a warm, slow voice"}
EXAMPLE_VOICE = {
    "object": "audio.voice",
    "id": EXAMPLE_ID,
    "name": "Anna",
    "created_at": 1790000000,
    "type": "audio_sample",
    "transcript": "The quick brown fox jumps over the lazy dog.",
    "duration": 4.2,
    "sample_rate": 48000,
}
EXAMPLE_LIST = {
    "object": "list",
    "data": [EXAMPLE_VOICE],
    "has_more": False,
    "voices": [{"id": "default", "name": "default"}, {"id": EXAMPLE_ID, "name": "Anna"}],
    "uploaded_voices": [
        {
            "name": "Anna",
            "consent": "",
            "created_at": 1790000000,
            "file_size": 402123,
            "mime_type": "audio/flac",
            "ref_text": "The quick brown fox jumps over the lazy dog.",
        }
    ],
}


def _sample_schema() -> dict[str, Any]:
    schema = SampleVoiceForm.model_json_schema()
    schema["properties"][FILE] = BINARY | {
        "description": "The recording: 1 to `VOICES_MAX_SECONDS` seconds of WAV, MP3, FLAC, OGG, M4A or WEBM."
    }
    schema["required"] = [*schema["required"], FILE]
    return schema


BODIES = {
    "requestBody": {
        "required": True,
        "content": {
            FORM: {
                "schema": {"oneOf": [_sample_schema(), PromptVoiceBody.model_json_schema()]},
                "example": {"name": "Anna", FILE: "(a file)", "transcript": EXAMPLE_VOICE["transcript"]},
            },
            JSON: {"schema": PromptVoiceBody.model_json_schema(), "example": EXAMPLE_PROMPT},
        },
    }
}


def _example(example: dict[str, Any]) -> dict[int | str, dict[str, Any]]:
    return {200: {"content": {JSON: {"example": example}}}}


@router.post("", openapi_extra=BODIES, response_model_exclude_none=True, responses=_example(EXAMPLE_VOICE))
async def create_voice(request: Request, voices: VoicesDep, settings: SettingsDep) -> VoiceObject:
    """Make a voice: of a recording (a form), or of a description (`type: prompt`, a form or JSON).

    The channels of the recording are mixed. With a transcript speech continues the recording, which keeps its
    manner; without one it imitates the voice only.
    """
    if media_type(request) == JSON:
        return VoiceObject.of(await _create_from_json(await read_json(request), voices, settings))
    if media_type(request) != FORM:
        raise not_served(FORM, JSON)
    async with read_form(request) as form:
        return VoiceObject.of(await _create_from_form(form, voices, settings))


@router.get("", response_model_exclude_none=True, responses=_example(EXAMPLE_LIST))
async def list_voices(voices: VoicesDep) -> VoiceList:
    """All voices: those of the library in `data`, all that `voice` may be in `voices`."""
    return VoiceList.of(await voices.ask(voices.library.voices))


@router.get("/{voice_id}", response_model_exclude_none=True, responses=_example(EXAMPLE_VOICE))
async def retrieve_voice(voice_id: str, voices: VoicesDep) -> VoiceObject:
    """A voice of the library, by its id or name."""
    return VoiceObject.of(await voices.ask(voices.library.voice, voice_id))


@router.delete("/{voice_id}", responses=_example(VoiceDeleted(id=EXAMPLE_ID).model_dump()))
async def delete_voice(voice_id: str, voices: VoicesDep) -> VoiceDeleted:
    """Delete a voice of the library, by its id or name. Its consent is kept."""
    return VoiceDeleted(id=(await voices.ask(voices.library.delete_voice, voice_id)).id)


async def _create_from_form(form: Form, voices: Voices, settings: Settings) -> VoiceRecord:
    kind = form.texts.get("type", "").strip() or "audio_sample"
    if kind == "prompt":
        form.allow_files()
        return await _create_of_prompt(
            checked_form(PromptVoiceBody, form.texts, ("name", "prompt")), voices, settings
        )
    if kind != "audio_sample":
        _refuse_type(kind)
    texts = {name: text for name, text in form.texts.items() if name != FILE}
    voice = checked_form(SampleVoiceForm, texts, ("name",)).new_voice()
    return await voices.create(voice, form.file(FILE))


async def _create_from_json(body: object, voices: Voices, settings: Settings) -> VoiceRecord:
    kind = body.get("type", "audio_sample") if isinstance(body, dict) else "prompt"
    if kind == "audio_sample":
        raise InvalidRequest(
            f"a recording is sent as a file, in a form ({FORM}); JSON is for voices of type 'prompt'", "type"
        )
    if kind != "prompt":
        _refuse_type(str(kind))
    return await _create_of_prompt(checked_json(PromptVoiceBody, body), voices, settings)


async def _create_of_prompt(body: PromptVoiceBody, voices: Voices, settings: Settings) -> VoiceRecord:
    if body.model != "auto":
        check_speech_model(body.model, settings)
    return await voices.create(body.new_voice(draw_seed()), None)


def _refuse_type(kind: str) -> NoReturn:
    raise InvalidRequest(f"there is no type {kind[:64]!r} of voice: give 'audio_sample' or 'prompt'", "type")
