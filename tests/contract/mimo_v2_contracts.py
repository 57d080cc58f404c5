"""What MiMoV2 relies on in vLLM: experts, pipeline stages, narrow values, the loading of weights."""

import inspect

import torch
from torch import nn

from tests.support.contracts import (
    Contract,
    Symbol,
    accepts,
    all_of,
    annotated,
    exists,
    method,
    parameters,
)
from tests.support.vllm_uses import (
    BACKEND,
    DIFFKV_BACKEND,
    GROUP,
    LM_HEAD,
    MIXTURE,
    MOE_RUNNER,
    REGISTERED,
    ROUTED_EXPERTS,
    SUPPORTS_PP,
    TEXT_GENERATION,
)

LAYERS = "vllm.model_executor.layers"
UTILS = "vllm.model_executor.models.utils"


def forwards(*names: str) -> Contract:
    """A layer whose `forward` takes these first."""

    def check(symbol: Symbol) -> None:
        found = list(inspect.signature(symbol.value.forward).parameters)[1:]
        assert tuple(found[: len(names)]) == names, f"the parameters of its forward are {found}"

    return check


def loads_parts(symbol: Symbol) -> None:
    """A fused layer whose parameters take a projection by the name or number of its part."""
    for name in ("weight_loader", "weight_loader_v2"):
        found = list(inspect.signature(getattr(symbol.value, name)).parameters)[1:]
        assert found == ["param", "loaded_weight", "loaded_shard_id"], f"the parameters of {name} are {found}"


def decorates_classes(symbol: Symbol) -> None:
    found = inspect.signature(symbol.value).parameters
    assert next(iter(found)) == "cls", f"its parameters are {list(found)}"
    source = inspect.getsource(inspect.getmodule(symbol.value))
    assert "inspect.signature(cls.forward)" in source, "dynamic sizes are no longer inferred from forward"


def returns_a_group(symbol: Symbol) -> None:
    from vllm.distributed.parallel_state import GroupCoordinator

    hint = inspect.signature(symbol.value).return_annotation
    assert hint in (GroupCoordinator, "GroupCoordinator"), f"it returns {hint}"


def makes_a_moe_runner(symbol: Symbol) -> None:
    from vllm.model_executor.layers.fused_moe.runner.moe_runner import MoERunner

    hint = inspect.signature(symbol.value).return_annotation
    assert hint in (MoERunner, "MoERunner"), f"it returns {hint}"
    accepts("hidden_states", "router_logits")(Symbol(f"{MOE_RUNNER}.forward"))
    default = inspect.signature(symbol.value).parameters["reduce_results"].default
    assert default is True, "ranks' results are no longer summed by default"


def gate_returns_a_bias(symbol: Symbol) -> None:
    """Called with hidden states, it returns logits and a bias."""
    parameters("input_size", "output_size")(symbol)
    default = inspect.signature(symbol.value).parameters["return_bias"].default
    assert default is True, "it returns logits alone"


def expert_mapping(symbol: Symbol) -> None:
    """Rows are (parameter prefix, checkpoint prefix, physical expert, shard); redundant experts come last."""
    rows = symbol.value(
        nn.Module(),
        ckpt_gate_proj_name="gate_proj",
        ckpt_down_proj_name="down_proj",
        ckpt_up_proj_name="up_proj",
        num_experts=2,
        num_redundant_experts=1,
    )
    w13, w2 = "experts.routed_experts.w13_", "experts.routed_experts.w2_"
    expected = {
        row
        for physical, logical in enumerate((0, 1, 0))
        for row in (
            (w13, f"experts.{logical}.gate_proj.", physical, "w1"),
            (w2, f"experts.{logical}.down_proj.", physical, "w2"),
            (w13, f"experts.{logical}.up_proj.", physical, "w3"),
        )
    }
    assert set(rows) == expected, f"its rows are {rows}"


