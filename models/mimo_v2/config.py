"""The `config.json` of a MiMoV2 checkpoint as typed, validated data. Free of torch and vLLM.

Two families of field names are in use: the hub's (`hybrid_layer_pattern`, `moe_layer_freq`, `swa_*`,
`layernorm_epsilon`) and transformers' (`layer_types`, `mlp_layer_types`, `rope_parameters`, `rms_norm_eps`).
A configuration with `hybrid_layer_pattern` is read as the hub's: transformers adds defaults of its own names
to such a file, and they need not agree with it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from models.checkpoint import CheckpointError

SLIDING_ATTENTION = "sliding_attention"
FULL_ATTENTION = "full_attention"
SPARSE = "sparse"
DENSE = "dense"

DEFAULT_ROTARY_FACTOR = 1.0  # the hub's files name it; one that does not rotates whole heads
TRANSFORMERS_ROTARY_FACTOR = 0.334  # MiMoV2FlashConfig's own default
TRANSFORMERS_SLIDING_KV_RATIO = 2  # its sliding layers have twice the KV heads, and it has no field to say so
FP8_BLOCK = (128, 128)
MODEL_TYPES = ("mimo_v2_flash", "mimo_v2")  # of Flash, and of the Pro format


@dataclass(frozen=True)
class AttentionConfig:
    """One kind of attention: all full layers share one, all sliding layers another."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    v_head_dim: int
    rope_theta: float
    rotary_factor: float  # share of a head that is rotated
    window: int | None  # positions seen, the own included; None: all
    has_sinks: bool
    has_bias: bool


@dataclass(frozen=True)
class MoEConfig:
    """Sigmoid top-k routing over experts, within the best `topk_group` of `n_group` groups."""

    num_experts: int
    top_k: int
    intermediate_size: int
    renormalize: bool
    n_group: int
    topk_group: int
    scale: float  # factor on the chosen experts' weights


@dataclass(frozen=True)
class LayerConfig:
    """What one decoder layer is made of."""

    attention: AttentionConfig
    moe: MoEConfig | None  # None: a dense MLP


