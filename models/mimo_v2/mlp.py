"""The dense feed-forward of MiMoV2."""

from torch import Tensor, nn
from vllm.model_executor.layers.activation import SiluAndMul
from vllm.model_executor.layers.linear import MergedColumnParallelLinear, RowParallelLinear
from vllm.model_executor.layers.quantization import QuantizationConfig

from models.mimo_v2.config import MiMoV2Config


class MiMoV2MLP(nn.Module):
    """SiLU-gated, gate and up in one weight."""

    def __init__(self, config: MiMoV2Config, prefix: str, quant_config: QuantizationConfig | None) -> None:
        super().__init__()
        self.gate_up_proj = MergedColumnParallelLinear(
            config.hidden_size,
            [config.intermediate_size] * 2,
            bias=False,
            quant_config=quant_config,
            prefix=f"{prefix}.gate_up_proj",
            return_bias=False,
        )
        self.act = SiluAndMul()
        self.down_proj = RowParallelLinear(
            config.intermediate_size,
            config.hidden_size,
            bias=False,
            quant_config=quant_config,
            prefix=f"{prefix}.down_proj",
            return_bias=False,
        )

    def forward(self, hidden: Tensor) -> Tensor:
        """`[T, hidden]` to `[T, hidden]`."""
        return self.down_proj(self.act(self.gate_up_proj(hidden)))