def norm_fuses_an_addition(symbol: Symbol) -> None:
    parameters("hidden_size", "eps")(symbol)
    for name in ("forward_native", "forward_cuda"):
        found = list(inspect.signature(getattr(symbol.value, name)).parameters)
        assert found == ["self", "x", "residual"], f"the parameters of {name} are {found}"


def copies_whole_tensors(symbol: Symbol) -> None:
    parameter = nn.Parameter(torch.zeros(2, 3), requires_grad=False)
    symbol.value(parameter, torch.ones(2, 3))
    assert parameter.sum() == 6, "it does not copy"
    try:
        symbol.value(parameter, torch.ones(2, 1))
    except AssertionError:
        return
    raise AssertionError("it accepts another shape")


def sets_attributes(symbol: Symbol) -> None:
    parameter = nn.Parameter(torch.zeros(1), requires_grad=False)
    symbol.value(parameter, {"weight_loader": copies_whole_tensors})
    assert parameter.weight_loader is copies_whole_tensors, "the attribute is another"


def takes_rope_parameters(symbol: Symbol) -> None:
    parameters("head_size", "max_position")(symbol)
    default = inspect.signature(symbol.value).parameters["is_neox_style"].default
    assert default is True, "halves are no longer rotated against each other by default"
    for name in ("rope_type", "rope_theta", "partial_rotary_factor"):
        assert f'"{name}"' in symbol.source, f"it does not read {name}"


def makes_zeros_by_name(symbol: Symbol) -> None:
    made = symbol.value(["hidden_states", "residual"], 4)(batch_size=3, dtype=torch.float32, device="cpu")
    shapes = {name: tuple(tensor.shape) for name, tensor in made.tensors.items()}
    assert shapes == {"hidden_states": (3, 4), "residual": (3, 4)}, f"it makes {shapes}"


def calls_with_a_dotted_prefix(symbol: Symbol) -> None:
    """The number of a layer is the last part of the prefix that its maker gets."""
    parameters("num_hidden_layers", "layer_fn", "prefix")(symbol)
    assert 'layer_fn(prefix=f"{prefix}.{idx}")' in symbol.source, "layers are made with another prefix"
    assert "return start_layer, end_layer, modules" in symbol.source, "it returns something else"


def joins_prefixes(symbol: Symbol) -> None:
    found = symbol.value("", "lm_head"), symbol.value("draft", "lm_head")
    assert found == ("lm_head", "draft.lm_head"), f"it makes {found}"


def knows_missing_layers(symbol: Symbol) -> None:
    from vllm.model_executor.models.utils import PPMissingLayer

    parent = nn.ModuleDict({"1": PPMissingLayer(), "11": nn.Linear(1, 1)})
    assert symbol.value("1.weight", parent), "the placeholder's parameter is not missing"
    assert not symbol.value("11.weight", parent), "another layer's parameter is missing"


def has_no_parameters(symbol: Symbol) -> None:
    assert not list(symbol.value().parameters()), "a placeholder has parameters"


def names_the_class(symbol: Symbol) -> None:
    """An entry of the registry keeps the two halves of `package:Class`."""
    from vllm import ModelRegistry

    registry = type(ModelRegistry)()
    registry.register_model("VoxserveContractTest", "models.mimo_v2:MiMoV2ForCausalLM")
    entry = registry.models["VoxserveContractTest"]
    assert type(entry) is symbol.owner, f"it is a {type(entry).__name__}"
    expected = {"module_name": "models.mimo_v2", "class_name": "MiMoV2ForCausalLM"}[symbol.leaf]
    assert getattr(entry, symbol.leaf) == expected, f"it is {getattr(entry, symbol.leaf)}"


def keeps_a_v_size(symbol: Symbol) -> None:
    """A backend's class has the size of V as a setting of its own."""
    assert symbol.leaf.endswith("_DIFFKV"), "`diffkv_backend` knows such backends by their names"
    backend = type("Backend", (symbol.value.get_class(),), {})  # another class: the setting stays here
    backend.set_head_size_v(96)
    assert backend.head_size_v == 96, "it is kept elsewhere"


