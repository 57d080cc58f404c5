"""One pre-norm decoder layer of MiMoV2."""

from torch import Tensor, nn
from vllm.config import VllmConfig
from vllm.model_executor.layers.layernorm import RMSNorm
from vllm.model_executor.layers.quantization import QuantizationConfig

from models.mimo_v2.attention import MiMoV2Attention
from models.mimo_v2.config import LayerConfig, MiMoV2Config
from models.mimo_v2.mlp import MiMoV2MLP
from models.mimo_v2.moe import MiMoV2MoE


class MiMoV2DecoderLayer(nn.Module):
    """Attention and feed-forward, each of the kind that the layer's configuration says.

    The residual stream travels beside the hidden states: each addition is fused with the norm after it.
    """

    def __init__(
        self,
        config: MiMoV2Config,
        layer: LayerConfig,
        vllm_config: VllmConfig,
        prefix: str,
        quant_config: QuantizationConfig | None,
    ) -> None:
        super().__init__()
        self.self_attn = MiMoV2Attention(
            config, layer.attention, vllm_config, f"{prefix}.self_attn", quant_config, quant_config
        )
        self.mlp: nn.Module
        if layer.moe is None:
            self.mlp = MiMoV2MLP(config, f"{prefix}.mlp", quant_config)
        else:
            self.mlp = MiMoV2MoE(config, layer.moe, vllm_config, f"{prefix}.mlp", quant_config)
        self.input_layernorm = RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, eps=config.rms_norm_eps)

    def forward(self, positions: Tensor, hidden: Tensor, residual: Tensor | None) -> tuple[Tensor, Tensor]:
        """Hidden states and residual `[T, hidden]`; the first layer has no residual yet."""
        if residual is None:
            residual, hidden = hidden, self.input_layernorm(hidden)
        else:
            hidden, residual = self.input_layernorm(hidden, residual)
        hidden = self.self_attn(positions, hidden)
        hidden, residual = self.post_attention_layernorm(hidden, residual)
        return self.mlp(hidden), residual
