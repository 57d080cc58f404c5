"""The model that `voxserve synth` speaks with, and whether it can say what is asked, without an engine."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
import typer

from app.commands.synth_plan import Job
from app.commands.usage import UsageError
from app.settings import Settings, SettingsError, load_settings
from models.checkpoint import CheckpointError
from models.voxcpm2.config import VoxCPM2ModelConfig, read_config
from models.voxcpm2.prompt import Conditioning, Patches, PromptBuilder
from models.voxcpm2.tokenizer import TextTokenizer


@dataclass(frozen=True)
class SynthModel:
    """Which model; without one the settings', else the tiny random one."""

    model: str | None = None
    revision: str | None = None


def resolve_model(which: SynthModel) -> tuple[Settings, Path]:
    """Settings that name a local checkpoint directory, and that directory.

    Raises:
        UsageError: settings or checkpoint cannot be used.
    """
    if which.revision and not which.model:
        raise UsageError("--revision is without --model: give both")
    named = {"speech_model": which.model, "speech_model_revision": which.revision}
    try:
        settings = load_settings(named if which.model else None)
        checkpoint = _checkpoint(settings)
        # Resolved once, so that what was checked is what is loaded.
        found = {"speech_model": str(checkpoint), "speech_model_revision": None}
        alone = {"llm_model": None, "llm_model_revision": None}  # no other engine takes a part of the machine
        return settings.model_copy(update=found | alone), checkpoint
    except SettingsError as error:
        raise UsageError(*str(error).splitlines()) from error
    except CheckpointError as error:
        raise UsageError(str(error)) from error
    except OSError as error:
        raise UsageError(f"the random checkpoint cannot be made: {error}") from error


def _checkpoint(settings: Settings) -> Path:
    from app.pipeline.checkpoint import resolve_checkpoint  # noqa: PLC0415 (imports the hub's client)
    from models.voxcpm2.make_checkpoint import default_checkpoint  # noqa: PLC0415

    if not settings.serves_speech:
        raise UsageError("SPEECH_MODEL is none: name a speech model by --model, or set SPEECH_MODEL")
    if settings.speech_model:
        return resolve_checkpoint(settings.speech_model, settings.speech_model_revision)
    typer.echo(
        "no model is named: a tiny random one speaks NOISE; for speech give --model openbmb/VoxCPM2", err=True
    )
    return default_checkpoint(settings.voxserve_cache_dir)


def check_lengths(jobs: Sequence[Job], checkpoint: Path, max_model_len: int | None) -> None:
    """Lay out every request, with silence in place of its audio.

    Raises:
        UsageError: one leaves no room for speech.
        CheckpointError: configuration or tokenizer cannot be used.
    """
    config = read_config(checkpoint)
    limit = min(
        config.max_length, config.lm_config.max_position_embeddings, max_model_len or config.max_length
    )
    shape = (config.patch_size, config.feat_dim)
    builder = PromptBuilder(TextTokenizer.from_checkpoint(checkpoint), config.lm_config.vocab_size, shape)
    for job in jobs:
        request = job.request
        conditioning = Conditioning(
            reference=_silence(request.reference, config),
            prompt=_silence(request.prompt_audio, config),
            prompt_text=request.prompt_text or "",
        )
        try:
            builder.build(request.text, conditioning).require_room(limit)
        except ValueError as error:
            raise UsageError(f"{job.name}: {error}") from error


def _silence(path: Path | None, config: VoxCPM2ModelConfig) -> Patches | None:
    if path is None:
        return None
    seconds = soundfile.info(path).duration
    patches = math.ceil(seconds * config.audio_vae_config.sample_rate / config.patch_input_samples)
    return np.zeros((patches, config.patch_size, config.feat_dim), np.float32)