def is_the_flash_backend(symbol: Symbol) -> None:
    keeps_a_v_size(symbol)
    found = symbol.value.get_class().full_cls_name()
    assert ".".join(found) == DIFFKV_BACKEND, f"its class is {found}"


def default_window(symbol: Symbol) -> None:
    """A window for layers that name none: None must mean all positions."""
    from vllm.model_executor.layers.attention import Attention

    annotated("int | None")(symbol)
    source = inspect.getsource(Attention.__init__)
    assert "sliding_window = cache_config.sliding_window" in source, "Attention takes its window elsewhere"
    assert "per_layer_sliding_window is not None" in source, "a layer's own window no longer comes first"


def slots_of_experts(symbol: Symbol) -> None:
    """-1 where another rank has the expert; None where this rank has all."""
    from vllm.model_executor.layers.fused_moe.expert_map_manager import determine_expert_map

    exists(symbol)
    assert determine_expert_map(1, 0, 4)[1] is None, "one rank has a map"
    found = determine_expert_map(2, 1, 4)[1].tolist()
    assert found == [-1, -1, 0, 1], f"the second of two ranks has {found}"


def says_whether_it_loaded(symbol: Symbol) -> None:
    parameters("param", "loaded_weight", "weight_name", "shard_id", "expert_id", "return_success")(symbol)
    assert "return False if return_success else None" in symbol.source, "another rank's expert is no False"


def balances_experts(symbol: Symbol) -> None:
    """A model is recognised by having all members, so that a new one would quietly turn balancing off."""
    from vllm.model_executor.models.interfaces import is_mixture_of_experts

    from tests.support.vllm_uses import INTERFACES

    members = {name for name in vars(symbol.value) if not name.startswith("_")}
    members |= set(inspect.get_annotations(symbol.value))
    assert members - {"set_eplb_state"} == INTERFACES["MiMoV2ForCausalLM"][MIXTURE], f"it has {members}"
    assert "isinstance(model, MixtureOfExperts)" in inspect.getsource(is_mixture_of_experts), (
        "models are recognised in another way"
    )
    assert "layer.get_expert_weights()" in inspect.getsource(symbol.value.set_eplb_state), (
        "set_eplb_state no longer collects the experts' weights"
    )


def counts_ranks(symbol: Symbol) -> None:
    exists(symbol)
    hint = inspect.get_annotations(symbol.owner).get("world_size")
    assert hint in (int, "int"), f"its type is {hint}"


