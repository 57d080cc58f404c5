"""All settings. The one reader of the environment and of `.env`; the environment wins.

Empty values count as unset. What is unknown, unparsable or contradictory stops the start with a
`SettingsError` that names the variable and says what to do.
"""

import difflib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, ByteSize, Field, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

ENV_FILE = ".env"
OUR_PREFIXES = (
    "SPEECH_",
    "LLM_",
    "VOICES_",
    "VOXSERVE_",
)  # a variable of such a name, but no setting, is a mistake
# Kubernetes sets such variables in every container beside a Service that is named `speech` or `llm`.
KUBERNETES_SERVICE_LINK = re.compile(r"_SERVICE_(HOST|PORT)(_\w+)?$|_PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?$")
MIN_KV_CACHE_BYTES = 2**20
NO_MODEL = "none"
NEAR_NAME = (
    0.7  # difflib's likeness, 0 to 1: of LLM_MODLE to LLM_MODEL it is 0.9, of HF_TOKEN to anything below 0.6
)


class SettingsError(ValueError):
    """The settings cannot be used; the message has a line for each problem."""


def _default_cache_dir() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "voxserve"


def _default_voices_dir() -> Path:
    return Path(os.environ.get("XDG_DATA_HOME") or "~/.local/share").expanduser() / "voxserve" / "voices"


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def _none_in_lower_case(value: object) -> object:
    return NO_MODEL if isinstance(value, str) and value.lower() == NO_MODEL else value


def _none_is_unset(value: object) -> object:
    return None if _none_in_lower_case(value) == NO_MODEL else value


def _enough_kv_cache(value: ByteSize) -> ByteSize:
    if value < MIN_KV_CACHE_BYTES:
        raise ValueError("must be at least 1MiB: give bytes, or a size such as 4GiB")
    return value


def _numbers(value: object) -> object:
    """`0-3,6` as (0, 1, 2, 3, 6), the way Linux writes lists of cores."""
    if not isinstance(value, str):
        return value
    numbers: list[int] = []
    for part in value.split(","):
        found = re.fullmatch(r"\s*(\d{1,4})(?:-(\d{1,4}))?\s*", part)
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
        if first > last:
            raise ValueError("must be a list such as 0-3 or 0,2")
        numbers.extend(range(first, last + 1))
    if len(set(numbers)) < len(numbers):
        raise ValueError("names a number twice")
    return tuple(numbers)


KvCacheBytes = Annotated[ByteSize, AfterValidator(_enough_kv_cache)]
Numbers = Annotated[tuple[int, ...] | None, NoDecode, BeforeValidator(_numbers)]


