"""MiMoV2 with its language-model head: the classes that vLLM resolves by a checkpoint's architecture."""

from collections.abc import Iterable
from typing import ClassVar

from torch import Tensor, nn
from vllm.config import VllmConfig
from vllm.distributed import get_pp_group
from vllm.model_executor.layers.logits_processor import LogitsProcessor
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead
from vllm.model_executor.models.interfaces import MixtureOfExperts, SupportsPP
from vllm.model_executor.models.utils import PPMissingLayer, maybe_prefix
from vllm.sequence import IntermediateTensors

from models.checkpoint import CheckpointError
from models.mimo_v2.manifest import MTP_PREFIX, Shape, is_mtp_tensor
from models.mimo_v2.model import CHECKPOINT_PREFIX, MiMoV2Model
from models.mimo_v2.quantization import kernel_quantization
from models.mimo_v2.weights import ExpertMapping, WeightLoader

HEAD_PREFIX = "lm_head."


class MiMoV2ForCausalLM(nn.Module, SupportsPP, MixtureOfExperts):  # type: ignore[misc]
    """Decoder and head of the Pro format, whose checkpoints store `qkv_proj` fused."""

    packed_modules_mapping: ClassVar[dict[str, list[str]]] = {
        "qkv_proj": ["qkv_proj"],
        "gate_up_proj": ["gate_proj", "up_proj"],
    }

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        super().__init__()
        self.model = MiMoV2Model(vllm_config=vllm_config, prefix=maybe_prefix(prefix, "model"))
        self.config = self.model.config
        self.lm_head = self._make_head(vllm_config, prefix)
        self.logits_processor = LogitsProcessor(self.config.vocab_size)
        self.make_empty_intermediate_tensors = self.model.make_empty_intermediate_tensors
        self._describe_experts()

    def _make_head(self, vllm_config: VllmConfig, prefix: str) -> nn.Module:
        if not get_pp_group().is_last_rank:
            return PPMissingLayer()
        head = ParallelLMHead(
            self.config.vocab_size,
            self.config.hidden_size,
            quant_config=kernel_quantization(vllm_config),
            prefix=maybe_prefix(prefix, "lm_head"),
        )
        return head.tie_weights(self.model.embed_tokens) if self.config.tie_word_embeddings else head

    def _describe_experts(self) -> None:
        """Set what vLLM's `MixtureOfExperts` asks of a model whose experts it balances over ranks."""
        moe_layers = self.model.moe_layers
        self.expert_weights: list[list[Tensor]] = []
        self.moe_layers = [layer.experts for layer in moe_layers]
        self.num_moe_layers = len(moe_layers)
        self.num_expert_groups = 1
        self.num_shared_experts = 0
        self.num_logical_experts = self.num_routed_experts = self.config.num_experts
        self.num_redundant_experts = moe_layers[0].num_redundant_experts if moe_layers else 0
        self.num_physical_experts = moe_layers[0].num_physical_experts if moe_layers else 0
        self.num_local_physical_experts = moe_layers[0].num_local_physical_experts if moe_layers else 0

    def update_physical_experts_metadata(
        self, num_physical_experts: int, num_local_physical_experts: int
    ) -> None:
        """Follow a change of the number of physical experts. Part of vLLM's interface."""
        assert self.num_local_physical_experts == num_local_physical_experts
        self.num_physical_experts = num_physical_experts
        self.num_redundant_experts = num_physical_experts - self.num_logical_experts
        for layer in self.model.moe_layers:
            layer.num_physical_experts = num_physical_experts
            layer.num_redundant_experts = self.num_redundant_experts
            layer.experts.update_expert_map()

    def embed_input_ids(self, input_ids: Tensor) -> Tensor:
        """Ids `[T]` to embeddings `[T, hidden]`."""
        return self.model.embed_input_ids(input_ids)

    def forward(
        self,
        input_ids: Tensor | None,
        positions: Tensor,
        intermediate_tensors: IntermediateTensors | None = None,
        inputs_embeds: Tensor | None = None,
    ) -> Tensor | IntermediateTensors:
        """As `MiMoV2Model.forward`."""
        return self.model(input_ids, positions, intermediate_tensors, inputs_embeds)

    def compute_logits(self, hidden_states: Tensor) -> Tensor | None:
        """Hidden states `[T, hidden]` to logits `[T, vocabulary]`, on the rank that samples."""
        return self.logits_processor(self.lm_head, hidden_states)

    def get_expert_mapping(self) -> list[ExpertMapping]:
        """As `MiMoV2Model.get_expert_mapping`."""
        return self.model.get_expert_mapping()

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> set[str]:
        """Load a whole checkpoint. Next-token layers are left to the draft model (`mtp.MiMoV2MTP`).

        Returns:
            Names of the parameters that got data.

        Raises:
            CheckpointError: a tensor is unexpected, came twice, has a wrong shape or is missing; it is named.
        """
        has_own_head = get_pp_group().is_last_rank and not self.config.tie_word_embeddings
        head = WeightLoader(
            self.lm_head if has_own_head else nn.Module(),
            self.config,
            {} if self.config.tie_word_embeddings else self._head_shapes(),
            prefix=HEAD_PREFIX,
            is_elsewhere=lambda _: not has_own_head,
        )
        loaded: set[str] = set()
        for name, tensor in weights:
            inner = name.removeprefix(CHECKPOINT_PREFIX)
            if name.startswith(HEAD_PREFIX):
                filled = head.load(name.removeprefix(HEAD_PREFIX), tensor)
                loaded |= {HEAD_PREFIX + parameter for parameter in filled}
            elif inner == name or (inner.startswith(MTP_PREFIX) and not is_mtp_tensor(inner, self.config)):
                raise CheckpointError(f"{name} is not part of this model")
            elif not inner.startswith(MTP_PREFIX):
                filled = self.model.load_weights([(inner, tensor)])
                loaded |= {CHECKPOINT_PREFIX + parameter for parameter in filled}
        self.model.finish_loading()
        head.require_complete()
        return loaded

    def _head_shapes(self) -> dict[str, Shape]:
        return {"weight": (self.config.vocab_size, self.config.hidden_size)}


class MiMoV2FlashForCausalLM(MiMoV2ForCausalLM):
    """The same of the Flash format, whose checkpoints store `q_proj`, `k_proj` and `v_proj`."""

    packed_modules_mapping: ClassVar[dict[str, list[str]]] = {
        "qkv_proj": ["q_proj", "k_proj", "v_proj"],
        "gate_up_proj": ["gate_proj", "up_proj"],
    }
