"""VoxCPM2 without vLLM: dense causal attention over the whole sequence, computed anew for every patch.

Slow, short, and free of caches, slots and batches: what it says is the mathematics alone. Its modules have
the names of `models.voxcpm2.scaffold`, so that the same loader fills them.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.voxcpm2.audio_vae import AudioVAE
from models.voxcpm2.config import TransformerConfig, VoxCPM2ModelConfig
from models.voxcpm2.flow_matching import solve, time_schedule
from models.voxcpm2.fsq import FiniteScalarQuantizer
from models.voxcpm2.local_dit import LocalDiT
from models.voxcpm2.local_encoder import LocalEncoder
from models.voxcpm2.rope import LongRoPE, RMSNorm, rotate


@dataclass(frozen=True)
class DenseRequest:
    """A laid-out prompt and how to speak it.

    Attributes:
        token_ids: int64 `[T]`; what stands at audio positions is not read.
        is_audio: bool `[T]`.
        latents: `[T, patch_size, feat_dim]`; what stands at text positions is not read.
    """

    token_ids: Tensor
    is_audio: Tensor
    latents: Tensor
    seed: int
    cfg: float
    steps: int
    min_patches: int
    max_patches: int


class DenseAttention(nn.Module):
    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        q_size = config.num_attention_heads * config.head_dim
        kv_size = config.num_key_value_heads * config.head_dim
        self.q_proj = nn.Linear(config.hidden_size, q_size, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, kv_size, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, kv_size, bias=False)
        self.o_proj = nn.Linear(q_size, config.hidden_size, bias=False)

    def forward(self, hidden: Tensor, rotary: tuple[Tensor, Tensor] | None) -> Tensor:
        q, k, v = (
            projection(hidden).unflatten(-1, (-1, self.config.head_dim))
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        if rotary is not None:
            q, k = rotate(q, *rotary), rotate(k, *rotary)
        group = self.config.num_attention_heads // self.config.num_key_value_heads
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        scores = torch.einsum("qhd,khd->hqk", q, k) / self.config.head_dim**0.5
        future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(diagonal=1)
        weights = scores.masked_fill(future, -torch.inf).softmax(dim=-1)
        return self.o_proj(torch.einsum("hqk,khd->qhd", weights, v).flatten(1))


class DenseMLP(nn.Module):
    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(hidden)) * self.up_proj(hidden))


class DenseLayer(nn.Module):
    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = DenseAttention(config)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = DenseMLP(config)
        self.residual_scale = config.residual_scale

    def forward(self, hidden: Tensor, rotary: tuple[Tensor, Tensor] | None) -> Tensor:
        hidden = hidden + self.residual_scale * self.self_attn(self.input_layernorm(hidden), rotary)
        return hidden + self.residual_scale * self.mlp(self.post_attention_layernorm(hidden))


class DenseStack(nn.Module):
    """The base LM, or without a vocabulary the residual LM."""

    def __init__(self, config: TransformerConfig, native_prefix: str) -> None:
        super().__init__()
        self.native_prefix = native_prefix
        if config.vocab_size:
            self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.embedding_scale = config.embedding_scale
        self.layers = nn.ModuleList(DenseLayer(config) for _ in range(config.num_hidden_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.rope = None if config.no_rope else LongRoPE(config)

    def forward(self, hidden: Tensor) -> Tensor:
        """Embeddings `[T, H]` of a whole sequence to hidden states `[T, H]`."""
        rotary = self.rope(torch.arange(len(hidden))) if self.rope is not None else None
        for layer in self.layers:
            hidden = layer(hidden, rotary)
        return self.norm(hidden)

    def load_weights_from_native(self, native: Mapping[str, Tensor]) -> set[str]:
        own = {
            name.removeprefix(self.native_prefix): tensor
            for name, tensor in native.items()
            if name.startswith(self.native_prefix)
        }
        self.load_state_dict(own)
        return set(own)


class DenseVoxCPM2(nn.Module):
    def __init__(self, config: VoxCPM2ModelConfig) -> None:
        super().__init__()
        hidden, dit_hidden = config.lm_config.hidden_size, config.dit_config.hidden_dim
        self.config = config
        self.base_lm = DenseStack(config.lm_config, "base_lm.")
        self.residual_lm = DenseStack(config.residual_lm, "residual_lm.")
        self.local_encoder = LocalEncoder(config)
        self.local_dit = LocalDiT(config)
        self.fsq = FiniteScalarQuantizer(
            hidden, config.scalar_quantization_latent_dim, config.scalar_quantization_scale
        )
        self.enc_to_lm_proj = nn.Linear(config.encoder_config.hidden_dim, hidden)
        self.lm_to_dit_proj = nn.Linear(hidden, dit_hidden)
        self.res_to_dit_proj = nn.Linear(hidden, dit_hidden)
        self.fusion_concat_proj = nn.Linear(2 * hidden, hidden)
        self.stop_proj = nn.Linear(hidden, hidden)
        self.stop_head = nn.Linear(hidden, 2, bias=False)
        self.audio_vae = AudioVAE(config.audio_vae_config)

    def last_states(self, token_ids: Tensor, is_audio: Tensor, latents: Tensor) -> tuple[Tensor, Tensor]:
        """`h` and `r` of the last position, each `[H]`."""
        mask = is_audio.unsqueeze(-1)
        text = self.base_lm.embed_tokens(token_ids * ~is_audio) * self.base_lm.embedding_scale
        audio = self.enc_to_lm_proj(self.local_encoder(latents)) * mask
        hidden = self.base_lm(torch.where(mask, audio, text))
        hidden = torch.where(mask, self.fsq(hidden), hidden)
        residual = self.residual_lm(self.fusion_concat_proj(torch.cat((hidden, audio), dim=-1)))
        return hidden[-1], residual[-1]

    def speak(self, request: DenseRequest) -> tuple[Tensor, Tensor]:
        """Patches `[n, patch_size, feat_dim]` and stop logits `[n, 2]` of a whole answer."""
        shape = (self.config.patch_size, self.config.feat_dim)
        generator = torch.Generator().manual_seed(request.seed)
        times, widths = (row.unsqueeze(0) for row in time_schedule(request.steps))
        token_ids, is_audio, latents = request.token_ids, request.is_audio, request.latents
        patches, stop_logits = [], []
        for index in range(request.max_patches):
            hidden, residual = self.last_states(token_ids, is_audio, latents)
            mu = torch.cat((self.lm_to_dit_proj(hidden), self.res_to_dit_proj(residual))).unsqueeze(0)
            condition = latents[-1:] if is_audio[-1] else torch.zeros(1, *shape)
            noise = torch.randn((1, *reversed(shape)), generator=generator).transpose(1, 2)
            cfg = torch.tensor([request.cfg])
            patches.append(solve(self.local_dit, noise, mu, condition, times, widths, cfg))
            stop_logits.append(self.stop_head(F.silu(self.stop_proj(hidden))))
            if index > request.min_patches and stop_logits[-1].argmax() == 1:
                break
            token_ids = F.pad(token_ids, (0, 1))
            is_audio = F.pad(is_audio, (0, 1), value=True)
            latents = torch.cat((latents, patches[-1]))
        return torch.cat(patches), torch.stack(stop_logits)