class Settings(BaseSettings):
    """What can be set, by variables named like the fields in capitals."""

    model_config = SettingsConfigDict(env_file=ENV_FILE, env_ignore_empty=True, extra="forbid", frozen=True)

    host: str = Field("127.0.0.1", description="Address to listen on; `0.0.0.0` for all interfaces.")
    port: int = Field(8000, ge=0, le=65535, description="Port to listen on; 0 picks a free one.")
    log_level: Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(_lower)] = Field(
        "info", description="`debug`, `info`, `warning` or `error`. vLLM's own are warnings, but at `debug`."
    )
    max_input_chars: int = Field(4096, ge=1, description="Longest text of one speech request, in characters.")
    shutdown_timeout_s: int = Field(
        30, ge=0, description="Seconds that running requests get to finish after SIGTERM or SIGINT."
    )
    voxserve_cache_dir: Path = Field(
        default_factory=_default_cache_dir,
        description="Where the built-in random checkpoint is kept.",
        json_schema_extra={"default_text": "$XDG_CACHE_HOME/voxserve or ~/.cache/voxserve"},
    )
    speech_model: Annotated[str | None, BeforeValidator(_none_in_lower_case)] = Field(
        None,
        description="Checkpoint directory or Hugging Face repository, such as `openbmb/VoxCPM2`; `none` for "
        "a service without speech. Unset: a tiny random checkpoint, which speaks noise.",
    )
    speech_model_revision: str | None = Field(
        None, description="Branch, tag or commit of that repository. Unset: its main branch."
    )
    speech_model_name: str = Field(
        "voxcpm2",
        min_length=1,
        description="Name that requests give as `model`; `SPEECH_MODEL` itself works too.",
    )
    speech_dtype: Literal["auto", "float32", "bfloat16"] = Field(
        "auto", description="`auto` (the checkpoint's own), `float32` or `bfloat16`."
    )
    speech_max_requests: int = Field(
        256, ge=1, description="Requests, running and waiting, beyond which more are answered with 429."
    )
    speech_max_num_seqs: int = Field(
        16, ge=1, le=1024, description="Requests that run at the same time; more wait their turn."
    )
    speech_max_num_batched_tokens: int | None = Field(
        None, ge=1, description="Positions that one step computes at most. Unset: vLLM's choice."
    )
    speech_max_model_len: int | None = Field(
        None, ge=16, description="Positions of one request, prompt and speech. Unset: the checkpoint's limit."
    )
    speech_kv_cache_bytes: KvCacheBytes | None = Field(
        None,
        description="Size of the KV cache on each device, such as `4GiB`. Unset: 1GiB on a CPU, and what "
        "`SPEECH_GPU_MEMORY_UTILIZATION` leaves on a GPU.",
    )
    speech_gpu_memory_utilization: float | None = Field(
        None,
        gt=0,
        le=1,
        description="Share of a GPU's memory to take. Unset: 0.9, or 0.45 beside the other engine.",
    )
    speech_devices: Numbers = Field(
        None, description="GPUs to use, such as `0` or `0-1`. Unset: the first ones."
    )
    speech_cores: Numbers = Field(
        None,
        description="CPU cores to use where there is no GPU, such as `0-3`. Unset: all, or half of "
        "them beside the other engine.",
    )
    speech_tensor_parallel_size: int = Field(1, ge=1, description="Devices that share the model.")
    speech_prefix_caching: bool = Field(
        True, description="Whether requests reuse the computed prefix of a voice they have in common."
    )
    voices_dir: Path = Field(
        default_factory=_default_voices_dir,
        description="Where the voice library is kept; several servers may share it.",
        json_schema_extra={
            "default_text": "$XDG_DATA_HOME/voxserve/voices or ~/.local/share/voxserve/voices"
        },
    )
    voices_max_count: int = Field(
        1000, ge=1, description="Voices that the library holds at most, and as many consents."
    )
    voices_max_seconds: int = Field(30, ge=1, le=60, description="Longest recording of a voice, in seconds.")
    voices_max_upload_mib: int = Field(10, ge=1, le=1024, description="Largest recording, in MiB.")
    voices_consent_required: bool = Field(
        False, description="Whether a voice needs the id of a consent that is recorded here."
    )
    llm_model: Annotated[str | None, BeforeValidator(_none_is_unset)] = Field(
        None,
        description="MiMoV2 checkpoint directory or Hugging Face repository, such as "
        "`XiaomiMiMo/MiMo-V2-Flash`. Unset, or `none`: no language endpoints.",
    )
    llm_model_revision: str | None = Field(
        None, description="Branch, tag or commit of that repository. Unset: its main branch."
    )
    llm_model_name: str = Field(
        "mimo-v2",
        min_length=1,
        description="Name that requests give as `model`; `LLM_MODEL` itself works too.",
    )
    llm_classes: Literal["own", "vllm"] = Field(
        "own", description="Whose implementation of MiMoV2: `own`, or vLLM's (`vllm`), to compare."
    )
    llm_dtype: Literal["auto", "float32", "bfloat16"] = Field(
        "auto", description="`auto` (the checkpoint's own), `float32` or `bfloat16`."
    )
    llm_max_requests: int = Field(
        256, ge=1, description="Requests, running and waiting, beyond which more are answered with 429."
    )
    llm_max_num_seqs: int = Field(
        64, ge=1, le=1024, description="Requests that run at the same time; more wait their turn."
    )
    llm_max_num_batched_tokens: int | None = Field(
        None, ge=1, description="Tokens that one step computes at most. Unset: vLLM's choice."
    )
    llm_max_model_len: int | None = Field(
        None, ge=16, description="Tokens of one request, prompt and answer. Unset: the checkpoint's limit."
    )
    llm_kv_cache_bytes: KvCacheBytes | None = Field(
        None,
        description="Size of the KV cache on each device, such as `4GiB`. Unset: 1GiB on a CPU, and what "
        "`LLM_GPU_MEMORY_UTILIZATION` leaves on a GPU.",
    )
    llm_gpu_memory_utilization: float | None = Field(
        None,
        gt=0,
        le=1,
        description="Share of a GPU's memory to take. Unset: 0.9, or 0.45 beside the other engine.",
    )
    llm_devices: Numbers = Field(
        None, description="GPUs to use, such as `1` or `0-7`. Unset: the first ones."
    )
    llm_cores: Numbers = Field(
        None,
        description="CPU cores to use where there is no GPU, such as `4-7`. Unset: all, or half of "
        "them beside the other engine.",
    )
    llm_tensor_parallel_size: int = Field(1, ge=1, description="Devices that share each layer.")
    llm_pipeline_parallel_size: int = Field(
        1, ge=1, description="Groups of devices that share out the layers."
    )
    llm_expert_parallel: bool = Field(
        False, description="Whether devices share out whole experts, instead of parts of each."
    )
    llm_draft_tokens: int = Field(
        0,
        ge=0,
        le=8,
        description="Tokens a step that the checkpoint's next-token layer proposes. 0: no speculation.",
    )
    llm_prefix_caching: bool = Field(
        True, description="Whether requests reuse the computed prefix that they have in common."
    )

    @model_validator(mode="after")
    def _agree(self) -> "Settings":
        if not self.serves_speech and not self.serves_language:
            raise ValueError(
                "SPEECH_MODEL=none without LLM_MODEL leaves nothing to serve: set LLM_MODEL or a speech model"
            )
        if self.speech_model_revision and not (self.speech_model and self.serves_speech):
            raise ValueError(
                "SPEECH_MODEL_REVISION is set without SPEECH_MODEL: set SPEECH_MODEL, or unset it"
            )
        if self.llm_model_revision and not self.serves_language:
            raise ValueError("LLM_MODEL_REVISION is set without LLM_MODEL: set LLM_MODEL, or unset it")
        for prefix in ("speech", "llm"):
            self._check_sizes(prefix)
        _check_devices(
            "SPEECH_DEVICES", self.speech_devices, "SPEECH_TENSOR_PARALLEL_SIZE", self.speech_ranks
        )
        _check_devices(
            "LLM_DEVICES",
            self.llm_devices,
            "LLM_TENSOR_PARALLEL_SIZE times LLM_PIPELINE_PARALLEL_SIZE",
            self.llm_ranks,
        )
        self._check_shares()
        names = {self.speech_model_name, self.speech_model} & set(self.llm_names)
        if self.serves_speech and self.serves_language and names:
            raise ValueError(
                f"both engines would serve {names.pop()!r}: change SPEECH_MODEL_NAME or LLM_MODEL_NAME"
            )
        return self

    def _check_sizes(self, prefix: str) -> None:
        values = {name.removeprefix(f"{prefix}_"): value for name, value in self if name.startswith(prefix)}
        capitals = prefix.upper()
        if values["kv_cache_bytes"] is not None and values["gpu_memory_utilization"] is not None:
            raise ValueError(
                f"{capitals}_KV_CACHE_BYTES and {capitals}_GPU_MEMORY_UTILIZATION both size the KV cache: "
                "unset one"
            )
        tokens, sequences = values["max_num_batched_tokens"], values["max_num_seqs"]
        if tokens is not None and tokens < sequences:
            raise ValueError(
                f"{capitals}_MAX_NUM_BATCHED_TOKENS={tokens} is less than {capitals}_MAX_NUM_SEQS="
                f"{sequences}, but each request needs a position a step: raise it"
            )

    def _check_shares(self) -> None:
        speech, language = self.speech_gpu_memory_utilization, self.llm_gpu_memory_utilization
        if self.shares_gpus and speech and language and speech + language > 1:
            raise ValueError(
                f"SPEECH_GPU_MEMORY_UTILIZATION={speech} and LLM_GPU_MEMORY_UTILIZATION={language} are more "
                "than a whole GPU: lower one, or set SPEECH_DEVICES and LLM_DEVICES apart"
            )

    @property
    def shares_gpus(self) -> bool:
        """Whether both engines would use a GPU of the same number."""
        speech = self.speech_devices or range(self.speech_ranks)
        language = self.llm_devices or range(self.llm_ranks)
        return self.serves_speech and self.serves_language and not set(speech).isdisjoint(language)

    @property
    def serves_speech(self) -> bool:
        """Whether there is to be a speech engine."""
        return self.speech_model != NO_MODEL

    @property
    def serves_language(self) -> bool:
        """Whether there is to be a language engine."""
        return self.llm_model is not None

    @property
    def llm_names(self) -> tuple[str, ...]:
        """What requests may call the language model, if there is one; answers give the first."""
        return (self.llm_model_name, self.llm_model) if self.llm_model else ()

    @property
    def speech_ranks(self) -> int:
        """Workers of the speech engine, each with a device of its own."""
        return self.speech_tensor_parallel_size

    @property
    def llm_ranks(self) -> int:
        """Workers of the language engine, each with a device of its own."""
        return self.llm_tensor_parallel_size * self.llm_pipeline_parallel_size

    @property
    def spans_cores(self) -> bool:
        """Whether an engine has several workers, to which cores of a CPU have to be dealt."""
        return max(self.speech_ranks, self.llm_ranks) > 1

    def serves(self, model: str) -> bool:
        """Whether a request may name the speech model so."""
        return self.serves_speech and model in (self.speech_model_name, self.speech_model)


