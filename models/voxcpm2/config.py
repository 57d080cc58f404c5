"""The `config.json` of a VoxCPM2 checkpoint as typed, validated data. Free of torch and vLLM.

The released file has a singular `architecture` key and no `model_type`; every size of the model is read
from it and nothing is assumed. Fields that the model does not use at inference are kept out on purpose:
`extra="ignore"` lets newer files add keys, while a missing or mistyped one is an error that names it.
"""

import json
import math
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from models.checkpoint import CONFIG_FILE, CheckpointError

ARCHITECTURE = "voxcpm2"


class _Section(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class RopeScaling(_Section):
    """LongRoPE factors: one per rotary frequency, `head_dim / 2` of each kind."""

    type: Literal["longrope"] = "longrope"
    long_factor: tuple[float, ...]
    short_factor: tuple[float, ...]
    original_max_position_embeddings: int


class TransformerConfig(_Section):
    """One MiniCPM4 stack. The residual LM, local encoder and DiT derive theirs from the base LM's."""

    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    num_hidden_layers: int
    vocab_size: int
    max_position_embeddings: int
    rms_norm_eps: float
    rope_theta: float
    rope_scaling: RopeScaling
    kv_channels: int | None = None
    bos_token_id: int = 1
    eos_token_id: int = 2
    use_mup: bool = True
    scale_emb: float = 1.0
    scale_depth: float = 1.0
    no_rope: bool = False

    @property
    def head_dim(self) -> int:
        """Size of one attention head: `kv_channels` where given, else hidden / heads."""
        return self.kv_channels or self.hidden_size // self.num_attention_heads

    @property
    def embedding_scale(self) -> float:
        """Factor on token embeddings: muP's `scale_emb`, or 1."""
        return self.scale_emb if self.use_mup else 1.0

    @property
    def residual_scale(self) -> float:
        """Factor on each residual branch: muP's `scale_depth / sqrt(layers)`, or 1."""
        return self.scale_depth / math.sqrt(self.num_hidden_layers) if self.use_mup else 1.0


class LocalTransformerConfig(_Section):
    """Sizes of the local encoder or the DiT; what is not here they share with the base LM."""

    hidden_dim: int
    ffn_dim: int
    num_heads: int
    num_layers: int
    kv_channels: int | None = None


class DitConfig(LocalTransformerConfig):
    """The local diffusion transformer. Mean mode feeds the step width to the DiT beside the time."""

    dit_mean_mode: bool = False


class AudioVAEConfig(_Section):
    """AudioVAE V2. Rates are strides per block; their product is samples per latent frame."""

    encoder_dim: int = 128
    encoder_rates: tuple[int, ...] = (2, 5, 8, 8)
    latent_dim: int = 64
    decoder_dim: int = 2048
    decoder_rates: tuple[int, ...] = (8, 6, 5, 2, 2, 2)
    depthwise: bool = True
    sample_rate: int = 16000
    out_sample_rate: int = 48000
    use_noise_block: bool = False
    sr_bin_boundaries: tuple[int, ...] | None = (20000, 30000, 40000)
    cond_type: Literal["scale_bias", "scale_bias_init", "add", "concat"] = "scale_bias"
    cond_dim: int = 128
    cond_out_layer: bool = False

    @property
    def encoder_hop(self) -> int:
        """Input samples per latent frame (640 at 16 kHz in the release)."""
        return math.prod(self.encoder_rates)

    @property
    def decoder_hop(self) -> int:
        """Output samples per latent frame (1920 at 48 kHz in the release)."""
        return math.prod(self.decoder_rates)


class VoxCPM2ModelConfig(_Section):
    """The whole checkpoint configuration.

    Source: `config.json` of the released model (openbmb/VoxCPM2).
    """

    lm_config: TransformerConfig
    encoder_config: LocalTransformerConfig
    dit_config: DitConfig
    audio_vae_config: AudioVAEConfig = Field(default_factory=AudioVAEConfig)
    patch_size: int = 4
    feat_dim: int = 64
    residual_lm_num_layers: int = 8
    residual_lm_no_rope: bool = False
    scalar_quantization_latent_dim: int = 512
    scalar_quantization_scale: int = 9
    max_length: int = 8192
    dtype: str = "bfloat16"

    @model_validator(mode="after")
    def _sizes_agree(self) -> "VoxCPM2ModelConfig":
        if self.feat_dim != self.audio_vae_config.latent_dim:
            raise ValueError(
                f"feat_dim is {self.feat_dim}, but audio_vae_config.latent_dim is "
                f"{self.audio_vae_config.latent_dim}: they must be equal"
            )
        return self

    def require_divisible(self, ranks: int) -> None:
        """Raise `CheckpointError` unless tensor parallelism over `ranks` devices is possible."""
        lm = self.lm_config
        heads, kv_heads = lm.num_attention_heads, lm.num_key_value_heads
        fits = kv_heads % ranks == 0 or ranks % kv_heads == 0
        if heads % ranks or lm.intermediate_size % ranks or not fits:
            raise CheckpointError(
                f"{ranks} devices cannot share {heads} heads, {kv_heads} KV heads and an MLP of "
                f"{lm.intermediate_size}: choose a tensor-parallel size that divides them"
            )

    @property
    def residual_lm(self) -> TransformerConfig:
        """The residual LM: the base LM's sizes, its own depth, no vocabulary, RoPE by its switch."""
        return self.lm_config.model_copy(
            update={
                "num_hidden_layers": self.residual_lm_num_layers,
                "vocab_size": 0,
                "no_rope": self.residual_lm_no_rope,
            }
        )

    @property
    def local_encoder(self) -> TransformerConfig:
        """The stack that reads one patch into one embedding."""
        return self._local(self.encoder_config)

    @property
    def local_dit(self) -> TransformerConfig:
        """The stack that predicts the velocity of one patch."""
        return self._local(self.dit_config)

    def _local(self, sizes: LocalTransformerConfig) -> TransformerConfig:
        return self.lm_config.model_copy(
            update={
                "hidden_size": sizes.hidden_dim,
                "intermediate_size": sizes.ffn_dim,
                "num_attention_heads": sizes.num_heads,
                "num_hidden_layers": sizes.num_layers,
                "kv_channels": sizes.kv_channels,
                "vocab_size": 0,
            }
        )

    @property
    def patch_input_samples(self) -> int:
        """Samples of conditioning audio per patch (2560 at 16 kHz in the release)."""
        return self.patch_size * self.audio_vae_config.encoder_hop

    @property
    def patch_output_samples(self) -> int:
        """Samples of generated audio per patch (7680 at 48 kHz in the release)."""
        return self.patch_size * self.audio_vae_config.decoder_hop

    @property
    def sample_rate(self) -> int:
        """Rate of generated audio in Hz."""
        return self.audio_vae_config.out_sample_rate


def is_voxcpm2(raw: dict[str, object]) -> bool:
    """Whether a parsed `config.json` describes a VoxCPM2 checkpoint."""
    return raw.get("architecture") == ARCHITECTURE


def read_config(checkpoint: Path) -> VoxCPM2ModelConfig:
    """Read and validate `config.json` of a checkpoint directory.

    Raises:
        CheckpointError: the file is missing, is not JSON, is of another architecture, or lacks a field.
    """
    path = checkpoint / CONFIG_FILE
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{path} does not exist: give the directory of a VoxCPM2 checkpoint") from None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} is not valid JSON ({error}): download the checkpoint again") from None
    if not isinstance(raw, dict):
        raise CheckpointError(f"{path} is not a JSON object: download the checkpoint again")
    return parse_config(raw, source=str(path))


def parse_config(raw: dict[str, object], source: str) -> VoxCPM2ModelConfig:
    """Validate a parsed `config.json`; `source` names it in errors.

    Raises:
        CheckpointError: it is of another architecture, or a field is missing or wrong.
    """
    if not is_voxcpm2(raw):
        raise CheckpointError(
            f"{source} has architecture {raw.get('architecture')!r}, not {ARCHITECTURE!r}: "
            "it is not a VoxCPM2 checkpoint"
        )
    try:
        return VoxCPM2ModelConfig.model_validate(raw)
    except ValidationError as error:
        fields = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'config'}: {e['msg']}" for e in error.errors())
        raise CheckpointError(f"{source} is not a usable VoxCPM2 configuration: {fields}") from None
