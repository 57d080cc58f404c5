"""VoxCPM2's configuration in the form that vLLM reads, and the parser that finds it.

The released `config.json` has no `model_type`, so `AutoConfig` cannot know it; vLLM's config-parser registry
is the door for such files (`config_format="voxcpm2"`).
"""

import json
from pathlib import Path
from typing import Any

from transformers import PretrainedConfig
from vllm.transformers_utils.config_parser_base import ConfigParserBase

from models.checkpoint import CONFIG_FILE, CheckpointError
from models.voxcpm2.config import VoxCPM2ModelConfig, parse_config
from models.voxcpm2.content_ids import ID_LIMIT

MODEL_ARCHITECTURE = "VoxCPM2ForTextToSpeech"


class VoxCPM2Config(PretrainedConfig):  # type: ignore[misc]
    """What vLLM must know to size KV cache and parallelism; the rest is in `voxcpm2`."""

    model_type = "voxcpm2"

    def __init__(self, raw: dict[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if raw is None:  # transformers builds a default instance to compare with when it prints one
            return
        self.raw = raw
        config = self.voxcpm2
        lm = config.lm_config
        self.architectures = [MODEL_ARCHITECTURE]
        self.dtype = config.dtype
        self.hidden_size = lm.hidden_size
        self.num_hidden_layers = lm.num_hidden_layers + config.residual_lm_num_layers
        self.num_attention_heads = lm.num_attention_heads
        self.num_key_value_heads = lm.num_key_value_heads
        self.head_dim = lm.head_dim
        self.max_position_embeddings = min(config.max_length, lm.max_position_embeddings)
        self.vocab_size = ID_LIMIT  # ids above the text vocabulary are content hashes of audio

    @property
    def voxcpm2(self) -> VoxCPM2ModelConfig:
        """The validated configuration of the checkpoint."""
        return parse_config(self.raw, source=CONFIG_FILE)


class VoxCPM2ConfigParser(ConfigParserBase):  # type: ignore[misc]
    """Reads `config.json` of a checkpoint directory; `app.pipeline.checkpoint` makes one of a hub id."""

    def parse(
        self,
        model: str | Path,
        trust_remote_code: bool,
        revision: str | None = None,
        code_revision: str | None = None,
        **kwargs: Any,
    ) -> tuple[dict[str, Any], VoxCPM2Config]:
        """The raw file and its typed form; `CheckpointError` where it is not a VoxCPM2 configuration."""
        del trust_remote_code, revision, code_revision, kwargs
        path = Path(model) / CONFIG_FILE
        try:
            raw = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, json.JSONDecodeError) as error:
            raise CheckpointError(f"{path} cannot be read: {error}") from error
        parse_config(raw, source=str(path))
        return raw, VoxCPM2Config(raw)
