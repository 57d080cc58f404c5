"""`voxserve doctor`: what this machine, this installation and a checkpoint lack, and what to do about it.

It starts no engine, changes nothing, and does not try the Hugging Face hub.
"""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import typer

from app.commands.doctor_checkpoint import check_checkpoint
from app.commands.doctor_system import check_devices, check_plugin, check_tools, check_versions
from app.commands.findings import Finding, failed, ok
from app.settings import SettingsError, load_settings
from models.checkpoint import CheckpointError

HEALTHY, ILL = 0, 1


def doctor(model: str | None, *, as_json: bool) -> int:
    """Report on everything; returns the exit code.

    Args:
        model: a checkpoint directory or a repository in the local cache; None for that of the settings.
    """
    # vLLM would log its import to standard output, into the report.
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")
    findings = [
        *check_versions(),
        *check_devices(),
        *check_tools(),
        *check_plugin(),
        *_check_model(model),
    ]
    typer.echo(_json(findings) if as_json else _text(findings))
    return HEALTHY if all(finding.ok for finding in findings) else ILL


def _check_model(model: str | None) -> Iterator[Finding]:
    if model is None:
        try:
            model = load_settings().speech_model
        except SettingsError as error:
            yield failed("settings", str(error).replace("\n", "; "), "correct the environment, or .env")
            return
    if model is None:
        yield ok("checkpoint", "none is named: a tiny random one, which speaks noise, is made on first use")
        return
    try:
        directory = _local_directory(model)
    except CheckpointError as error:
        yield failed("checkpoint", str(error), "name a checkpoint directory, or download the repository")
        return
    yield from check_checkpoint(directory)


def _local_directory(model: str) -> Path:
    """The directory of a checkpoint that is on this machine, or `CheckpointError`."""
    from huggingface_hub import snapshot_download  # noqa: PLC0415 (slow to import)
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError  # noqa: PLC0415

    if Path(model).expanduser().is_dir():
        return Path(model).expanduser()
    try:
        return Path(snapshot_download(model, local_files_only=True))
    except (HFValidationError, LocalEntryNotFoundError) as error:
        raise CheckpointError(
            f"{model} is neither a directory nor a repository in the local cache"
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
