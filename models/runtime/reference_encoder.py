"""Encodes conditioning audio beside the steps: in a thread of the worker, so that running speech goes on.

Results leave by the audio channel. A ZeroMQ socket belongs to one thread, hence the thread has its own.
"""

import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import torch

from models.runtime.audio_channel import AudioSender, PatchLabel

if TYPE_CHECKING:
    from models.voxcpm2.scaffold import VoxCPM2ForTextToSpeech

logger = logging.getLogger(__name__)


class ReferenceEncoder:
    """One clip at a time, in the order they came."""

    def __init__(self, model: "VoxCPM2ForTextToSpeech", device: torch.device, endpoint: str) -> None:
        self._vae = model.audio_vae
        self._config = model.config
        self._device = device
        self._endpoint = endpoint
        self._sender: AudioSender | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="reference-encoder")

    def submit(self, channel: str, pcm: bytes) -> None:
        """Encode float32 samples; latents become patch 0 of `channel`, an empty row if that fails."""
        self._thread.submit(self._run, channel, pcm)

    def _run(self, channel: str, pcm: bytes) -> None:
        self._sender = self._sender or AudioSender(self._endpoint)
        try:
            row = self._encode(pcm)
        except Exception:
            logger.exception("conditioning audio could not be encoded")
            row = np.zeros((1, 0), np.float32)
        self._sender.send([PatchLabel(channel, 0)], row)

    @torch.inference_mode()
    def _encode(self, pcm: bytes) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
        """Latents, patch after patch, as one row `[1, patches * patch_size * feat_dim]`."""
        samples = torch.frombuffer(bytearray(pcm), dtype=torch.float32).to(self._device)
        latents = self._vae.encode(samples.unsqueeze(0))[0]  # [feat_dim, frames]
        return latents.T.reshape(1, -1).cpu().numpy()
