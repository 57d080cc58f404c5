"""MiMoV2's first next-token layer as vLLM's draft model for speculative decoding.

vLLM proposes one token after another with the same layer, feeding each its own hidden state. A draft changes
speed alone: the decoder accepts or rejects each token. vLLM replaces the embeddings and head by the
decoder's, except over pipeline stages, where the draft keeps its own.
"""

from collections.abc import Iterable

from torch import Tensor, nn
from vllm.config import VllmConfig
from vllm.model_executor.layers.logits_processor import LogitsProcessor
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead, VocabParallelEmbedding
from vllm.model_executor.models.utils import maybe_prefix
from vllm.sequence import IntermediateTensors

from models.mimo_v2.config import MiMoV2Config, parse_config
from models.mimo_v2.manifest import Shape, mtp_shapes
from models.mimo_v2.mtp_layer import MiMoV2MTPLayer
from models.mimo_v2.quantization import kernel_quantization
from models.mimo_v2.weights import WeightLoader

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
LAYER_PREFIX = "model.mtp.layers.0."


class MiMoV2MTP(nn.Module):
    """Draft model of one next-token layer. Modules are named as their tensors are."""

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        super().__init__()
        self.config = config = parse_config(vllm_config.model_config.hf_text_config.to_dict())
        quant_config = kernel_quantization(vllm_config)
        layer = MiMoV2MTPLayer(
            config, vllm_config, maybe_prefix(prefix, LAYER_PREFIX.removesuffix(".")), quant_config
        )
        self.model = nn.Module()
        self.model.embed_tokens = VocabParallelEmbedding(config.vocab_size, config.hidden_size)
        self.model.mtp = nn.ModuleDict({"layers": nn.ModuleList([layer])})
        self.lm_head = ParallelLMHead(
            config.vocab_size, config.hidden_size, prefix=maybe_prefix(prefix, "lm_head")
        )
        if config.tie_word_embeddings:
            self.lm_head = self.lm_head.tie_weights(self.model.embed_tokens)
        self.logits_processor = LogitsProcessor(config.vocab_size)

    def embed_input_ids(self, input_ids: Tensor) -> Tensor:
        """Ids `[T]` to embeddings `[T, hidden]`."""
        return self.model.get_submodule("embed_tokens")(input_ids)

    def forward(
        self,
        input_ids: Tensor | None,
        positions: Tensor,
        hidden_states: Tensor,
        intermediate_tensors: IntermediateTensors | None = None,
        inputs_embeds: Tensor | None = None,
        spec_step_idx: int = 0,
    ) -> Tensor:
        """Hidden states `[T, hidden]` of the tokens after `input_ids` `[T]`.

        Args:
            input_ids: the tokens after those that `hidden_states` belong to, unless embeddings are given.
            positions: int64 `[T]`.
            hidden_states: `[T, hidden]` of the decoder, or of this model at the step before.
            intermediate_tensors: unused, part of vLLM's interface.
            inputs_embeds: `[T, hidden]`.
            spec_step_idx: unused: every step uses the first layer.
        """
        del intermediate_tensors, spec_step_idx
        if inputs_embeds is None:
            assert input_ids is not None
            inputs_embeds = self.embed_input_ids(input_ids)
        return self.model.get_submodule("mtp.layers.0")(inputs_embeds, positions, hidden_states)

    def compute_logits(self, hidden_states: Tensor, spec_step_idx: int = 0) -> Tensor | None:
        """Hidden states `[T, hidden]` to logits `[T, vocabulary]`."""
        del spec_step_idx
        return self.logits_processor(self.lm_head, hidden_states)

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> set[str]:
        """Take what is this model's out of a whole checkpoint; the decoder answers for the rest.

        Returns:
            Names of the parameters that got data.

        Raises:
            CheckpointError: a tensor of the layer is unexpected, came twice, has a wrong shape or is missing.
        """
        loader = WeightLoader(self, self.config, _shapes(self.config))
        own = {EMBEDDING} if self.config.tie_word_embeddings else {EMBEDDING, HEAD}
        loaded: set[str] = set()
        for name, tensor in weights:
            if name in own or name.startswith(LAYER_PREFIX):
                filled = loader.try_load_fp8_qkv(name, tensor)
                loaded |= loader.load(name, tensor) if filled is None else filled
        loader.require_complete()
        return loaded


def _shapes(config: MiMoV2Config) -> dict[str, Shape]:
    shapes = {f"model.{name}": shape for name, shape in mtp_shapes(config).items()}
    return {
        **shapes,
        EMBEDDING: (config.vocab_size, config.hidden_size),
        HEAD: (config.vocab_size, config.hidden_size),
    }
