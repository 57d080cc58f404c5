"""Recorded consents of people whose voices are imitated, in OpenAI's shapes.

They are kept, not understood: nobody checks what is said, or that it is said by the voice of the sample.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from app.deps import VoicesDep
from app.errors import InvalidRequest
from app.routes.forms import FORM, checked_form, media_type, not_served, read_form
from app.schemas import ErrorBody
from app.voice_schemas import BINARY, ConsentDeleted, ConsentForm, ConsentList, ConsentObject, ConsentRename
from app.voices.records import ConsentRecord

router = APIRouter(
    prefix="/v1/audio/voice_consents",
    tags=["voices"],
    responses={"4XX": {"model": ErrorBody}, "5XX": {"model": ErrorBody}},
)

FILE = "recording"
DEFAULT_PAGE, MAX_PAGE = 20, 100  # OpenAI's
EXAMPLE_ID = "cons_0a1b2c3d4e5f60718293a4b5"
EXAMPLE = {
    "object": "audio.voice_consent",
    "id": EXAMPLE_ID,
    "name": "Anna's consent",
    "language": "en-US",
    "created_at": 1790000000,
}
EXAMPLE_LIST = {
    "object": "list",
    "data": [EXAMPLE],
    "first_id": EXAMPLE_ID,
    "last_id": EXAMPLE_ID,
    "has_more": False,
}


def _schema() -> dict[str, Any]:
    schema = ConsentForm.model_json_schema()
    schema["properties"][FILE] = BINARY | {"description": "The recording, of the same kinds as a voice's."}
    schema["required"] = [*schema["required"], FILE]
    return schema


BODY = {
    "requestBody": {
        "required": True,
        "content": {
            FORM: {
                "schema": _schema(),
                "example": {"name": "Anna's consent", "language": "en-US", FILE: "(a file)"},
            }
        },
    }
}


def _example(example: dict[str, Any]) -> dict[int | str, dict[str, Any]]:
    return {200: {"content": {"application/json": {"example": example}}}}


@router.post("", openapi_extra=BODY, responses=_example(EXAMPLE))
async def create_consent(request: Request, voices: VoicesDep) -> ConsentObject:
    """Keep a recording in which somebody consents to have their voice imitated."""
    if media_type(request) != FORM:
        raise not_served(FORM)
    async with read_form(request) as form:
        texts = {name: text for name, text in form.texts.items() if name != FILE}
        consent = checked_form(ConsentForm, texts, ("name", "language"))
        return ConsentObject.of(await voices.create_consent(consent.name, consent.language, form.file(FILE)))


@router.get("", responses=_example(EXAMPLE_LIST))
async def list_consents(
    voices: VoicesDep,
    after: Annotated[str | None, Query(description="Id of the last consent of the page before.")] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE, description="Consents of a page.")] = DEFAULT_PAGE,
) -> ConsentList:
    """A page of the consents, the newest first."""
    newest_first = (await voices.ask(voices.library.consents))[::-1]
    start = 0 if after is None else _position(newest_first, after) + 1
    page = [ConsentObject.of(record) for record in newest_first[start : start + limit]]
    return ConsentList(
        data=page,
        first_id=page[0].id if page else None,
        last_id=page[-1].id if page else None,
        has_more=start + limit < len(newest_first),
    )


@router.get("/{consent_id}", responses=_example(EXAMPLE))
async def retrieve_consent(consent_id: str, voices: VoicesDep) -> ConsentObject:
    """One of them."""
    return ConsentObject.of(await voices.ask(voices.library.consent, consent_id))


@router.post("/{consent_id}", responses=_example(EXAMPLE))
async def rename_consent(consent_id: str, body: ConsentRename, voices: VoicesDep) -> ConsentObject:
    """Give it another label."""
    return ConsentObject.of(await voices.ask(voices.library.rename_consent, consent_id, body.name))


@router.delete("/{consent_id}", responses=_example(ConsentDeleted(id=EXAMPLE_ID).model_dump()))
async def delete_consent(consent_id: str, voices: VoicesDep) -> ConsentDeleted:
    """Delete it, unless a voice rests on it."""
    return ConsentDeleted(id=(await voices.ask(voices.library.delete_consent, consent_id)).id)


def _position(consents: list[ConsentRecord], identifier: str) -> int:
    for position, record in enumerate(consents):
        if record.id == identifier:
            return position
    raise InvalidRequest(f"there is no consent {identifier!r}: leave it out for the first page", "after")