def _check_devices(name: str, devices: tuple[int, ...] | None, sizes: str, ranks: int) -> None:
    if devices is not None and len(devices) != ranks:
        raise ValueError(f"{name} names {len(devices)} GPUs, but {sizes} is {ranks}: make them agree")


def load_settings(overrides: Mapping[str, object] | None = None) -> Settings:
    """Read the settings; `overrides` (field names) win over environment and `.env`.

    Raises:
        SettingsError: they cannot be used.
    """
    problems = [
        _unknown(name, "in the environment")
        for name in os.environ
        if _is_mistyped(name, Settings.model_fields)
    ]
    try:
        settings = Settings(**(overrides or {}))  # type: ignore[arg-type]
    except ValidationError as error:
        problems += [_describe(tuple(e["loc"]), e["type"], e["msg"], e["input"]) for e in error.errors()]
    if problems:
        raise SettingsError("\n".join(problems))
    return settings


def settings_table() -> str:
    """The settings as a Markdown table."""
    rows = []
    for name, field in Settings.model_fields.items():
        default = _default_text(field)
        rows.append(f"| `{name.upper()}` | {f'`{default}`' if default else 'unset'} | {field.description} |")
    return "\n".join(("| Variable | Default | Meaning |", "|---|---|---|", *rows))


