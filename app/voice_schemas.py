"""Bodies of requests and answers about voices: OpenAI's, with what others call the same."""

from typing import Annotated, Literal

from pydantic import AfterValidator, AliasChoices, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

from app.voices.names import BUILT_IN_VOICES
from app.voices.records import (
    Cfg,
    ConsentName,
    ConsentRecord,
    ConsentReference,
    Description,
    Language,
    NewVoice,
    Seed,
    Transcript,
    VoiceName,
    VoiceRecord,
)

CLIP_TYPE = "audio/flac"
BINARY = {"type": "string", "format": "binary"}


def _no_script(value: str | None) -> str | None:
    if value is not None and value.strip():
        raise PydanticCustomError(
            "not_served", "nothing is spoken when a voice is made, so it would change nothing: leave it out"
        )
    return value


class _Defaults(BaseModel):
    """What requests that name the voice get where they say nothing."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    cfg_value: Cfg | None = Field(None, description="Guidance of requests that give none.")
    seed: Seed | None = Field(None, description="Seed of requests that give none.")


class SampleVoiceForm(_Defaults):
    """The texts of a form that makes a voice of a recording."""

    type: Literal["audio_sample"] = "audio_sample"
    name: VoiceName = Field(description="Of the voice: unique, and none of OpenAI's.")
    consent: ConsentReference | None = Field(
        None,
        description="Id of a consent from `/v1/audio/voice_consents`, or, where none is required, your own "
        "reference to one.",
    )
    transcript: Transcript | None = Field(
        None,
        validation_alias=AliasChoices("transcript", "ref_text", "reference_text"),
        description="What the recording says, word by word: speech then continues it, besides imitating the "
        "voice. Also `ref_text` or `reference_text`.",
    )
    description: Description | None = Field(
        None,
        validation_alias=AliasChoices("description", "speaker_description", "voice_description"),
        description="Of the voice or its manner, for the model. Also `speaker_description` or "
        "`voice_description`.",
    )

    def new_voice(self) -> NewVoice:
        """For the library."""
        return NewVoice(
            name=self.name,
            transcript=self.transcript,
            description=self.description,
            cfg=self.cfg_value,
            seed=self.seed,
            consent=self.consent,
        )


class PromptVoiceBody(_Defaults):
    """A voice that is only described."""

    type: Literal["prompt"]
    name: VoiceName = Field(description="Of the voice: unique, and none of OpenAI's.")
    prompt: Description = Field(description="The voice in words.")
    model: str = Field("auto", description="`auto`, or a name that `GET /v1/models` lists.")
    script_hint: Annotated[str | None, AfterValidator(_no_script)] = Field(
        None, description="Not served: anything but an empty text is refused."
    )

    def new_voice(self, drawn_seed: int) -> NewVoice:
        """For the library. Without a seed each text would have another such voice, so one is drawn."""
        return NewVoice(
            name=self.name,
            description=self.prompt,
            cfg=self.cfg_value,
            seed=drawn_seed if self.seed is None else self.seed,
        )


class ConsentForm(BaseModel):
    """The texts of a form that records a consent."""

    model_config = ConfigDict(extra="forbid")

    name: ConsentName = Field(description="A label for it.")
    language: Language = Field(description="What is spoken, as a BCP 47 tag such as `en-US`.")


class ConsentRename(BaseModel):
    """A consent's new label."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: ConsentName = Field(description="The new label.")


class VoiceObject(BaseModel):
    """A voice of the library. What it has not is left out."""

    object: Literal["audio.voice"] = "audio.voice"
    id: str
    name: str
    created_at: int = Field(description="Seconds since 1970.")
    type: Literal["audio_sample", "prompt"]
    prompt: str | None = Field(None, description="The description of a voice that has no recording.")
    description: str | None = Field(None, description="The description of a voice that has one.")
    transcript: str | None = None
    consent: str | None = None
    cfg_value: float | None = None
    seed: int | None = None
    duration: float | None = Field(None, description="Of the recording, in seconds.")
    sample_rate: int | None = Field(None, description="Of the recording, in Hz.")

    @classmethod
    def of(cls, record: VoiceRecord) -> "VoiceObject":
        """What is told of a voice."""
        clip = record.clip
        return cls(
            id=record.id,
            name=record.name,
            created_at=int(record.created),
            type=record.type,
            prompt=None if clip else record.description,
            description=record.description if clip else None,
            transcript=record.transcript,
            consent=record.consent,
            cfg_value=record.cfg,
            seed=record.seed,
            duration=round(clip.seconds, 3) if clip else None,
            sample_rate=clip.rate if clip else None,
        )


class VoiceChoice(BaseModel):
    """What `voice` may be, in the form Open WebUI reads."""

    id: str
    name: str


class UploadedVoice(BaseModel):
    """A voice with a recording, in the form vllm-omni's clients read."""

    name: str
    consent: str
    created_at: int
    file_size: int
    mime_type: str = CLIP_TYPE
    ref_text: str | None = None
    speaker_description: str | None = None


class VoiceList(BaseModel):
    """All voices, three times over.

    `data`: the library, as OpenAI lists things. `voices`: all that a request may name, the model's own
    included. `uploaded_voices`: those with a recording.
    """

    object: Literal["list"] = "list"
    data: list[VoiceObject]
    has_more: Literal[False] = False
    voices: list[VoiceChoice]
    uploaded_voices: list[UploadedVoice]

    @classmethod
    def of(cls, records: list[VoiceRecord]) -> "VoiceList":
        """The list of a library."""
        return cls(
            data=[VoiceObject.of(record) for record in records],
            voices=[
                *(VoiceChoice(id=name, name=name) for name in BUILT_IN_VOICES),
                *(VoiceChoice(id=record.id, name=record.name) for record in records),
            ],
            uploaded_voices=[
                UploadedVoice(
                    name=record.name,
                    consent=record.consent or "",
                    created_at=int(record.created),
                    file_size=record.clip.size,
                    ref_text=record.transcript,
                    speaker_description=record.description,
                )
                for record in records
                if record.clip
            ],
        )


class VoiceDeleted(BaseModel):
    """A voice is gone."""

    object: Literal["audio.voice.deleted"] = "audio.voice.deleted"
    id: str
    deleted: Literal[True] = True


class ConsentObject(BaseModel):
    """A recorded consent."""

    object: Literal["audio.voice_consent"] = "audio.voice_consent"
    id: str
    name: str
    language: str
    created_at: int = Field(description="Seconds since 1970.")

    @classmethod
    def of(cls, record: ConsentRecord) -> "ConsentObject":
        """What is told of a consent."""
        return cls(id=record.id, name=record.name, language=record.language, created_at=int(record.created))


class ConsentList(BaseModel):
    """A page of consents, the newest first."""

    object: Literal["list"] = "list"
    data: list[ConsentObject]
    first_id: str | None
    last_id: str | None
    has_more: bool


class ConsentDeleted(BaseModel):
    """A consent is gone."""

    object: Literal["audio.voice_consent"] = "audio.voice_consent"
    id: str
    deleted: Literal[True] = True
