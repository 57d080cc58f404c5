"""MiMoV2, a sparse language model. The classes that vLLM resolves by name are loaded on first use."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from models.mimo_v2.causal_lm import MiMoV2FlashForCausalLM, MiMoV2ForCausalLM
    from models.mimo_v2.model import MiMoV2Model
    from models.mimo_v2.mtp import MiMoV2MTP

__all__ = ["MiMoV2FlashForCausalLM", "MiMoV2ForCausalLM", "MiMoV2MTP", "MiMoV2Model"]

_MODULES = {  # each imports torch and vLLM
    "MiMoV2FlashForCausalLM": "models.mimo_v2.causal_lm",
    "MiMoV2ForCausalLM": "models.mimo_v2.causal_lm",
    "MiMoV2MTP": "models.mimo_v2.mtp",
    "MiMoV2Model": "models.mimo_v2.model",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(name)