@dataclass(frozen=True)
class MiMoV2Config:
    """The whole model, both field families made one."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    max_position_embeddings: int
    rms_norm_eps: float
    value_scale: float | None
    tie_word_embeddings: bool
    full: AttentionConfig
    sliding: AttentionConfig
    layers: tuple[LayerConfig, ...]
    fp8_block: tuple[int, int]  # rows x columns that share a scale, where the checkpoint is block-fp8

    @property
    def num_experts(self) -> int:
        """Routed experts of a sparse layer; 0 for a model without any."""
        return max((layer.moe.num_experts for layer in self.layers if layer.moe), default=0)


class _Fields:
    """Typed access to a raw configuration; every complaint names the field."""

    def __init__(self, raw: Mapping[str, object]) -> None:
        self._raw = raw

    def has(self, name: str) -> bool:
        return self._raw.get(name) is not None

    def integer(self, name: str, default: int | None = None) -> int:
        value = self._value(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise CheckpointError(f"config field {name} is {value!r}, not a positive whole number")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        value = self._value(name, default)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise CheckpointError(f"config field {name} is {value!r}, not a number")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        value = self._value(name, default)
        if not isinstance(value, bool):
            raise CheckpointError(f"config field {name} is {value!r}, not true or false")
        return value

    def pair(self, name: str) -> tuple[int, int]:
        value = self._value(name, None)
        if (
            not isinstance(value, list | tuple)
            or len(value) != 2
            or not all(isinstance(v, int) for v in value)
        ):
            raise CheckpointError(f"config field {name} is {value!r}, not two whole numbers")
        return int(value[0]), int(value[1])

    def mapping(self, name: str) -> Mapping[str, object]:
        value = self._value(name, None)
        if not isinstance(value, Mapping):
            raise CheckpointError(f"config field {name} is {value!r}, not an object")
        return cast("Mapping[str, object]", value)

    def pattern(
        self, name: str, length: int, values: Mapping[int, str] | Mapping[str, str]
    ) -> tuple[str, ...]:
        """One of `values` per layer. A longer list is cut: vLLM lets a user load the first layers alone."""
        value = self._value(name, None)
        if not isinstance(value, list | tuple) or any(entry not in values for entry in value):
            allowed = " or ".join(map(repr, values))
            raise CheckpointError(f"config field {name} is {value!r}, not a list of {allowed}")
        if len(value) < length:
            raise CheckpointError(
                f"config field {name} has {len(value)} entries for num_hidden_layers = {length}"
            )
        return tuple(values[entry] for entry in value[:length])

    def require(self, name: str, *supported: object) -> None:
        """Refuse a field that asks for something this model does not do."""
        value = self._raw.get(name)
        if value is not None and value not in supported:
            raise CheckpointError(f"config field {name} is {value!r}; only {supported[0]!r} is supported")

    def _value(self, name: str, default: object) -> object:
        value = self._raw.get(name)
        value = default if value is None else value
        if value is None:
            raise CheckpointError(f"config field {name} is missing")
        return value


def parse_config(raw: Mapping[str, object]) -> MiMoV2Config:
    """Validate a configuration of either family.

    Raises:
        CheckpointError: a field is missing, wrong or unsupported; it is named.
    """
    fields = _Fields(raw)
    fields.require("hidden_act", "silu")
    fields.require("scoring_func", "sigmoid")
    fields.require("topk_method", "noaux_tc")
    fields.require("n_shared_experts", 0)
    hub = fields.has("hybrid_layer_pattern")
    # A draft's configuration has no hidden layers of its own.
    num_layers = fields.integer("num_hidden_layers") if raw.get("num_hidden_layers") != 0 else 0
    if hub:
        kinds = fields.pattern("hybrid_layer_pattern", num_layers, {0: FULL_ATTENTION, 1: SLIDING_ATTENTION})
        mlps = fields.pattern("moe_layer_freq", num_layers, {0: DENSE, 1: SPARSE})
        full, sliding = _hub_full(fields), _hub_sliding(fields)
    else:
        names = {name: name for name in (FULL_ATTENTION, SLIDING_ATTENTION)}
        kinds = fields.pattern("layer_types", num_layers, names)
        mlps = fields.pattern("mlp_layer_types", num_layers, {DENSE: DENSE, SPARSE: SPARSE})
        full, sliding = _transformers_full(fields), _transformers_sliding(fields)
    moe = _moe(fields) if SPARSE in mlps else None
    for kind, attention in ((FULL_ATTENTION, full), (SLIDING_ATTENTION, sliding)):
        _check_heads(kind, attention)
    return MiMoV2Config(
        vocab_size=fields.integer("vocab_size"),
        hidden_size=fields.integer("hidden_size"),
        intermediate_size=fields.integer("intermediate_size"),
        max_position_embeddings=fields.integer("max_position_embeddings"),
        rms_norm_eps=fields.number("layernorm_epsilon" if hub else "rms_norm_eps"),
        value_scale=fields.number("attention_value_scale") if fields.has("attention_value_scale") else None,
        tie_word_embeddings=fields.flag("tie_word_embeddings", False),
        full=full,
        sliding=sliding,
        layers=tuple(
            LayerConfig(sliding if kind == SLIDING_ATTENTION else full, moe if mlp == SPARSE else None)
            for kind, mlp in zip(kinds, mlps, strict=True)
        ),
        fp8_block=_fp8_block(fields),
    )


def _hub_full(fields: _Fields) -> AttentionConfig:
    _require_plain_rope(fields)
    return AttentionConfig(
        num_heads=fields.integer("num_attention_heads"),
        num_kv_heads=fields.integer("num_key_value_heads"),
        head_dim=fields.integer("head_dim"),
        v_head_dim=fields.integer("v_head_dim", fields.integer("head_dim")),
        rope_theta=fields.number("rope_theta"),
        rotary_factor=fields.number("partial_rotary_factor", DEFAULT_ROTARY_FACTOR),
        window=None,
        has_sinks=fields.flag("add_full_attention_sink_bias", False),
        has_bias=fields.flag("attention_bias", False),
    )


def _hub_sliding(fields: _Fields) -> AttentionConfig:
    head_dim = fields.integer("swa_head_dim", fields.integer("head_dim"))
    return AttentionConfig(
        num_heads=fields.integer("swa_num_attention_heads", fields.integer("num_attention_heads")),
        num_kv_heads=fields.integer("swa_num_key_value_heads", fields.integer("num_key_value_heads")),
        head_dim=head_dim,
        v_head_dim=fields.integer("swa_v_head_dim", head_dim),
        rope_theta=fields.number("swa_rope_theta", fields.number("rope_theta")),
        rotary_factor=fields.number("partial_rotary_factor", DEFAULT_ROTARY_FACTOR),
        window=fields.integer(
            "sliding_window_size" if fields.has("sliding_window_size") else "sliding_window"
        ),
        has_sinks=fields.flag("add_swa_attention_sink_bias", False),
        has_bias=fields.flag("attention_bias", False),
    )


def _transformers_full(fields: _Fields) -> AttentionConfig:
    rope = _Fields(_rope_of(fields, FULL_ATTENTION))
    return AttentionConfig(
        num_heads=fields.integer("num_attention_heads"),
        num_kv_heads=fields.integer("num_key_value_heads"),
        head_dim=fields.integer("head_dim"),
        v_head_dim=fields.integer("v_head_dim"),
        rope_theta=rope.number("rope_theta"),
        rotary_factor=rope.number("partial_rotary_factor", TRANSFORMERS_ROTARY_FACTOR),
        window=None,
        has_sinks=False,
        has_bias=fields.flag("attention_bias", False),
    )


def _transformers_sliding(fields: _Fields) -> AttentionConfig:
    rope = _Fields(_rope_of(fields, SLIDING_ATTENTION))
    return AttentionConfig(
        num_heads=fields.integer("num_attention_heads"),
        num_kv_heads=fields.integer("num_key_value_heads") * TRANSFORMERS_SLIDING_KV_RATIO,
        head_dim=fields.integer("head_dim"),
        v_head_dim=fields.integer("v_head_dim"),
        rope_theta=rope.number("rope_theta"),
        rotary_factor=rope.number("partial_rotary_factor", TRANSFORMERS_ROTARY_FACTOR),
        window=fields.integer("sliding_window"),
        has_sinks=True,
        has_bias=fields.flag("attention_bias", False),
    )


def _rope_of(fields: _Fields, kind: str) -> Mapping[str, object]:
    rope = _Fields(fields.mapping("rope_parameters")).mapping(kind)
    _Fields(rope).require("rope_type", "default")
    return rope


def _require_plain_rope(fields: _Fields) -> None:
    if fields.has("rope_scaling"):
        scaling = _Fields(fields.mapping("rope_scaling"))
        scaling.require("rope_type", "default")
        scaling.require("type", "default")


def _moe(fields: _Fields) -> MoEConfig:
    moe = MoEConfig(
        num_experts=fields.integer("n_routed_experts"),
        top_k=fields.integer("num_experts_per_tok"),
        intermediate_size=fields.integer("moe_intermediate_size"),
        renormalize=fields.flag("norm_topk_prob", True),
        n_group=fields.integer("n_group", 1),
        topk_group=fields.integer("topk_group", 1),
        scale=fields.number("routed_scaling_factor", 1.0),
    )
    if moe.num_experts % moe.n_group:
        raise CheckpointError(
            f"config field n_group is {moe.n_group}, but there are {moe.num_experts} experts"
        )
    if moe.topk_group > moe.n_group:
        raise CheckpointError(f"config field topk_group is {moe.topk_group} of {moe.n_group} groups")
    available = moe.num_experts // moe.n_group * moe.topk_group
    if moe.top_k > available:
        raise CheckpointError(f"config field num_experts_per_tok is {moe.top_k} of {available} experts")
    return moe


def _check_heads(kind: str, attention: AttentionConfig) -> None:
    if attention.num_heads % attention.num_kv_heads:
        raise CheckpointError(
            f"config field num_key_value_heads: {attention.num_kv_heads} KV heads do not divide "
            f"{attention.num_heads} heads of {kind}"
        )
    if attention.v_head_dim > attention.head_dim:
        raise CheckpointError(
            f"config field v_head_dim: {attention.v_head_dim} exceeds head_dim {attention.head_dim} of {kind}"
        )
    if not 0.0 < attention.rotary_factor <= 1.0 or int(attention.head_dim * attention.rotary_factor) % 2:
        raise CheckpointError(
            f"config field partial_rotary_factor: {attention.rotary_factor} of head_dim = "
            f"{attention.head_dim} is not an even number of dimensions"
        )


def _fp8_block(fields: _Fields) -> tuple[int, int]:
    if not fields.has("quantization_config"):
        return FP8_BLOCK
    quantization = _Fields(fields.mapping("quantization_config"))
    if not quantization.has("weight_block_size"):
        return FP8_BLOCK
    return quantization.pair("weight_block_size")