MIMO_V2_CONTRACTS: dict[str, Contract] = {
    # what vLLM asks of the model
    f"{TEXT_GENERATION}.embed_input_ids": parameters("input_ids"),
    f"{TEXT_GENERATION}.forward": parameters("input_ids", "positions"),
    f"{TEXT_GENERATION}.compute_logits": parameters("hidden_states"),
    SUPPORTS_PP: exists,
    f"{SUPPORTS_PP}.forward": parameters("input_ids", "positions", "intermediate_tensors"),
    f"{SUPPORTS_PP}.make_empty_intermediate_tensors": exists,
    MIXTURE: balances_experts,
    f"{MIXTURE}.expert_weights": annotated("Tensor"),
    f"{MIXTURE}.moe_layers": annotated("MoERunner"),
    f"{MIXTURE}.num_moe_layers": annotated("int"),
    f"{MIXTURE}.num_expert_groups": annotated("int"),
    f"{MIXTURE}.num_shared_experts": annotated("int"),
    f"{MIXTURE}.num_logical_experts": annotated("int"),
    f"{MIXTURE}.num_routed_experts": annotated("int"),
    f"{MIXTURE}.num_redundant_experts": annotated("int"),
    f"{MIXTURE}.num_physical_experts": annotated("int"),
    f"{MIXTURE}.num_local_physical_experts": annotated("int"),
    f"{MIXTURE}.update_physical_experts_metadata": parameters(
        "num_physical_experts", "num_local_physical_experts"
    ),
    "vllm.compilation.decorators.support_torch_compile": decorates_classes,
    # the registry of models
    f"{REGISTERED}.module_name": names_the_class,
    f"{REGISTERED}.class_name": names_the_class,
    # configuration
    "vllm.config.VllmConfig.attention_config": annotated("AttentionConfig"),
    "vllm.config.VllmConfig.quant_config": method("__post_init__", "self.quant_config = "),
    "vllm.config.AttentionConfig.backend": annotated("AttentionBackendEnum | None"),
    "vllm.config.CacheConfig.sliding_window": default_window,
    "vllm.config.ModelConfig.hf_text_config": method(
        "__post_init__", "self.hf_text_config = get_hf_text_config(self.hf_config)"
    ),
    "vllm.config.ParallelConfig.enable_eplb": annotated("bool"),
    "vllm.config.ParallelConfig.eplb_config": annotated("EPLBConfig"),
    "vllm.config.parallel.EPLBConfig.num_redundant_experts": annotated("int"),
    # ranks and pipeline stages
    "vllm.distributed.get_ep_group": returns_a_group,
    "vllm.distributed.get_pp_group": returns_a_group,
    f"{GROUP}.is_first_rank": exists,
    f"{GROUP}.is_last_rank": exists,
    f"{GROUP}.world_size": counts_ranks,
    f"{UTILS}.PPMissingLayer": has_no_parameters,
    f"{UTILS}.is_pp_missing_parameter": all_of(parameters("name", "model"), knows_missing_layers),
    f"{UTILS}.make_empty_intermediate_tensors_factory": makes_zeros_by_name,
    f"{UTILS}.make_layers": calls_with_a_dotted_prefix,
    f"{UTILS}.maybe_prefix": joins_prefixes,
    # layers
    f"{LAYERS}.layernorm.RMSNorm": norm_fuses_an_addition,
    f"{LAYERS}.linear.ReplicatedLinear": all_of(
        parameters("input_size", "output_size"), accepts("bias", "prefix", "return_bias")
    ),
    f"{LAYERS}.logits_processor.LogitsProcessor": all_of(
        parameters("vocab_size"), forwards("lm_head", "hidden_states")
    ),
    f"{LAYERS}.quantization.QuantizationConfig": exists,
    f"{LAYERS}.rotary_embedding.get_rope": takes_rope_parameters,
    LM_HEAD: parameters("num_embeddings", "embedding_dim"),
    f"{LM_HEAD}.tie_weights": all_of(
        parameters("embed_tokens"), method("tie_weights", "return self.quant_method.tie_weights(")
    ),
    # attention with values narrower than keys
    "vllm.platforms.current_platform.is_cuda_alike": exists,
    BACKEND: exists,
    f"{BACKEND}.FLASH_ATTN_DIFFKV": is_the_flash_backend,
    f"{BACKEND}.TRITON_ATTN_DIFFKV": keeps_a_v_size,
    f"{BACKEND}.get_class": parameters(),
    f"{DIFFKV_BACKEND}.set_head_size_v": parameters("head_size_v"),
    f"{DIFFKV_BACKEND}.is_supported_on_current_device": accepts("head_size", "head_size_v", "has_sinks"),
    # experts
    f"{LAYERS}.fused_moe.FusedMoEFactory": makes_a_moe_runner,
    f"{LAYERS}.fused_moe.GateLinear": gate_returns_a_bias,
    f"{LAYERS}.fused_moe.fused_moe_make_expert_params_mapping": expert_mapping,
    f"{MOE_RUNNER}.routed_experts": method("__init__", "self.routed_experts = routed_experts"),
    f"{MOE_RUNNER}.update_expert_map": parameters(),
    f"{ROUTED_EXPERTS}.expert_map": slots_of_experts,
    f"{ROUTED_EXPERTS}.weight_loader": says_whether_it_loaded,
    # the loading of weights
    "vllm.model_executor.model_loader.weight_utils.default_weight_loader": copies_whole_tensors,
    "vllm.model_executor.utils.set_weight_attrs": sets_attributes,
}
