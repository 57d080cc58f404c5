"""Bodies of requests and answers. Strict: no text passes for a number, and no field is ignored."""

from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)
from pydantic_core import PydanticCustomError

from app.audio.formats import FormatName
from app.voices.names import is_built_in
from models.voxcpm2 import limits

MAX_DESCRIPTION_CHARS = 4096  # OpenAI's limit of `instructions`
MIN_SPEED, MAX_SPEED = 0.25, 4.0  # OpenAI's
BRACKETS = str.maketrans("()（）", "[][]")


class VoiceId(BaseModel):
    """A voice by id, as OpenAI names custom voices."""

    model_config = ConfigDict(extra="forbid", strict=True)

    id: str


def _refuse(reason: str) -> PydanticCustomError:
    return PydanticCustomError("not_served", "{reason}", {"reason": reason})


def _voice_name(value: object) -> object:
    if isinstance(value, dict):
        if set(value) != {"id"}:
            raise _refuse('a voice is a name, or an object of the form {"id": "name"}')
        return value["id"]
    return value


def _valid_unicode(value: str | None) -> str | None:
    if value and any("\ud800" <= character <= "\udfff" for character in value):
        raise _refuse("the text has half of a surrogate pair: send valid Unicode")
    return value


def _one_line(value: str | None) -> str | None:
    """A description travels in parentheses, on one line."""
    return " ".join(value.translate(BRACKETS).split()) if value else value


Text = Annotated[str, AfterValidator(_valid_unicode)]
Description = Annotated[
    str | None,
    Field(max_length=MAX_DESCRIPTION_CHARS),
    AfterValidator(_valid_unicode),
    AfterValidator(_one_line),
]


class SpeechOptions(BaseModel):
    """How a text is spoken: OpenAI's fields, and what VoxCPM2 can be told beside them."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    voice: Annotated[str, BeforeValidator(_voice_name, json_schema_input_type=str | VoiceId)] | None = Field(
        None,
        description="The name or id of a voice of the library; `default` or one of OpenAI's names for the "
        "model's own voice.",
    )
    response_format: FormatName = Field("mp3", description="`opus` comes in Ogg, `pcm` is 16-bit mono.")
    sample_rate: int | None = Field(
        None,
        description="Rate of the audio in Hz, as far as the format has it. Unset: 24000 for `pcm`, as "
        "OpenAI's, and the model's own, or the nearest to it, for the others. Headers tell.",
    )
    speed: float | None = Field(
        None, ge=MIN_SPEED, le=MAX_SPEED, description="Tempo, at the same pitch. Unset: 1."
    )
    instructions: Description = Field(
        None, description="How to speak, or as who, in words: `a cheerful young woman`."
    )
    voice_description: Description = Field(None, description="The same as `instructions`.")
    reference_audio: str | None = Field(
        None,
        validation_alias=AliasChoices("reference_audio", "ref_audio"),
        description="A recording of the voice to imitate: base64, or a `data:` URI.",
    )
    reference_text: Annotated[str | None, AfterValidator(_valid_unicode)] = Field(
        None,
        validation_alias=AliasChoices("reference_text", "ref_text"),
        description="What the recording says: its voice is then met more closely.",
    )
    normalize: bool = Field(
        True, description="Whether numbers, dates, units and the like are written out before they are spoken."
    )
    seed: int | None = Field(
        None,
        ge=0,
        le=limits.MAX_SEED,
        description="The same seed gives the same speech. Unset: the voice's, or drawn; see `x-seed`.",
    )
    cfg_value: float | None = Field(
        None,
        ge=0,
        le=limits.MAX_CFG,
        description="Guidance: how closely speech follows the text. Unset: the voice's, else "
        f"{limits.DEFAULT_CFG:g}.",
    )
    inference_timesteps: int = Field(
        limits.DEFAULT_STEPS, ge=limits.MIN_STEPS, le=limits.MAX_STEPS, description="Solver steps a patch."
    )
    min_patches: int = Field(
        limits.DEFAULT_MIN_PATCHES,
        ge=0,
        le=limits.MAX_PATCHES,
        description="Speech may end after the patch of this number, counted from 0; a patch lasts 160 ms.",
    )
    max_patches: int = Field(
        limits.MAX_PATCHES,
        ge=1,
        le=limits.MAX_PATCHES,
        validation_alias=AliasChoices("max_patches", "max_new_tokens"),
        description="Longest speech, in patches.",
    )
    temperature: float = Field(
        1.0, ge=0, le=limits.MAX_TEMPERATURE, description="Factor on the solver's starting noise."
    )

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if "min_patches" in self.model_fields_set and self.min_patches > self.max_patches:
            raise ValueError("min_patches is greater than max_patches: lower it")
        if self.instructions and self.voice_description:
            raise ValueError("instructions and voice_description mean the same: give one")
        if self.reference_text and not self.reference_audio:
            raise ValueError("reference_text is given without reference_audio: give both, or neither")
        if self.reference_audio and self.voice is not None and not is_built_in(self.voice):
            raise ValueError("voice and reference_audio both give a voice: leave one out")
        return self

    @property
    def description(self) -> str:
        """In words; empty if there is none."""
        return self.instructions or self.voice_description or ""


class SpeechBody(SpeechOptions):
    """OpenAI's create-speech request."""

    model: str = Field(description="A name that `GET /v1/models` lists.")
    input: Text = Field(description="The text to speak.")
    stream_format: Literal["audio", "sse"] | None = Field(
        None, description="`sse`: events with the audio in base64. Unset: `audio`."
    )
    stream: bool | None = Field(
        None,
        description="Whether audio is sent as it is made. Unset: it is, but for wav and flac, whose headers "
        "give their length. Streamed, those have placeholders.",
    )

    @model_validator(mode="after")
    def _events_are_streamed(self) -> Self:
        if self.stream_format == "sse" and self.stream is False:
            raise ValueError("stream_format sse is a stream: leave stream out")
        return self


class ErrorDetail(BaseModel):
    """What went wrong, and what to do."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(BaseModel):
    """OpenAI's error object."""

    error: ErrorDetail


class Model(BaseModel):
    """One served model."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "voxserve"


class ModelList(BaseModel):
    """All served models."""

    object: Literal["list"] = "list"
    data: list[Model]
