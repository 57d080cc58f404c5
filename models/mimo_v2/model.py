"""The MiMoV2 decoder: embeddings, layers and final norm, or one pipeline stage's part of them."""

from collections.abc import Iterable
from itertools import islice

from torch import Tensor, nn
from vllm.compilation.decorators import support_torch_compile
from vllm.config import VllmConfig
from vllm.distributed import get_pp_group
from vllm.model_executor.layers.fused_moe import fused_moe_make_expert_params_mapping
from vllm.model_executor.layers.layernorm import RMSNorm
from vllm.model_executor.layers.vocab_parallel_embedding import VocabParallelEmbedding
from vllm.model_executor.models.utils import (
    PPMissingLayer,
    is_pp_missing_parameter,
    make_empty_intermediate_tensors_factory,
    make_layers,
)
from vllm.sequence import IntermediateTensors

from models.mimo_v2.config import parse_config
from models.mimo_v2.decoder_layer import MiMoV2DecoderLayer
from models.mimo_v2.manifest import model_shapes
from models.mimo_v2.moe import MiMoV2MoE
from models.mimo_v2.quantization import kernel_quantization
from models.mimo_v2.weights import ExpertMapping, WeightLoader

CHECKPOINT_PREFIX = "model."  # of this module's tensors


@support_torch_compile
class MiMoV2Model(nn.Module):
    """Token ids or embeddings to normalised hidden states `[T, hidden]`."""

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        super().__init__()
        self.config = config = parse_config(vllm_config.model_config.hf_text_config.to_dict())
        quant_config = kernel_quantization(vllm_config)
        # vLLM puts the sliding layers' window here for a configuration without `layer_types`, and full
        # layers, which have no window of their own, would take it.
        vllm_config.cache_config.sliding_window = None
        self.num_redundant_experts = vllm_config.parallel_config.eplb_config.num_redundant_experts
        stage = get_pp_group()
        self.embed_tokens = (
            VocabParallelEmbedding(
                config.vocab_size,
                config.hidden_size,
                quant_config=quant_config,
                prefix=f"{prefix}.embed_tokens",
            )
            if stage.is_first_rank or (config.tie_word_embeddings and stage.is_last_rank)
            else PPMissingLayer()
        )
        self.start_layer, self.end_layer, self.layers = make_layers(
            len(config.layers),
            lambda prefix: MiMoV2DecoderLayer(
                config, config.layers[int(prefix.rpartition(".")[2])], vllm_config, prefix, quant_config
            ),
            prefix=f"{prefix}.layers",
        )
        self.norm = (
            RMSNorm(config.hidden_size, eps=config.rms_norm_eps) if stage.is_last_rank else PPMissingLayer()
        )
        self.make_empty_intermediate_tensors = make_empty_intermediate_tensors_factory(
            ["hidden_states", "residual"], config.hidden_size
        )
        self._loader: WeightLoader | None = None

    @property
    def moe_layers(self) -> list[MiMoV2MoE]:
        """The sparse feed-forwards of this stage."""
        stage = islice(self.layers, self.start_layer, self.end_layer)
        return [layer.mlp for layer in stage if isinstance(layer.mlp, MiMoV2MoE)]

    def embed_input_ids(self, input_ids: Tensor) -> Tensor:
        """Ids `[T]` to embeddings `[T, hidden]`."""
        return self.embed_tokens(input_ids)

    def forward(
        self,
        input_ids: Tensor | None,
        positions: Tensor,
        intermediate_tensors: IntermediateTensors | None = None,
        inputs_embeds: Tensor | None = None,
    ) -> Tensor | IntermediateTensors:
        """Run this stage's layers.

        Args:
            input_ids: int `[T]`; on the first stage, unless embeddings are given.
            positions: int64 `[T]`.
            intermediate_tensors: what the stage before returned.
            inputs_embeds: `[T, hidden]`; on the first stage.

        Returns:
            `[T, hidden]` on the last stage, else hidden states and residual for the next.
        """
        residual = None
        if intermediate_tensors is not None:
            hidden, residual = intermediate_tensors["hidden_states"], intermediate_tensors["residual"]
        elif inputs_embeds is not None:
            hidden = inputs_embeds
        else:
            assert input_ids is not None
            hidden = self.embed_input_ids(input_ids)
        for layer in islice(self.layers, self.start_layer, self.end_layer):
            hidden, residual = layer(positions, hidden, residual)
        if not get_pp_group().is_last_rank:
            return IntermediateTensors({"hidden_states": hidden, "residual": residual})
        hidden, _ = self.norm(hidden, residual)
        return hidden

    def get_expert_mapping(self) -> list[ExpertMapping]:
        """(parameter prefix, checkpoint prefix, physical expert, shard) of each projection of each expert.

        With redundant experts, several physical experts have the checkpoint prefix of one logical expert.
        """
        return fused_moe_make_expert_params_mapping(
            self,
            ckpt_gate_proj_name="gate_proj",
            ckpt_down_proj_name="down_proj",
            ckpt_up_proj_name="up_proj",
            num_experts=self.config.num_experts,
            num_redundant_experts=self.num_redundant_experts,
        )

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> set[str]:
        """Load tensors by their names below `model.`, any number of them per call and in any order.

        Returns:
            Names of the parameters that got data.

        Raises:
            CheckpointError: a tensor is unexpected, came twice, or has a wrong shape; it is named.
        """
        loaded: set[str] = set()
        for name, tensor in weights:
            if not self._try_load_fp8_qkv_proj(name, tensor, loaded):
                loaded |= self._open_loader().load(name, tensor)
        return loaded

    def _try_load_fp8_qkv_proj(self, name: str, tensor: Tensor, loaded: set[str]) -> bool:
        """Take a half of a fused fp8 `qkv_proj`; names of parameters that it completes go into `loaded`.

        Returns:
            Whether the tensor was one.
        """
        filled = self._open_loader().try_load_fp8_qkv(name, tensor)
        loaded |= filled or set()
        return filled is not None

    def finish_loading(self) -> None:
        """Call when the checkpoint has been read.

        Raises:
            CheckpointError: a parameter lacks data; the missing tensors are named.
        """
        self._open_loader().require_complete()
        self._loader = None  # it refers to parameters that vLLM may replace

    def _open_loader(self) -> WeightLoader:
        if self._loader is None:
            moe_layers = self.moe_layers
            mapping = self.get_expert_mapping() if moe_layers else []
            local = [entry for entry in mapping if moe_layers[0].is_local(entry[2])]
            others = tuple(
                {f".mlp.{entry[1]}" for entry in mapping} - {f".mlp.{entry[1]}" for entry in local}
            )
            self._loader = WeightLoader(
                self,
                self.config,
                model_shapes(self.config),
                prefix=CHECKPOINT_PREFIX,
                experts=local,
                is_elsewhere=lambda name: (
                    is_pp_missing_parameter(name, self) or any(other in name for other in others)
                ),
            )
        return self._loader
