"""MiniCPM4 without a cache: bidirectional attention within one short sequence.

The local encoder (one patch) and the local DiT (one denoising step) are such stacks. Sequences have a fixed
length of at most a dozen positions, so a batch is one dense `[N, L, H]` tensor and nothing is masked.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.voxcpm2.config import TransformerConfig
from models.voxcpm2.rope import LongRoPE, RMSNorm, rotate


class LocalAttention(nn.Module):
    """Full self-attention; three projections as in the checkpoint until `fuse_qkv` makes them one."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.head_dim = config.head_dim
        self.num_heads = config.num_attention_heads
        self.num_kv_heads = config.num_key_value_heads
        q_size, kv_size = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        self.q_proj: nn.Linear | None = nn.Linear(config.hidden_size, q_size, bias=False)
        self.k_proj: nn.Linear | None = nn.Linear(config.hidden_size, kv_size, bias=False)
        self.v_proj: nn.Linear | None = nn.Linear(config.hidden_size, kv_size, bias=False)
        self.qkv_proj: nn.Linear | None = None
        self.o_proj = nn.Linear(q_size, config.hidden_size, bias=False)

    def fuse_qkv(self) -> None:
        """Replace the three projections by one; the split weights are dropped. Idempotent."""
        if self.q_proj is None or self.k_proj is None or self.v_proj is None:
            return
        weight = torch.cat((self.q_proj.weight, self.k_proj.weight, self.v_proj.weight))
        self.qkv_proj = nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
        self.qkv_proj.weight = nn.Parameter(weight, requires_grad=False)
        self.q_proj = self.k_proj = self.v_proj = None

    def forward(self, hidden: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """`[N, L, H]` to `[N, L, H]`."""
        n, length, _ = hidden.shape
        q, k, v = self._project(hidden)
        q = rotate(q.view(n, length, self.num_heads, self.head_dim), cos, sin)
        k = rotate(k.view(n, length, self.num_kv_heads, self.head_dim), cos, sin)
        v = v.view(n, length, self.num_kv_heads, self.head_dim)
        out = F.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), enable_gqa=True
        )
        return self.o_proj(out.transpose(1, 2).reshape(n, length, -1))

    def _project(self, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if self.qkv_proj is not None:
            kv_size = self.num_kv_heads * self.head_dim
            q, k, v = self.qkv_proj(hidden).split((self.num_heads * self.head_dim, kv_size, kv_size), dim=-1)
            return q, k, v
        assert self.q_proj is not None
        assert self.k_proj is not None
        assert self.v_proj is not None
        return self.q_proj(hidden), self.k_proj(hidden), self.v_proj(hidden)


class LocalMLP(nn.Module):
    """SiLU-gated feed-forward."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        """`[..., H]` to `[..., H]`."""
        return self.down_proj(F.silu(self.gate_proj(hidden)) * self.up_proj(hidden))


class LocalLayer(nn.Module):
    """Pre-norm decoder layer with muP's residual scale where the checkpoint asks for it."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.self_attn = LocalAttention(config)
        self.mlp = LocalMLP(config)
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.residual_scale = config.residual_scale

    def forward(self, hidden: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """`[N, L, H]` to `[N, L, H]`."""
        hidden = hidden + self.self_attn(self.input_layernorm(hidden), cos, sin) * self.residual_scale
        return hidden + self.mlp(self.post_attention_layernorm(hidden)) * self.residual_scale


class MiniCPM4Local(nn.Module):
    """The stack: layers and final norm, over `length` positions counted from 0."""

    def __init__(self, config: TransformerConfig, length: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(LocalLayer(config) for _ in range(config.num_hidden_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        cos, sin = LongRoPE(config)(torch.arange(length))
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def forward(self, hidden: Tensor) -> Tensor:
        """`[N, length, H]` embeddings to `[N, length, H]` hidden states."""
        for layer in self.layers:
            hidden = layer(hidden, self.cos, self.sin)
        return self.norm(hidden)
