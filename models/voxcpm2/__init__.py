"""VoxCPM2 text to speech. The classes that vLLM resolves by name are loaded on first use."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from models.voxcpm2.scaffold import VoxCPM2ForTextToSpeech

__all__ = ["VoxCPM2ForTextToSpeech"]


def __getattr__(name: str) -> Any:
    if name == "VoxCPM2ForTextToSpeech":
        from models.voxcpm2.scaffold import VoxCPM2ForTextToSpeech  # noqa: PLC0415 (imports torch and vLLM)

        return VoxCPM2ForTextToSpeech
    raise AttributeError(name)
