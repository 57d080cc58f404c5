"""Conditioning audio is encoded in a thread; what comes by the channel is what the AudioVAE says."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
import torch

from models.runtime.audio_channel import AudioReceiver, ReceivedPatch
from models.runtime.reference_encoder import ReferenceEncoder
from models.voxcpm2.audio_vae import AudioVAE, load_audio_vae_weights
from models.voxcpm2.config import read_config
from models.voxcpm2.weights import read_tensors
from tests.support.golden import CHECKPOINT

CONFIG = read_config(CHECKPOINT)
PATCH = (CONFIG.patch_size, CONFIG.feat_dim)
TIMEOUT_S = 30


@pytest.fixture(scope="module")
def model() -> Any:
    """The two attributes of the model that the encoder reads."""
    vae = AudioVAE(CONFIG.audio_vae_config)
    load_audio_vae_weights(vae, read_tensors(CHECKPOINT / "audiovae.pth"))
    return SimpleNamespace(audio_vae=vae, config=CONFIG)


@pytest_asyncio.fixture
async def channel(tmp_path: Path) -> AsyncIterator[tuple[str, AudioReceiver]]:
    endpoint = f"ipc://{tmp_path}/audio"
    receiver = AudioReceiver(endpoint)
    yield endpoint, receiver
    await receiver.close()


async def receive(queue: asyncio.Queue[ReceivedPatch]) -> ReceivedPatch:
    async with asyncio.timeout(TIMEOUT_S):
        return await queue.get()


async def test_latents_come_on_their_channels(model: Any, channel: tuple[str, AudioReceiver]) -> None:
    endpoint, receiver = channel
    encoder = ReferenceEncoder(model, torch.device("cpu"), endpoint)
    queues = [receiver.open(f"reference-{i}") for i in range(3)]
    clips = [
        np.random.default_rng(i).uniform(-0.5, 0.5, (i + 1) * CONFIG.patch_input_samples).astype(np.float32)
        for i in range(3)
    ]
    for i, clip in enumerate(clips):
        encoder.submit(f"reference-{i}", clip.tobytes())
    for queue, clip in zip(queues, clips, strict=True):
        row = (await receive(queue)).row.reshape(-1, *PATCH)
        whole = model.audio_vae.encode(torch.from_numpy(clip).unsqueeze(0))[0]  # [feat_dim, frames]
        assert len(row) * CONFIG.patch_size == whole.shape[1]
        for frame in range(whole.shape[1]):
            got = row[frame // CONFIG.patch_size, frame % CONFIG.patch_size]
            np.testing.assert_allclose(got, whole[:, frame], rtol=0, atol=1e-6)


async def test_a_failure_is_an_empty_row_and_ends_nothing(
    model: Any, channel: tuple[str, AudioReceiver], caplog: pytest.LogCaptureFixture
) -> None:
    endpoint, receiver = channel
    encoder = ReferenceEncoder(model, torch.device("cpu"), endpoint)
    failed, fine = receiver.open("failed"), receiver.open("fine")
    encoder.submit("failed", b"123")  # no whole float
    encoder.submit("fine", np.zeros(CONFIG.patch_input_samples, np.float32).tobytes())
    assert (await receive(failed)).row.size == 0
    assert (await receive(fine)).row.size == CONFIG.patch_size * CONFIG.feat_dim
    assert "conditioning audio could not be encoded" in caplog.text
