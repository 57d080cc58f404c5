"""Sixteen requests that differ in everything a batch could mix up, and how to run and compare them."""

from contextlib import aclosing
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from app.pipeline.generation import Generation
from app.pipeline.speech import SpeechPipeline, SpeechRequest
from app.voices.reference import read_clip
from tests.support.golden import FIXTURES, INDEX, TOLERANCE

TEXTS = (
    "The quick brown fox jumps over the lazy dog and runs into the forest.",
    "Hello world, this is a test of speech that is heard in the forest.",
    "Speech is heard where the lazy dog runs, and the fox jumps over it.",
    "你好，世界 — naïve café, and a few words more to fill the line.",
)
CFGS = (1.0, 1.5, 2.0, 3.0)
STEPS = (10, 4, 20, 2, 7)
SEEDS = 300  # of no request whose quantiser tosses a coin: see `margins.py`
TEMPERATURES = (1.0, 0.8)


@dataclass(frozen=True)
class Spoken:
    """A whole answer.

    Attributes:
        indices: of its patches, as they came.
        latents: `[n, patch_size, feat_dim]`.
        stop_logits: `[n, 2]`.
        pcm: all samples.
    """

    indices: list[int]
    latents: npt.NDArray[np.float32]
    stop_logits: npt.NDArray[np.float32]
    pcm: npt.NDArray[np.float32]


def mixed_requests() -> list[SpeechRequest]:
    """Four texts in each of the four prompt layouts, with different cfg, steps, temperatures and lengths."""
    voice_a, voice_b = read_clip(FIXTURES / "voice_a.wav"), read_clip(FIXTURES / "voice_b.wav")
    return [
        SpeechRequest(
            text=TEXTS[i // 4],
            generation=Generation(
                seed=SEEDS + i,
                cfg=CFGS[i % len(CFGS)],
                steps=STEPS[i % len(STEPS)],
                temperature=TEMPERATURES[i % len(TEMPERATURES)],
                min_patches=4 + i % 5,
                max_patches=8 + i,
            ),
            reference=(voice_a if i % 8 < 4 else voice_b) if i % 4 in (1, 3) else None,
            prompt=voice_b if i % 4 in (2, 3) else None,
            prompt_text="The quick brown fox. " if i % 4 in (2, 3) else "",
        )
        for i in range(16)
    ]


def golden_request(name: str, context_patches: int = 3) -> SpeechRequest:
    """A case as a request; without context patches the decoder starts cold, as the reference's stream."""
    case = INDEX[name]
    clips = {key: read_clip(FIXTURES / case[key]) for key in case if key.endswith("_wav_path")}
    return SpeechRequest(
        text=case["target_text"],
        generation=Generation(
            seed=case["seed"],
            cfg=case.get("cfg_value", 2.0),
            steps=case.get("inference_timesteps", 10),
            min_patches=case["min_len"],
            max_patches=case["max_len"],
            context_patches=context_patches,
        ),
        reference=clips.get("reference_wav_path"),
        prompt=clips.get("prompt_wav_path"),
        prompt_text=case.get("prompt_text", ""),
    )


async def speak(pipeline: SpeechPipeline, request: SpeechRequest) -> Spoken:
    """Run a request to its end."""
    prompt = await pipeline.prepare(request)
    async with aclosing(pipeline.speak(prompt, request.generation)) as stream:
        patches = [patch async for patch in stream]
    return Spoken(
        indices=[patch.index for patch in patches],
        latents=np.stack([patch.latents for patch in patches]),
        stop_logits=np.stack([patch.stop_logits for patch in patches]),
        pcm=np.concatenate([patch.pcm for patch in patches]),
    )


def assert_same(got: Spoken, expected: Spoken) -> None:
    """The same patches, in order and none twice, to the tolerance of the golden data."""
    assert got.indices == list(range(len(expected.latents)))
    for name in ("latents", "stop_logits", "pcm"):
        np.testing.assert_allclose(
            getattr(got, name), getattr(expected, name), rtol=0, atol=TOLERANCE, err_msg=name
        )
