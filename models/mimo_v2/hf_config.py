"""What transformers, and vLLM through it, knows of a Pro checkpoint's `config.json`: its plain fields."""

from transformers import PreTrainedConfig


class MiMoV2HFConfig(PreTrainedConfig):  # type: ignore[misc]
    """Fields of a `model_type` that transformers does not have; `config.parse_config` gives them meaning."""

    model_type = "mimo_v2"
