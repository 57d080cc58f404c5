"""`voxserve synth`: speech from the service's own engine and pipeline, to files, without a server.

    check everything -> start the engine -> speak all requests at the same time -> write each as it ends

A request that fails takes no other with it.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import typer

from app.commands.outputs import write_whole
from app.commands.progress import Progress
from app.commands.synth_model import SynthModel, check_lengths, resolve_model
from app.commands.synth_plan import Job, SynthTarget, plan_jobs
from app.commands.usage import UsageError
from app.errors import GenerationFailed, VoxserveError
from app.pipeline.encode import wav_header
from app.pipeline.generation import Generation
from app.pipeline.pcm import BYTES_PER_SAMPLE, to_s16le
from app.pipeline.speech import SpeechPipeline, SpeechRequest
from app.voices.reference import AudioClip, read_clip
from models.checkpoint import CheckpointError
from models.voxcpm2.prompt import Prompt

DONE, FAILED = 0, 1


@dataclass(frozen=True)
class Speech:
    """A whole answer.

    Attributes:
        pcm: signed 16-bit little-endian samples.
        latents: float32 `[n, patch_size, feat_dim]`.
        stop_logits: float32 `[n, 2]`.
    """

    pcm: bytes
    latents: npt.NDArray[np.float32]
    stop_logits: npt.NDArray[np.float32]


def synth(target: SynthTarget, which: SynthModel, options: Mapping[str, object], *, verbose: bool) -> int:
    """Speak what options or a batch file ask for. Returns the exit code.

    Args:
        options: of one request, by field; None where not given.

    Raises:
        UsageError: it cannot be done as given; no engine was started.
    """
    from app.commands.engine_session import run_with_engine  # noqa: PLC0415 (a second to import)
    from models.voxcpm2.weights import check_checkpoint  # noqa: PLC0415 (imports torch)

    jobs = plan_jobs(target, options)
    settings, checkpoint = resolve_model(which)
    try:
        check_checkpoint(checkpoint)
        check_lengths(jobs, checkpoint, settings.speech_max_model_len)
        typer.echo("starting the engine: about a minute", err=True)
        return run_with_engine(
            settings,
            lambda pipeline: speak_jobs(pipeline, jobs, settings.speech_max_num_seqs),
            verbose=verbose,
        )
    except CheckpointError as error:
        raise UsageError(str(error)) from error
    except VoxserveError as error:
        typer.echo(f"error: {error}", err=True)
        return FAILED


async def speak_jobs(pipeline: SpeechPipeline, jobs: Sequence[Job], at_once: int) -> int:
    """Speak `jobs`, at most `at_once` at the same time, and write their files. Returns the exit code."""
    progress = Progress(len(jobs))
    gate = asyncio.Semaphore(at_once)
    failed: list[str] = []

    async def run(job: Job) -> None:
        async with gate:
            try:
                progress.end_request(await _run_job(pipeline, job, progress))
            except (VoxserveError, OSError) as error:
                failed.append(job.name)
                progress.end_request(f"error: {job.name}: {error}")

    try:
        async with asyncio.TaskGroup() as group:
            for job in jobs:
                group.create_task(run(job))
    finally:
        progress.close()
    if failed and len(jobs) > 1:
        typer.echo(f"error: {len(failed)} of {len(jobs)} requests failed: {', '.join(failed)}", err=True)
    return FAILED if failed else DONE


async def _run_job(pipeline: SpeechPipeline, job: Job, progress: Progress) -> str:
    """Speak and write one request; says what came of it."""
    request = job.request
    generation = Generation(
        seed=job.seed,
        cfg=request.cfg,
        steps=request.steps,
        temperature=request.temperature,
        min_patches=request.min_patches,
        max_patches=request.max_patches,
    )
    prompt = await pipeline.prepare(
        SpeechRequest(
            text=request.text,
            generation=generation,
            reference=await _clip(request.reference),
            prompt=await _clip(request.prompt_audio),
            prompt_text=request.prompt_text or "",
        )
    )
    speech = await _collect(pipeline, prompt, generation, progress)
    await asyncio.to_thread(_write, job, speech, prompt, pipeline.sample_rate)
    seconds = len(speech.pcm) / BYTES_PER_SAMPLE / pipeline.sample_rate
    return f"{job.wav}: {seconds:.2f} s of audio, {len(speech.latents)} patches, seed {job.seed}"


async def _collect(
    pipeline: SpeechPipeline, prompt: Prompt, generation: Generation, progress: Progress
) -> Speech:
    pcm, latents, stop_logits = [], [], []
    async with aclosing(pipeline.speak(prompt, generation)) as patches:
        async for patch in patches:
            pcm.append(to_s16le(patch.pcm))
            latents.append(patch.latents)
            stop_logits.append(patch.stop_logits)
            progress.add_patch(patch.pcm.size / pipeline.sample_rate)
    if not latents:
        raise GenerationFailed("the engine made no audio: try again")
    return Speech(b"".join(pcm), np.stack(latents), np.stack(stop_logits))


async def _clip(path: Path | None) -> AudioClip | None:
    """Decode conditioning audio, again: clips of a whole batch would not fit in memory."""
    return await asyncio.to_thread(read_clip, path) if path else None


def _write(job: Job, speech: Speech, prompt: Prompt, sample_rate: int) -> None:
    def write_npz(stream: BinaryIO) -> None:
        np.savez(
            stream,
            latents=speech.latents,
            stop_logits=speech.stop_logits,
            prompt_token_ids=np.array(prompt.token_ids, np.int64),
        )

    if job.npz:
        write_whole(job.npz, write_npz)
    write_whole(job.wav, lambda stream: stream.write(wav_header(sample_rate, len(speech.pcm)) + speech.pcm))