def env_example() -> str:
    """The text of `.env.example`: every setting at its default, commented out."""
    entries = [
        f"# {field.description}\n#{name.upper()}={_default_text(field)}\n"
        for name, field in Settings.model_fields.items()
    ]
    header = (
        "# Copy to .env and change what you need. Variables of the environment win over this file;\n"
        "# variables of other programs (HF_TOKEN, CUDA_VISIBLE_DEVICES) belong in the environment.\n"
    )
    return "\n".join((header, *entries))


def _default_text(field: FieldInfo) -> str:
    if isinstance(field.json_schema_extra, dict):
        return str(field.json_schema_extra["default_text"])
    if isinstance(field.default, bool):
        return str(field.default).lower()
    return "" if field.default is None else str(field.default)


def _is_mistyped(name: str, fields: Mapping[str, FieldInfo]) -> bool:
    return (
        name.upper().startswith(OUR_PREFIXES)
        and name.lower() not in fields
        and not KUBERNETES_SERVICE_LINK.search(name)
    )


def _unknown(name: str, where: str) -> str:
    near = difflib.get_close_matches(name.lower(), Settings.model_fields, n=1, cutoff=NEAR_NAME)
    hint = (
        f"did you mean {near[0].upper()}?"
        if near
        else "remove it (what other programs read is exported, not set here)"
    )
    return f"{name.upper()} {where} is not a setting: {hint}"


def _describe(location: tuple[int | str, ...], kind: str, message: str, value: object) -> str:
    message = message.removeprefix("Value error, ")
    if not location:
        return message
    name = str(location[0])
    if kind == "extra_forbidden":
        return _unknown(name, f"in {ENV_FILE}")
    return f"{name.upper()}={value}: {message[:1].lower()}{message[1:]}"
