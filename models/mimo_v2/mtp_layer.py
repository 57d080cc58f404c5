"""One next-token layer of MiMoV2: it looks one token further than the decoder does."""

import torch
from torch import Tensor, nn
from vllm.config import VllmConfig
from vllm.model_executor.layers.layernorm import RMSNorm
from vllm.model_executor.layers.linear import ReplicatedLinear
from vllm.model_executor.layers.quantization import QuantizationConfig

from models.mimo_v2.attention import MiMoV2Attention
from models.mimo_v2.config import MiMoV2Config
from models.mimo_v2.mlp import MiMoV2MLP


class MiMoV2MTPLayer(nn.Module):
    """Joins a token's embedding with the hidden state before it; sliding attention and a dense MLP.

    Checkpoints keep `eh_proj` and `o_proj` unquantised.
    """

    def __init__(
        self,
        config: MiMoV2Config,
        vllm_config: VllmConfig,
        prefix: str,
        quant_config: QuantizationConfig | None,
    ) -> None:
        super().__init__()
        hidden, eps = config.hidden_size, config.rms_norm_eps
        self.enorm = RMSNorm(hidden, eps=eps)
        self.hnorm = RMSNorm(hidden, eps=eps)
        self.eh_proj = ReplicatedLinear(
            2 * hidden, hidden, bias=False, prefix=f"{prefix}.eh_proj", return_bias=False
        )
        self.input_layernorm = RMSNorm(hidden, eps=eps)
        self.self_attn = MiMoV2Attention(
            config, config.sliding, vllm_config, f"{prefix}.self_attn", quant_config, None
        )
        self.pre_mlp_layernorm = RMSNorm(hidden, eps=eps)
        self.mlp = MiMoV2MLP(config, f"{prefix}.mlp", quant_config)
        self.final_layernorm = RMSNorm(hidden, eps=eps)

    def forward(self, embeddings: Tensor, positions: Tensor, previous: Tensor) -> Tensor:
        """Normalised hidden states `[T, hidden]`, for the head and for the next guess.

        Args:
            embeddings: `[T, hidden]`, of the tokens after those that `previous` belongs to.
            positions: int64 `[T]`.
            previous: `[T, hidden]`, normalised hidden states of the decoder or of this layer.
        """
        residual = self.eh_proj(torch.cat((self.enorm(embeddings), self.hnorm(previous)), dim=-1))
        hidden = self.self_attn(positions, self.input_layernorm(residual))
        hidden, residual = self.pre_mlp_layernorm(hidden, residual)
        return self.final_layernorm(self.mlp(hidden) + residual)
