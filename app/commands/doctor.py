"""`voxserve doctor`: what this machine, this installation and a checkpoint lack, and what to do about it.

It starts no engine, changes nothing, and does not try the Hugging Face hub.
"""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import typer

from app.commands.doctor_checkpoint import check_checkpoint
from app.commands.doctor_language import check_language_checkpoint
from app.commands.doctor_system import check_devices, check_plugin, check_tools, check_versions
from app.commands.findings import Finding, failed, ok
from app.settings import Settings, SettingsError, load_settings
from models.checkpoint import CheckpointError

HEALTHY, ILL = 0, 1


def doctor(model: str | None, llm_model: str | None = None, *, as_json: bool) -> int:
    """Report on everything; returns the exit code.

    Args:
        model: of speech, a checkpoint directory or a repository in the local cache.
        llm_model: the same of language; both None for those of the settings.
    """
    # vLLM would log its import to standard output, into the report.
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")
    findings = [
        *check_versions(),
        *check_devices(),
        *check_tools(),
        *check_plugin(),
        *_check_models(model, llm_model),
    ]
    typer.echo(_json(findings) if as_json else _text(findings))
    return HEALTHY if all(finding.ok for finding in findings) else ILL


def _check_models(model: str | None, llm_model: str | None) -> Iterator[Finding]:
    if model is None and llm_model is None:
        try:
            settings = load_settings()
        except SettingsError as error:
            yield failed("settings", str(error).replace("\n", "; "), "correct the environment, or .env")
            return
        yield from _check_settings(settings)
    if model is not None:
        yield from _check_model("checkpoint", model, None, check_checkpoint)
    if llm_model is not None:
        yield from _check_model("language checkpoint", llm_model, None, check_language_checkpoint)


def _check_settings(settings: Settings) -> Iterator[Finding]:
    """The models that would be served."""
    if settings.serves_speech and settings.speech_model:
        revision = settings.speech_model_revision
        yield from _check_model("checkpoint", settings.speech_model, revision, check_checkpoint)
    elif settings.serves_speech:
        yield ok("checkpoint", "none is named: a tiny random one, which speaks noise, is made on first use")
    if settings.llm_model:
        yield from _check_model(
            "language checkpoint", settings.llm_model, settings.llm_model_revision, check_language_checkpoint
        )


def _check_model(
    name: str, model: str, revision: str | None, check: Callable[[Path], Iterator[Finding]]
) -> Iterator[Finding]:
    try:
        directory = _local_directory(model, revision)
    except CheckpointError as error:
        yield failed(name, str(error), "name a checkpoint directory, or download the repository")
        return
    yield from check(directory)


def _local_directory(model: str, revision: str | None) -> Path:
    """The directory of a checkpoint that is on this machine, or `CheckpointError`."""
    from huggingface_hub import snapshot_download  # noqa: PLC0415 (slow to import)
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError  # noqa: PLC0415

    if Path(model).expanduser().is_dir():
        return Path(model).expanduser()
    try:
        return Path(snapshot_download(model, revision=revision, local_files_only=True))
    except (HFValidationError, LocalEntryNotFoundError) as error:
        which = f"{model} at {revision}" if revision else model
        raise CheckpointError(
            f"{which} is neither a directory nor a repository in the local cache"
        ) from error


def _text(findings: Sequence[Finding]) -> str:
    width = max(len(finding.name) for finding in findings)
    lines = []
    for finding in findings:
        line = f"{'ok' if finding.ok else 'FAIL':4}  {finding.name:{width}}  {finding.detail}"
        lines.append(f"{line} -> {finding.remedy}" if finding.remedy else line)
    return "\n".join(lines)


def _json(findings: Sequence[Finding]) -> str:
    healthy = all(finding.ok for finding in findings)
    return json.dumps({"ok": healthy, "checks": [asdict(finding) for finding in findings]}, indent=1)
