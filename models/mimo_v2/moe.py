"""The sparse feed-forward of MiMoV2: sigmoid top-k routing with a correction bias, in float32.

The bias takes part in choosing the experts, not in weighing them (DeepSeek-V3, arXiv:2412.19437, 2.1.2).
Experts are vLLM's fused ones, sharded over tensor-parallel ranks or spread over expert-parallel ranks.
"""

import torch
from torch import Tensor, nn
from vllm.config import VllmConfig
from vllm.distributed import get_ep_group, get_tensor_model_parallel_world_size
from vllm.model_executor.layers.fused_moe import FusedMoEFactory, GateLinear
from vllm.model_executor.layers.quantization import QuantizationConfig

from models.checkpoint import CheckpointError
from models.mimo_v2.config import MiMoV2Config, MoEConfig


class MiMoV2MoE(nn.Module):
    """Router and routed experts of one layer; there are no shared experts."""

    def __init__(
        self,
        config: MiMoV2Config,
        moe: MoEConfig,
        vllm_config: VllmConfig,
        prefix: str,
        quant_config: QuantizationConfig | None,
    ) -> None:
        super().__init__()
        if get_tensor_model_parallel_world_size() > moe.num_experts:
            raise CheckpointError(
                f"n_routed_experts is {moe.num_experts}: the tensor-parallel size cannot be larger"
            )
        parallel = vllm_config.parallel_config
        self.num_redundant_experts = parallel.eplb_config.num_redundant_experts
        self.num_physical_experts = moe.num_experts + self.num_redundant_experts
        self.num_local_physical_experts = self.num_physical_experts // get_ep_group().world_size
        self.gate = GateLinear(
            config.hidden_size,
            moe.num_experts,
            bias=False,
            params_dtype=torch.float32,
            out_dtype=torch.float32,
            prefix=f"{prefix}.gate",
        )
        self.gate.e_score_correction_bias = nn.Parameter(
            torch.empty(moe.num_experts, dtype=torch.float32), requires_grad=False
        )
        self.experts = FusedMoEFactory(
            num_experts=moe.num_experts,
            top_k=moe.top_k,
            hidden_size=config.hidden_size,
            intermediate_size=moe.intermediate_size,
            renormalize=moe.renormalize,
            use_grouped_topk=True,
            num_expert_group=moe.n_group,
            topk_group=moe.topk_group,
            scoring_func="sigmoid",
            routed_scaling_factor=moe.scale,
            e_score_correction_bias=self.gate.e_score_correction_bias,
            router_logits_dtype=torch.float32,
            quant_config=quant_config,
            enable_eplb=parallel.enable_eplb,
            num_redundant_experts=self.num_redundant_experts,
            prefix=f"{prefix}.experts",
        )

    def forward(self, hidden: Tensor) -> Tensor:
        """`[T, hidden]` to `[T, hidden]`."""
        logits, _ = self.gate(hidden.float())
        return self.experts(hidden_states=hidden, router_logits=logits)

    def is_local(self, expert: int) -> bool:
        """Whether this rank holds the physical expert `expert`."""
        expert_map = self.experts.routed_experts.expert_map
        return expert_map is None or bool(expert_map[expert] >= 0)
