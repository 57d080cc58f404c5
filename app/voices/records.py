"""What the library keeps of voices and consents: JSON beside the clip, checked when written and when read."""

import re
import secrets
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from app.voices.names import CONSENT_ID, VOICE_ID, checked_label, checked_name
from models.voxcpm2 import limits

FORMAT: Literal[1] = 1  # of the files; a newer one is skipped, not misread
MAX_DESCRIPTION_CHARS = 1000  # of a voice: a paragraph
MAX_TRANSCRIPT_CHARS = 2000  # thirty seconds of fast speech have some 600
MAX_CONSENT_CHARS = 200  # ids of other people's records
PARENTHESES = "()（）"
BCP_47 = r"^[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*$"  # the shape of RFC 5646's tags
ID_BYTES = 12


def checked_text(text: str) -> str:
    """A text that can be stored and spoken, or `ValueError`."""
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError("the text has half of a surrogate pair: send valid Unicode")
    text = text.strip()
    if not any(map(str.isalnum, text)):
        raise ValueError("the text has no words: write at least one")
    return text


def checked_description(text: str) -> str:
    """A description without the parentheses that it will be put in, or `ValueError`."""
    text = " ".join(checked_text(text).split())
    while text[0] in "(（" and text[-1] in ")）":
        text = text[1:-1].strip()
    if any(character in PARENTHESES for character in text):
        raise ValueError(
            "a description cannot have parentheses in it, since it is put in some: leave them out"
        )
    return text


VoiceName = Annotated[str, AfterValidator(checked_name)]
ConsentName = Annotated[str, AfterValidator(checked_label)]
Transcript = Annotated[str, Field(max_length=MAX_TRANSCRIPT_CHARS), AfterValidator(checked_text)]
Description = Annotated[str, Field(max_length=MAX_DESCRIPTION_CHARS), AfterValidator(checked_description)]
ConsentReference = Annotated[str, Field(max_length=MAX_CONSENT_CHARS), AfterValidator(checked_text)]
Language = Annotated[str, Field(pattern=BCP_47)]
Cfg = Annotated[float, Field(ge=0, le=limits.MAX_CFG)]
Seed = Annotated[int, Field(ge=0, le=limits.MAX_SEED)]


class ClipRecord(BaseModel):
    """A stored recording.

    Attributes:
        key: SHA-256 of its samples and rate, in hexadecimal digits.
        rate: in Hz.
        frames: samples.
        size: of the file, in bytes.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    key: str = Field(pattern=r"^[0-9a-f]{64}$")
    rate: int = Field(gt=0)
    frames: int = Field(gt=0)
    size: int = Field(gt=0)

    @property
    def seconds(self) -> float:
        """How long it lasts."""
        return self.frames / self.rate


class Record(BaseModel):
    """What both kinds have in common."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)
    id_pattern: ClassVar[re.Pattern[str]]

    format: Literal[1] = FORMAT
    id: str
    created: float = Field(ge=0, description="Seconds since 1970.")
    clip: ClipRecord | None = None

    @model_validator(mode="after")
    def _id_is_of_its_kind(self) -> "Record":
        if not self.id_pattern.fullmatch(self.id):
            raise ValueError("the id is none of this kind")
        return self


class NewVoice(BaseModel):
    """What is said of a voice.

    Attributes:
        transcript: what its clip says; speech then continues the clip, besides imitating it.
        description: of the voice, for the model.
        cfg, seed: for requests that give none.
        consent: the id of a consent, or somebody's own reference to one.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    name: VoiceName
    transcript: Transcript | None = None
    description: Description | None = None
    cfg: Cfg | None = None
    seed: Seed | None = None
    consent: ConsentReference | None = None


class VoiceRecord(NewVoice, Record):
    """A voice: a clip, a description, or both."""

    id_pattern = VOICE_ID

    @model_validator(mode="after")
    def _is_a_voice(self) -> "VoiceRecord":
        if self.clip is None and (self.description is None or self.transcript is not None):
            raise ValueError("a voice without a clip has a description and no transcript")
        return self

    @property
    def type(self) -> Literal["audio_sample", "prompt"]:
        """How it was made, in OpenAI's words."""
        return "prompt" if self.clip is None else "audio_sample"


class ConsentRecord(Record):
    """Somebody's recorded consent to have their voice imitated."""

    id_pattern = CONSENT_ID

    name: ConsentName
    language: Language
    clip: ClipRecord


def new_id(kind: Literal["voice", "cons"]) -> str:
    """An id that no other voice or consent has."""
    return f"{kind}_{secrets.token_hex(ID_BYTES)}"
