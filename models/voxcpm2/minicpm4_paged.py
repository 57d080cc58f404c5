"""MiniCPM4 on vLLM's paged attention: the base LM and the residual LM of VoxCPM2.

Positions of all requests of a step lie in one flat `[T, H]` batch; vLLM's forward context says which belong
together. Tensor parallelism is that of vLLM's parallel linear layers. RoPE and RMSNorm are float32.
"""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn
from vllm.config import VllmConfig
from vllm.distributed import get_tensor_model_parallel_world_size
from vllm.model_executor.layers.activation import SiluAndMul
from vllm.model_executor.layers.attention import Attention
from vllm.model_executor.layers.linear import (
    MergedColumnParallelLinear,
    QKVParallelLinear,
    RowParallelLinear,
)
from vllm.model_executor.layers.vocab_parallel_embedding import VocabParallelEmbedding
from vllm.sequence import IntermediateTensors

from models.voxcpm2.config import TransformerConfig, VoxCPM2ModelConfig
from models.voxcpm2.rope import LongRoPE, RMSNorm, rotate

# Checkpoint projections that are one fused weight here: name -> (fused name, shard id).
FUSED_PROJECTIONS: dict[str, tuple[str, str | int]] = {
    "q_proj": ("qkv_proj", "q"),
    "k_proj": ("qkv_proj", "k"),
    "v_proj": ("qkv_proj", "v"),
    "gate_proj": ("gate_up_proj", 0),
    "up_proj": ("gate_up_proj", 1),
}


