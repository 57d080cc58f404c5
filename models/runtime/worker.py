"""The vLLM worker that runs speech: the device's stock worker with our runner and two calls.

vLLM finds it by name, `worker_cls="models.runtime.worker.SpeechWorker"`; the API process reaches its extra
methods through `collective_rpc`.
"""

from typing import TYPE_CHECKING, Any

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

    def encode_audio(self, channel: str, pcm: bytes) -> None:
        """Begin to VAE-encode conditioning audio; latents come on `channel`.

        Args:
            channel: of the audio channel, used for this alone.
            pcm: float32 mono samples at the AudioVAE's input rate, a whole number of patches.
        """
        self.model_runner.speech.encode_audio(channel, pcm)

    def speech_stats(self) -> "SpeechStats":
        """Counters of the request state on this worker."""
        return self.model_runner.speech.stats()


class SpeechWorker(SpeechWorkerMixin, compat.device_worker()):  # type: ignore[misc]
    """The worker of the device that vLLM runs on."""
