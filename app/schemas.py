"""Bodies of requests and answers. Strict: no text passes for a number, and no field is ignored."""

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from models.voxcpm2 import limits

FORMATS_NOT_SERVED = ("mp3", "opus", "aac", "flac")


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


def _served_format(value: object) -> object:
    if value in FORMATS_NOT_SERVED:
        raise _refuse(f"{value} is not served: ask for wav or pcm")
    return value


def _only_audio(value: object) -> object:
    if value == "sse":
        raise _refuse("server-sent events are not served: leave it out, and read the audio as it comes")
    return value


def _valid_unicode(value: str) -> str:
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise _refuse("the text has half of a surrogate pair: send valid Unicode")
    return value


def _only_normal_speed(value: float | None) -> float | None:
    if value not in (None, 1):
        raise _refuse("the model has no control of speed: leave it out, or give 1.0")
    return value


def _no_instructions(value: str | None) -> str | None:
    if value and value.strip():
        raise _refuse("instructions are not served, so they would change nothing: leave them out")
    return value


class SpeechBody(BaseModel):
    """OpenAI's create-speech request, and what VoxCPM2 can be told beside it."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    model: str = Field(description="A name that `GET /v1/models` lists.")
    input: Annotated[str, AfterValidator(_valid_unicode)] = Field(description="The text to speak.")
    voice: Annotated[str, BeforeValidator(_voice_name, json_schema_input_type=str | VoiceId)] | None = Field(
        None,
        description="The name or id of a voice of the library; `default` or one of OpenAI's names for the "
        "model's own voice.",
    )
    response_format: Annotated[Literal["wav", "pcm"], BeforeValidator(_served_format)] = Field(
        "wav",
        description="`wav`, or `pcm`: 16-bit little-endian mono at the rate that `x-sample-rate` gives.",
    )
    stream_format: Annotated[Literal["audio"] | None, BeforeValidator(_only_audio)] = Field(
        None, description="Only `audio`."
    )
    speed: Annotated[float | None, AfterValidator(_only_normal_speed)] = Field(None, description="Only 1.0.")
    instructions: Annotated[str | None, AfterValidator(_no_instructions)] = Field(
        None, description="Not served: anything but an empty text is refused."
    )
    stream: bool | None = Field(
        None,
        description="Whether audio is sent as it is made. Unset: pcm is; wav is not, as its header gives its "
        "length. A streamed wav has placeholder sizes.",
    )
    seed: int | None = Field(
        None,
        ge=0,
        le=limits.MAX_SEED,
        description="The same seed gives the same speech. Unset: the voice's, or drawn; see `x-seed`.",
    )
    cfg_value: float = Field(
        limits.DEFAULT_CFG,
        ge=0,
        le=limits.MAX_CFG,
        description="Guidance: how closely speech follows the text. Unset: the voice's, or 2.0.",
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
        limits.MAX_PATCHES, ge=1, le=limits.MAX_PATCHES, description="Longest speech, in patches."
    )
    temperature: float = Field(
        1.0, ge=0, le=limits.MAX_TEMPERATURE, description="Factor on the solver's starting noise."
    )

    @model_validator(mode="after")
    def _bounds_agree(self) -> "SpeechBody":
        if "min_patches" in self.model_fields_set and self.min_patches > self.max_patches:
            raise ValueError("min_patches is greater than max_patches: lower it")
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