class PagedAttention(nn.Module):
    """Causal attention over the paged KV cache, with rotary positions unless the stack has none."""

    def __init__(self, config: TransformerConfig, vllm_config: VllmConfig, prefix: str) -> None:
        super().__init__()
        tp_size = get_tensor_model_parallel_world_size()
        self.head_dim = config.head_dim
        self.num_heads = config.num_attention_heads // tp_size
        self.num_kv_heads = max(1, config.num_key_value_heads // tp_size)
        self.qkv_proj = QKVParallelLinear(
            config.hidden_size,
            config.head_dim,
            config.num_attention_heads,
            config.num_key_value_heads,
            bias=False,
            prefix=f"{prefix}.qkv_proj",
            return_bias=False,
        )
        self.o_proj = RowParallelLinear(
            config.num_attention_heads * config.head_dim,
            config.hidden_size,
            bias=False,
            prefix=f"{prefix}.o_proj",
            return_bias=False,
        )
        self.attn = Attention(
            self.num_heads,
            config.head_dim,
            scale=config.head_dim**-0.5,
            num_kv_heads=self.num_kv_heads,
            cache_config=vllm_config.cache_config,
            prefix=f"{prefix}.attn",
        )

    def forward(self, hidden: Tensor, rotary: tuple[Tensor, Tensor] | None) -> Tensor:
        """`[T, H]` to `[T, H]`; `rotary` holds cosines and sines of each position."""
        kv_size = self.num_kv_heads * self.head_dim
        q, k, v = self.qkv_proj(hidden).split((self.num_heads * self.head_dim, kv_size, kv_size), dim=-1)
        if rotary is not None:
            q = rotate(q.unflatten(-1, (-1, self.head_dim)), *rotary).flatten(-2)
            k = rotate(k.unflatten(-1, (-1, self.head_dim)), *rotary).flatten(-2)
        return self.o_proj(self.attn(q.contiguous(), k.contiguous(), v.contiguous()))


class PagedMLP(nn.Module):
    """SiLU-gated feed-forward, gate and up in one weight."""

    def __init__(self, config: TransformerConfig, prefix: str) -> None:
        super().__init__()
        self.gate_up_proj = MergedColumnParallelLinear(
            config.hidden_size,
            [config.intermediate_size] * 2,
            bias=False,
            prefix=f"{prefix}.gate_up_proj",
            return_bias=False,
        )
        self.act = SiluAndMul()
        self.down_proj = RowParallelLinear(
            config.intermediate_size,
            config.hidden_size,
            bias=False,
            prefix=f"{prefix}.down_proj",
            return_bias=False,
        )

    def forward(self, hidden: Tensor) -> Tensor:
        """`[T, H]` to `[T, H]`."""
        return self.down_proj(self.act(self.gate_up_proj(hidden)))


class PagedLayer(nn.Module):
    """Pre-norm decoder layer with muP's residual scale where the checkpoint asks for it."""

    def __init__(self, config: TransformerConfig, vllm_config: VllmConfig, prefix: str) -> None:
        super().__init__()
        self.self_attn = PagedAttention(config, vllm_config, f"{prefix}.self_attn")
        self.mlp = PagedMLP(config, f"{prefix}.mlp")
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.residual_scale = config.residual_scale

    def forward(self, hidden: Tensor, rotary: tuple[Tensor, Tensor] | None) -> Tensor:
        """`[T, H]` to `[T, H]`."""
        hidden = hidden + self.self_attn(self.input_layernorm(hidden), rotary) * self.residual_scale
        return hidden + self.mlp(self.post_attention_layernorm(hidden)) * self.residual_scale


class MiniCPM4PagedStack(nn.Module):
    """What the two LMs share: layers, final norm, loading, and the optional optimisations."""

    native_prefix: ClassVar[str]  # of this stack's tensors in a checkpoint

    def __init__(self, config: TransformerConfig, vllm_config: VllmConfig, prefix: str) -> None:
        super().__init__()
        self.config = config
        self.layers = nn.ModuleList(
            PagedLayer(config, vllm_config, f"{prefix}.layers.{i}") for i in range(config.num_hidden_layers)
        )
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.rope = None if config.no_rope else LongRoPE(config)
        self._compiled = False

    def run_layers(self, hidden: Tensor, positions: Tensor) -> Tensor:
        """Embeddings `[T, H]` at int64 `positions` `[T]` to normalised hidden states `[T, H]`."""
        rotary = self.rope(positions) if self.rope is not None else None
        for layer in self.layers:
            hidden = layer(hidden, rotary)
        return self.norm(hidden)

    def make_empty_intermediate_tensors(
        self, batch_size: int, dtype: torch.dtype, device: torch.device
    ) -> IntermediateTensors:
        """Pipeline stages exchange nothing: the stack lives on one rank. Part of vLLM's interface."""
        del batch_size, dtype, device
        return IntermediateTensors({})

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> set[str]:
        """Load tensors by their names within the stack, fusing q/k/v and gate/up on the way.

        Returns:
            Names of the parameters that got data.

        Raises:
            KeyError: a name has no parameter.
        """
        parameters = dict(self.named_parameters())
        loaded = set()
        for name, tensor in weights:
            path, _, leaf = name.rpartition(".")
            parent, _, projection = path.rpartition(".")
            if projection in FUSED_PROJECTIONS:
                fused, shard = FUSED_PROJECTIONS[projection]
                target = f"{parent}.{fused}.{leaf}"
                parameter: Any = parameters[target]  # vLLM's layers attach a loader to each
                parameter.weight_loader(parameter, tensor, shard)
            else:
                target = name
                loader = getattr(parameters[target], "weight_loader", _copy)  # set by vLLM's layers
                loader(parameters[target], tensor)
            loaded.add(target)
        return loaded

    def load_weights_from_native(self, native: Mapping[str, Tensor]) -> set[str]:
        """Load this stack's part of a whole checkpoint in the released naming."""
        prefix = self.native_prefix
        return self.load_weights(
            (name.removeprefix(prefix), tensor) for name, tensor in native.items() if name.startswith(prefix)
        )

    def precompute_fused_qkv(self) -> int:
        """Number of attentions with one fused QKV weight.

        `load_weights` writes q, k and v straight into it, rank by rank, so nothing is left to compute and no
        second copy ever exists. Idempotent.
        """
        return len(self.layers)

    def compile_selective(self) -> list[str]:
        """Compile the dense parts of each layer; attention, RoPE and RMSNorm stay eager, as precision asks.

        Returns:
            Patterns of the compiled modules; empty when they already are. Idempotent.
        """
        if self._compiled:
            return []
        for layer in cast("Iterable[PagedLayer]", self.layers):
            layer.mlp.compile(fullgraph=True, dynamic=True)
            layer.self_attn.o_proj.compile(fullgraph=True, dynamic=True)
        self._compiled = True
        return ["layers.*.mlp", "layers.*.self_attn.o_proj"]


class MiniCPM4PagedForVoxCPM2(MiniCPM4PagedStack):
    """The base LM: text and audio embeddings in, semantic hidden states out."""

    native_prefix = "base_lm."

    def __init__(self, config: VoxCPM2ModelConfig, vllm_config: VllmConfig, prefix: str) -> None:
        super().__init__(config.lm_config, vllm_config, prefix)
        self.embed_tokens = VocabParallelEmbedding(
            config.lm_config.vocab_size, config.lm_config.hidden_size, prefix=f"{prefix}.embed_tokens"
        )

    def embed_input_ids(self, input_ids: Tensor) -> Tensor:
        """Text ids `[T]` to embeddings `[T, H]`, times muP's scale."""
        return self.embed_tokens(input_ids) * self.config.embedding_scale

    def forward(
        self, input_ids: Tensor | None, positions: Tensor, inputs_embeds: Tensor | None = None
    ) -> Tensor:
        """Hidden states `[T, H]` of `inputs_embeds` `[T, H]`, or else of text ids `[T]`."""
        if inputs_embeds is None:
            assert input_ids is not None
            inputs_embeds = self.embed_input_ids(input_ids)
        return self.run_layers(inputs_embeds, positions)


class MiniCPM4PagedResidualLM(MiniCPM4PagedStack):
    """The residual LM: it adds what quantisation took away. No vocabulary of its own."""

    native_prefix = "residual_lm."

    def __init__(self, config: VoxCPM2ModelConfig, vllm_config: VllmConfig, prefix: str) -> None:
        super().__init__(config.residual_lm, vllm_config, prefix)

    def forward(self, inputs_embeds: Tensor, positions: Tensor) -> Tensor:
        """Hidden states `[T, H]` of `inputs_embeds` `[T, H]`."""
        return self.run_layers(inputs_embeds, positions)


def _copy(parameter: nn.Parameter, tensor: Tensor) -> None:
    parameter.data.copy_(tensor)
