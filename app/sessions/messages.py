"""The messages of a spoken session, one class each, by their `type`.

`session.config` and `audio.done` are the names of vllm-omni's clients for `session.start` and `audio.end`: a
context that was opened by its name for the one is answered by its name for the other.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from app.audio.formats import FormatName
from app.schemas import ErrorDetail, SpeechOptions

MAX_DELAY_MS = 10_000
DEFAULT_DELAY_MS = 1000  # a writer who pauses so long has, for the moment, said what there is to say

ContextId = Annotated[str, Field(min_length=1, max_length=128)]


class SessionStart(SpeechOptions):
    """Opens a context, or changes how its next utterance is spoken."""

    type: Literal["session.start", "session.config"]
    context_id: ContextId | None = None
    response_format: FormatName = Field("pcm", description="As in `POST /v1/audio/speech`.")
    audio: Literal["binary", "base64"] = Field(
        "binary", description="Audio as binary frames, or in `audio.delta` messages."
    )
    stream_audio: bool | None = Field(
        None,
        description="Whether audio is sent as it is made, or an utterance in one frame. Unset: it is, but "
        "for `session.config`, as in vllm-omni.",
    )
    max_buffer_delay_ms: int = Field(
        DEFAULT_DELAY_MS,
        ge=0,
        le=MAX_DELAY_MS,
        description="Pause of the writer after which a sentence is spoken that has not ended. 0: never.",
    )


class _OfContext(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    context_id: ContextId | None = None


class InputText(_OfContext):
    """The next piece of the text, cut anywhere."""

    type: Literal["input.text"]
    text: str


class InputFlush(_OfContext):
    """Speak what was written so far, as if it were a whole sentence."""

    type: Literal["input.flush"]


class InputDone(_OfContext):
    """The utterance is written: speak the rest, and end it."""

    type: Literal["input.done"]


class InputCancel(_OfContext):
    """Be silent, and forget what was written and not spoken."""

    type: Literal["input.cancel"]


class SessionClose(BaseModel):
    """End the session. Closing the socket does the same."""

    model_config = ConfigDict(extra="forbid", strict=True)

    type: Literal["session.close"]


class Ping(BaseModel):
    """Is anybody there?"""

    model_config = ConfigDict(extra="forbid", strict=True)

    type: Literal["ping"]


ClientMessage = Annotated[
    SessionStart | InputText | InputFlush | InputDone | InputCancel | SessionClose | Ping,
    Field(discriminator="type"),
]
MESSAGE_TYPES = (
    "session.start", "session.config", "input.text", "input.flush", "input.done", "input.cancel",
    "session.close", "ping",
)  # fmt: skip
CLIENT_MESSAGE: TypeAdapter[ClientMessage] = TypeAdapter(ClientMessage)


class SessionStarted(_OfContext):
    """The context is open."""

    type: Literal["session.started"] = "session.started"
    format: str
    sample_rate: int


class AudioStart(_OfContext):
    """The audio of an utterance follows."""

    type: Literal["audio.start"] = "audio.start"
    utterance_index: int
    sentence_index: int = 0  # vllm-omni counts within an utterance, of which it speaks all at once
    format: str
    sample_rate: int
    seed: int


class AudioFrames(_OfContext):
    """Binary frames that follow are of this context. Sent where several speak by turns."""

    type: Literal["audio.frames"] = "audio.frames"


class AudioDelta(_OfContext):
    """Audio in base64."""

    type: Literal["audio.delta"] = "audio.delta"
    utterance_index: int
    audio: str


class AudioEnd(_OfContext):
    """The audio of an utterance is complete, or has broken off (`error`)."""

    type: Literal["audio.end", "audio.done"]
    utterance_index: int
    sentence_index: int = 0
    total_bytes: int
    error: bool
    audio_duration_s: float
    first_audio_s: float | None  # from the first text to the first audio
    elapsed_s: float  # from the first text to the last audio


class InputCancelled(_OfContext):
    """Nothing more comes of what was cancelled."""

    type: Literal["input.cancelled"] = "input.cancelled"


class SessionDone(_OfContext):
    """An utterance has ended; the context takes the next."""

    type: Literal["session.done"] = "session.done"
    utterance_index: int
    total_sentences: int


class Pong(BaseModel):
    """Yes."""

    type: Literal["pong"] = "pong"


class ErrorMessage(_OfContext):
    """A message was not understood, or an utterance failed; the session goes on."""

    type: Literal["error"] = "error"
    message: str
    error: ErrorDetail
