"""The command line: options in, exit code out. Each command's work is in a module imported when it runs.

| Exit code | Meaning |
|---|---|
| 0 | done |
| 1 | it was started and failed, in part or whole |
| 2 | it cannot be carried out as given; nothing was started |
| 130, 143 | interrupted by SIGINT, by SIGTERM |
"""

import shlex
import sys
from collections.abc import Sequence
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from app.commands.usage import UsageError
from models.voxcpm2 import limits

OK, BAD_USAGE, INTERRUPTED = 0, 2, 130


class CheckpointKind(StrEnum):
    """Models of which `make-checkpoint` makes tiny ones."""

    VOXCPM2 = "voxcpm2"
    MIMO_V2 = "mimo-v2"


class CheckpointVariant(StrEnum):
    """Formats in which MiMoV2 is released."""

    FLASH = "flash"
    PRO_FP8 = "pro-fp8"


cli = typer.Typer(
    help="VoxCPM2 text to speech and MiMoV2 chat on asynchronous vLLM engines.",
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

ModelOption = Annotated[
    str | None,
    typer.Option(
        help="Checkpoint directory or Hugging Face repository.",
        show_default="SPEECH_MODEL, else a tiny random one, which speaks noise",
    ),
]
LanguageModelOption = Annotated[
    str | None,
    typer.Option(help="MiMoV2 checkpoint directory or Hugging Face repository.", show_default="LLM_MODEL"),
]
RevisionOption = Annotated[
    str | None,
    typer.Option(help="Branch, tag or commit of the repository.", show_default="its main branch"),
]


def main() -> None:
    """The console script."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Carry out one command line; errors are lines on standard error. Returns the exit code."""
    try:
        return cli(list(arguments) or ["--help"], prog_name="voxserve", standalone_mode=False) or OK
    except UsageError as error:
        problems: Sequence[str] = error.problems
    except typer.TyperException as error:
        problems = [error.format_message()]
    except KeyboardInterrupt:
        return INTERRUPTED
    for problem in problems:
        typer.echo(f"error: {problem}", err=True)
    return BAD_USAGE


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"voxserve {version('voxserve')}")
        raise typer.Exit


@cli.callback()
def _common(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    pass


@cli.command()
def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on.", show_default="127.0.0.1")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on.", show_default="8000")] = None,
    model: ModelOption = None,
    revision: RevisionOption = None,
    llm_model: LanguageModelOption = None,
    llm_revision: RevisionOption = None,
) -> int:
    """Serve over HTTP. Environment variables and .env hold all settings; options here win over them."""
    from app.server import run as run_server  # noqa: PLC0415

    given: dict[str, object] = {
        "host": host,
        "port": port,
        "speech_model": model,
        "speech_model_revision": revision,
        "llm_model": llm_model,
        "llm_model_revision": llm_revision,
    }
    overrides = {name: value for name, value in given.items() if value is not None}
    if model is not None:
        overrides["speech_model_revision"] = revision  # that of the environment is another model's
    if llm_model is not None:
        overrides["llm_model_revision"] = llm_revision
    return run_server(overrides)


