"""From what was asked to jobs: requests with their seeds and the files they become, which can be written."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from app.commands.outputs import check_output
from app.commands.synth_requests import BatchRequest, SynthRequest, option_name, parse_options, read_batch
from app.commands.usage import UsageError
from app.pipeline.generation import draw_seed

WAV, NPZ = ".wav", ".npz"


@dataclass(frozen=True)
class SynthTarget:
    """Where speech goes: `out` and `latents` of one request, or a batch file and its directory."""

    out: Path | None = None
    latents: Path | None = None
    batch: Path | None = None
    out_dir: Path | None = None


@dataclass(frozen=True)
class Job:
    """A checked request, what errors call it, and its files."""

    name: str
    request: SynthRequest
    seed: int
    wav: Path
    npz: Path | None


def plan_jobs(target: SynthTarget, options: Mapping[str, object]) -> list[Job]:
    """Jobs of a batch file, or of the options of one request (by field, None where not given).

    Raises:
        UsageError: they cannot be done as given.
    """
    return _batch_jobs(target, options) if target.batch else _single_job(target, options)


def _single_job(target: SynthTarget, options: Mapping[str, object]) -> list[Job]:
    if options.get("text") is None:
        raise UsageError("there is nothing to say: give --text, or --batch with a file of requests")
    if target.out is None:
        raise UsageError("--out is missing: name the WAV file to write")
    if target.out_dir is not None:
        raise UsageError("--out-dir belongs to --batch: use --out")
    wanted = [("--out", target.out, WAV)] + ([("--latents", target.latents, NPZ)] if target.latents else [])
    problems = [
        f"{option}: {problem}" for option, path, suffix in wanted if (problem := check_output(path, suffix))
    ]
    if problems:
        raise UsageError(*problems)
    request = parse_options(options)
    return [Job(str(target.out), request, _seed(request), target.out, target.latents)]


def _batch_jobs(target: SynthTarget, options: Mapping[str, object]) -> list[Job]:
    assert target.batch
    given = [option_name(field) for field, value in options.items() if value is not None]
    given += [name for name, path in (("--out", target.out), ("--latents", target.latents)) if path]
    if given:
        raise UsageError(
            f"{', '.join(given)}: not together with --batch, whose lines say it for each request"
        )
    if target.out_dir is None:
        raise UsageError("--out-dir is missing: name a directory for the files of the batch")
    requests = read_batch(target.batch)
    try:
        target.out_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--out-dir: {target.out_dir} cannot be made: {error.strerror}") from error
    jobs = list(_jobs_in(target.out_dir, requests))
    problems = [
        f"--out-dir: {problem}"
        for job in jobs
        for path, suffix in ((job.wav, WAV), (job.npz, NPZ))
        if path and (problem := check_output(path, suffix))
    ]
    if problems:
        raise UsageError(problems[0])
    return jobs


def _jobs_in(directory: Path, requests: Sequence[BatchRequest]) -> Iterator[Job]:
    for request in requests:
        # `with_suffix` would take the end of a name with a dot for a suffix.
        wav, npz = directory / f"{request.name}{WAV}", directory / f"{request.name}{NPZ}"
        yield Job(request.name, request, _seed(request), wav, npz)


def _seed(request: SynthRequest) -> int:
    return draw_seed() if request.seed is None else request.seed
