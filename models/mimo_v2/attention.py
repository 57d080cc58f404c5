"""MiMoV2 attention on vLLM's paged KV cache: full or sliding, partly rotated, with sinks, V narrower than K.

Hidden states of all requests of a step lie in one flat `[T, hidden]` batch; vLLM's forward context says which
belong together. Invariant: the KV cache holds rotated keys and scaled values. Where the device has no
attention with different K and V sizes, V is padded with zeros to the size of K and the output is cut back:
the same numbers at the price of cache.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from vllm.config import VllmConfig
from vllm.distributed import get_tensor_model_parallel_rank, get_tensor_model_parallel_world_size
from vllm.model_executor.layers.attention import Attention
from vllm.model_executor.layers.linear import QKVParallelLinear, RowParallelLinear
from vllm.model_executor.layers.quantization import QuantizationConfig
from vllm.model_executor.layers.rotary_embedding import get_rope
from vllm.model_executor.utils import set_weight_attrs

from models.compat import diffkv_backend
from models.mimo_v2.config import AttentionConfig, MiMoV2Config


class MiMoV2Attention(nn.Module):
    """Grouped-query attention of one layer."""

    def __init__(
        self,
        config: MiMoV2Config,
        attention: AttentionConfig,
        vllm_config: VllmConfig,
        prefix: str,
        quant_config: QuantizationConfig | None,
        output_quant_config: QuantizationConfig | None,
    ) -> None:
        super().__init__()
        tp_size = get_tensor_model_parallel_world_size()
        self.config = attention
        self.value_scale = config.value_scale
        self.num_heads = attention.num_heads // tp_size
        self.num_kv_heads = max(1, attention.num_kv_heads // tp_size)
        self.head_dim, self.v_head_dim = attention.head_dim, attention.v_head_dim
        self.qkv_sizes = (
            self.num_heads * self.head_dim,
            self.num_kv_heads * self.head_dim,
            self.num_kv_heads * self.v_head_dim,
        )
        self.qkv_proj = QKVParallelLinear(
            config.hidden_size,
            self.head_dim,
            attention.num_heads,
            attention.num_kv_heads,
            bias=attention.has_bias,
            quant_config=quant_config,
            prefix=f"{prefix}.qkv_proj",
            return_bias=False,
            v_head_size=self.v_head_dim,
        )
        self.o_proj = RowParallelLinear(
            attention.num_heads * self.v_head_dim,
            config.hidden_size,
            bias=False,
            quant_config=output_quant_config,
            prefix=f"{prefix}.o_proj",
            return_bias=False,
        )
        self.rotary_emb = get_rope(
            self.head_dim,
            max_position=config.max_position_embeddings,
            rope_parameters={
                "rope_type": "default",
                "rope_theta": attention.rope_theta,
                "partial_rotary_factor": attention.rotary_factor,
            },
        )
        self.attention_sink_bias: nn.Parameter | None = None
        if attention.has_sinks:
            self.attention_sink_bias = nn.Parameter(torch.empty(self.num_heads), requires_grad=False)
            set_weight_attrs(self.attention_sink_bias, {"weight_loader": load_own_heads})
        backend = diffkv_backend(vllm_config, self.head_dim, self.v_head_dim, attention.has_sinks)
        self.pads_values = backend is None and self.v_head_dim != self.head_dim
        self.attn = Attention(
            self.num_heads,
            self.head_dim,
            scale=self.head_dim**-0.5,
            num_kv_heads=self.num_kv_heads,
            cache_config=vllm_config.cache_config,
            quant_config=quant_config,
            per_layer_sliding_window=attention.window,
            prefix=f"{prefix}.attn",
            attn_backend=backend,
            head_size_v=self.head_dim if self.pads_values else self.v_head_dim,
            sinks=self.attention_sink_bias,
        )

    def forward(self, positions: Tensor, hidden: Tensor) -> Tensor:
        """`[T, hidden]` at int64 `positions` `[T]` to `[T, hidden]`."""
        q, k, v = self.qkv_proj(hidden).split(self.qkv_sizes, dim=-1)
        q, k = self.rotary_emb(positions, q, k)
        if self.value_scale is not None:
            v = v * self.value_scale
        if not self.pads_values:
            return self.o_proj(self.attn(q, k, v))
        padding = self.head_dim - self.v_head_dim
        v = F.pad(v.unflatten(-1, (self.num_kv_heads, self.v_head_dim)), (0, padding)).flatten(-2)
        out = self.attn(q, k, v).unflatten(-1, (self.num_heads, self.head_dim))
        return self.o_proj(out[..., : self.v_head_dim].flatten(-2))


def load_own_heads(parameter: nn.Parameter, tensor: Tensor) -> None:
    """Copy this rank's part of a tensor with one entry per query head of the model."""
    count = parameter.shape[0]
    parameter.data.copy_(tensor.narrow(0, get_tensor_model_parallel_rank() * count, count))