@cli.command()
def synth(
    text: Annotated[str | None, typer.Option(help="What to say.", show_default=False)] = None,
    out: Annotated[Path | None, typer.Option(help="WAV file to write.", show_default=False)] = None,
    batch: Annotated[
        Path | None,
        typer.Option(
            help="Instead of --text: a file with a JSON object a line, of a `name`, a `text` and any of the "
            "options below in snake_case. Its audio paths are relative to it.",
            show_default=False,
        ),
    ] = None,
    out_dir: Annotated[
        Path | None,
        typer.Option(help="With --batch: directory for NAME.wav and NAME.npz.", show_default=False),
    ] = None,
    model: ModelOption = None,
    revision: RevisionOption = None,
    reference: Annotated[Path | None, typer.Option(help="Audio file of a voice to imitate.")] = None,
    prompt_audio: Annotated[Path | None, typer.Option(help="Audio file to continue.")] = None,
    prompt_text: Annotated[str | None, typer.Option(help="What --prompt-audio says.")] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="The same seed gives the same speech.", show_default="drawn, and printed"),
    ] = None,
    cfg: Annotated[
        float | None,
        typer.Option(
            help="Guidance: how closely speech follows the text.", show_default=str(limits.DEFAULT_CFG)
        ),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="Solver steps a patch.", show_default=str(limits.DEFAULT_STEPS))
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(help="Factor on the solver's starting noise.", show_default="1.0")
    ] = None,
    min_patches: Annotated[
        int | None,
        typer.Option(
            help="Speech may end after the patch of this number, counted from 0; a patch lasts 160 ms.",
            show_default=str(limits.DEFAULT_MIN_PATCHES),
        ),
    ] = None,
    max_patches: Annotated[
        int | None, typer.Option(help="Longest speech, in patches.", show_default=str(limits.MAX_PATCHES))
    ] = None,
    latents: Annotated[
        Path | None, typer.Option(help="NPZ file to write latents, stop logits and prompt ids to.")
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show what vLLM logs.")] = False,
) -> int:
    """Speak without a server: one text, or a batch that runs at the same time in one engine."""
    from app.commands import synth as command  # noqa: PLC0415
    from app.commands.synth_model import SynthModel  # noqa: PLC0415
    from app.commands.synth_plan import SynthTarget  # noqa: PLC0415

    options = {
        "text": text,
        "reference": reference,
        "prompt_audio": prompt_audio,
        "prompt_text": prompt_text,
        "seed": seed,
        "cfg": cfg,
        "steps": steps,
        "temperature": temperature,
        "min_patches": min_patches,
        "max_patches": max_patches,
    }
    return command.synth(
        SynthTarget(out=out, latents=latents, batch=batch, out_dir=out_dir),
        SynthModel(model=model, revision=revision),
        options,
        verbose=verbose,
    )


@cli.command("make-checkpoint")
def make_checkpoint(
    directory: Annotated[Path, typer.Argument(help="Directory to make.")],
    kind: Annotated[CheckpointKind, typer.Option(help="Which model.")] = CheckpointKind.VOXCPM2,
    variant: Annotated[
        CheckpointVariant | None,
        typer.Option(
            help="Of mimo-v2: bfloat16 with split projections, or block-fp8 with fused ones.",
            show_default="flash",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same bytes.")] = 0,
    force: Annotated[
        bool, typer.Option("--force", help="Replace an earlier checkpoint of this command.")
    ] = False,
) -> int:
    """Write a tiny random checkpoint, which speaks noise or writes nonsense: for tests and a first try."""
    from models.checkpoint import CheckpointError  # noqa: PLC0415

    if variant and kind is not CheckpointKind.MIMO_V2:
        raise UsageError("--variant is of --kind mimo-v2: add that, or leave it out")
    try:
        if kind is CheckpointKind.MIMO_V2:
            from models.mimo_v2.make_checkpoint import make_checkpoint as make_mimo_v2  # noqa: PLC0415

            make_mimo_v2(directory, (variant or CheckpointVariant.FLASH).value, seed, force=force)
        else:
            from models.voxcpm2.make_checkpoint import make_checkpoint as make_voxcpm2  # noqa: PLC0415

            make_voxcpm2(directory, seed, force=force)
    except CheckpointError as error:
        raise UsageError(str(error)) from error
    except OSError as error:
        raise UsageError(f"{directory} cannot be made: {error.strerror}") from error
    typer.echo(f"made {directory}; to serve it: {_serve_command(directory, kind, variant)}")
    return OK


def _serve_command(directory: Path, kind: CheckpointKind, variant: CheckpointVariant | None) -> str:
    """What to type, to serve a checkpoint that was made."""
    path = shlex.quote(str(directory))
    if kind is CheckpointKind.VOXCPM2:
        return f"SPEECH_MODEL={path} voxserve serve"
    # vLLM computes with fp8 weights in 16 bits only.
    dtype = "" if variant is CheckpointVariant.PRO_FP8 else " LLM_DTYPE=float32"
    return f"LLM_MODEL={path}{dtype} voxserve serve"


@cli.command()
def doctor(
    model: Annotated[
        str | None,
        typer.Option(
            help="Checkpoint directory, or Hugging Face repository in the local cache.",
            show_default="SPEECH_MODEL",
        ),
    ] = None,
    llm_model: Annotated[
        str | None, typer.Option(help="The same of a language model.", show_default="LLM_MODEL")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON.")] = False,
) -> int:
    """Check versions, devices, the plug-in and a checkpoint, and say what to do about what is wrong."""
    from app.commands.doctor import doctor as examine  # noqa: PLC0415

    return examine(model, llm_model, as_json=as_json)
