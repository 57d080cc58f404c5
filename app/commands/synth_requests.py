"""What `voxserve synth` is asked for, from options or from the lines of a batch file: parsed and checked.

Everything that can be known without an engine is checked here, for all lines of a batch at once.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from app.commands.usage import UsageError
from app.errors import InvalidRequest
from app.voices.reference import read_clip
from models.voxcpm2 import limits

# Of names that become file names: portable, never hidden, and with room for an ending within 255 bytes.
NAME_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9._-]*$"
MAX_NAME_LENGTH = 200
MAX_PROBLEMS = 20  # a wholly wrong file has thousands; the first of them say why


class SynthRequest(BaseModel):
    """One text to speak, and how."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)

    text: str
    reference: Path | None = None
    prompt_audio: Path | None = None
    prompt_text: str | None = None
    seed: Annotated[int, Field(ge=0, le=limits.MAX_SEED)] | None = None
    cfg: float = Field(limits.DEFAULT_CFG, ge=0, le=limits.MAX_CFG)
    steps: int = Field(limits.DEFAULT_STEPS, ge=limits.MIN_STEPS, le=limits.MAX_STEPS)
    temperature: float = Field(1.0, ge=0, le=limits.MAX_TEMPERATURE)
    min_patches: int = Field(limits.DEFAULT_MIN_PATCHES, ge=0, le=limits.MAX_PATCHES)
    max_patches: int = Field(limits.MAX_PATCHES, ge=1, le=limits.MAX_PATCHES)

    @field_validator("text", "prompt_text")
    @classmethod
    def _speakable(cls, value: str | None) -> str | None:
        if value is not None and not value.strip():
            raise ValueError("is empty: give at least one word")
        try:
            (value or "").encode()
        except UnicodeEncodeError:  # how Python marks bytes of arguments that are not UTF-8
            raise ValueError("is not valid Unicode: give it in UTF-8") from None
        return value

    @model_validator(mode="after")
    def _agree(self) -> "SynthRequest":
        if (self.prompt_audio is None) != (self.prompt_text is None):
            raise ValueError("prompt audio and prompt text belong together: give both or neither")
        if "min_patches" in self.model_fields_set and self.min_patches > self.max_patches:
            raise ValueError("min patches are more than max patches: lower them")
        return self

    def audio_files(self) -> Iterator[tuple[str, Path]]:
        """The conditioning audio that it names, by field."""
        if self.reference is not None:
            yield "reference", self.reference
        if self.prompt_audio is not None:
            yield "prompt_audio", self.prompt_audio


class BatchRequest(SynthRequest):
    """A line of a batch file."""

    name: str = Field(pattern=NAME_PATTERN, max_length=MAX_NAME_LENGTH)


def parse_options(options: Mapping[str, object]) -> SynthRequest:
    """The request that command-line options make; `None` is an option that was not given.

    Raises:
        UsageError: it cannot be served; the options to change are named.
    """
    try:
        request = SynthRequest.model_validate({k: v for k, v in options.items() if v is not None})
    except ValidationError as error:
        raise UsageError(
            *(f"{option_name(field)}: {text}" if field else text for field, text in _problems(error))
        ) from None
    problems = [f"{option_name(field)}: {text}" for field, text in AudioCheck()(request)]
    if problems:
        raise UsageError(*problems)
    return request


def read_batch(path: Path) -> list[BatchRequest]:
    """The requests of a batch file; its audio paths become relative to where it lies.

    Raises:
        UsageError: a line cannot be served; each problem names line and field.
    """
    try:
        lines = path.read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n")
    except OSError as error:
        raise UsageError(f"--batch: {path} cannot be read: {error.strerror}") from error
    reader = _BatchReader(path)
    for number, line in enumerate(lines, start=1):
        if line.strip():
            reader.add(number, line)
    if reader.problems:
        hidden = len(reader.problems) - MAX_PROBLEMS
        raise UsageError(*reader.problems[:MAX_PROBLEMS], *([f"and {hidden} more"] if hidden > 0 else []))
    if not reader.requests:
        raise UsageError(f"--batch: {path} has no requests: write a JSON object on each line")
    return reader.requests


class AudioCheck:
    """Reads conditioning audio to see whether it can be used; each file once."""

    def __init__(self) -> None:
        self._verdicts: dict[Path, str | None] = {}

    def __call__(self, request: SynthRequest) -> Iterator[tuple[str, str]]:
        """Field and problem of each file of a request that cannot be used."""
        for field, path in request.audio_files():
            if path not in self._verdicts:
                self._verdicts[path] = self._problem(path)
            if problem := self._verdicts[path]:
                yield field, problem

    @staticmethod
    def _problem(path: Path) -> str | None:
        try:
            if not path.is_file():
                return f"{path} is {'not a file' if path.exists() else 'missing'}: name an audio file"
            read_clip(path)
        except InvalidRequest as error:
            return f"{path}: {error}"
        except OSError as error:
            return f"{path} cannot be read: {error.strerror}"
        return None


def option_name(field: str) -> str:
    """The command-line option of a request's field."""
    return f"--{field.replace('_', '-')}"


class _BatchReader:
    """Collects requests and problems line by line."""

    def __init__(self, path: Path) -> None:
        self.requests: list[BatchRequest] = []
        self.problems: list[str] = []
        self._path = path
        self._audio_problems = AudioCheck()
        self._lines: dict[str, int] = {}  # of each name, lower case since some file systems ignore case

    def add(self, number: int, line: bytes) -> None:
        where = f"{self._path} line {number}"
        try:
            request = BatchRequest.model_validate_json(line)
        except ValidationError as error:
            found = list(_problems(error))
        else:
            request = self._resolve(request)
            found = list(self._audio_problems(request))
            first = self._lines.setdefault(request.name.lower(), number)
            if first != number:
                found.append(("name", f"{request.name!r} is that of line {first} already: give another"))
            self.requests.append(request)
        self.problems += [": ".join(filter(None, (where, field, text))) for field, text in found]

    def _resolve(self, request: BatchRequest) -> BatchRequest:
        return request.model_copy(
            update={field: self._path.parent / path for field, path in request.audio_files()}
        )


def _problems(error: ValidationError) -> Iterator[tuple[str, str]]:
    """Field (empty: the whole) and text of each problem."""
    for detail in error.errors():
        field = ".".join(map(str, detail["loc"]))
        text = detail["msg"].removeprefix("Value error, ")
        if detail["type"] == "extra_forbidden":
            text = "is not known: remove it"
        elif detail["type"] == "missing":
            text = "is missing"
        elif detail["type"] == "string_pattern_mismatch":
            text = "is unsafe as a file name: use letters, digits, '.', '_' and '-', and no '.' or '-' first"
        yield field, text[:1].lower() + text[1:]
