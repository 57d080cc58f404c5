"""vLLM workers that run speech: the device's stock worker with our runner and two calls.

vLLM finds them by name, `worker_cls="models.runtime.worker.SpeechCPUWorker"`; the API process reaches their
extra methods through `collective_rpc`.
"""

from typing import TYPE_CHECKING, Any

from vllm.platforms import current_platform

from models import compat

if TYPE_CHECKING:
    from models.runtime.runner import SpeechStats


class SpeechWorkerMixin:
    """What speech adds to a worker."""

    model_runner: Any

    def init_device(self) -> None:
        """Set the device up, then let the runner drive speech."""
        super().init_device()  # type: ignore[misc]
        compat.adopt_runner(self.model_runner)

    def encode_audio(self, pcm: bytes) -> bytes:
        """VAE-encode conditioning audio.

        Args:
            pcm: float32 mono samples at the AudioVAE's input rate, a whole number of patches.

        Returns:
            float32 latents `[patches, patch_size, feat_dim]`.
        """
        return self.model_runner.speech.encode_audio(pcm)

    def speech_stats(self) -> "SpeechStats":
        """Counters of the request state on this worker."""
        return self.model_runner.speech.stats()


if current_platform.is_cpu():
    from vllm.v1.worker.cpu_worker import CPUWorker

    class SpeechCPUWorker(SpeechWorkerMixin, CPUWorker):  # type: ignore[misc]
        """On a CPU."""
else:
    from vllm.v1.worker.gpu_worker import Worker

    class SpeechCUDAWorker(SpeechWorkerMixin, Worker):  # type: ignore[misc]
        """On a CUDA device."""
