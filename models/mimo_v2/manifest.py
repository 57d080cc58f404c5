"""Name and shape of every tensor that a configuration promises, in the released naming. Free of torch.

One table serves the loader (what is missing, unexpected or wrongly shaped) and `make_checkpoint` (what to
write). The query, key and value projections are listed in their split form, `q_proj`, `k_proj` and `v_proj`;
the fused form of the Pro checkpoints, `qkv_proj`, stands for the three.
"""

import re
from collections.abc import Iterator

from models.mimo_v2.config import AttentionConfig, LayerConfig, MiMoV2Config, MoEConfig

Shape = tuple[int, ...]

WEIGHT_SUFFIX = ".weight"
SCALE_SUFFIX = ".weight_scale_inv"
MTP_PREFIX = "mtp."
SPLIT_QKV = ("q_proj", "k_proj", "v_proj")
FUSED_QKV = "qkv_proj"

_MTP_INDEX = re.compile(r"^mtp\.layers\.\d+\.")
_FIRST_MTP_LAYER = "mtp.layers.0."


def model_shapes(config: MiMoV2Config) -> dict[str, Shape]:
    """Shapes of all tensors below `model.`, by their names there; next-token layers are not among them."""
    shapes: dict[str, Shape] = {"embed_tokens.weight": (config.vocab_size, config.hidden_size)}
    for i, layer in enumerate(config.layers):
        shapes.update(_layer(f"layers.{i}", config, layer))
    shapes["norm.weight"] = (config.hidden_size,)
    return shapes


def mtp_shapes(config: MiMoV2Config) -> dict[str, Shape]:
    """Shapes of the first next-token layer, by their names below `model.`. The others are like it."""
    hidden, layer = config.hidden_size, _FIRST_MTP_LAYER
    shapes: dict[str, Shape] = {
        f"{layer}enorm.weight": (hidden,),
        f"{layer}hnorm.weight": (hidden,),
        f"{layer}eh_proj.weight": (hidden, 2 * hidden),
        f"{layer}input_layernorm.weight": (hidden,),
        f"{layer}pre_mlp_layernorm.weight": (hidden,),
        f"{layer}final_layernorm.weight": (hidden,),
    }
    shapes.update(_attention(f"{layer}self_attn", config, config.sliding))
    shapes.update(_mlp(f"{layer}mlp", hidden, config.intermediate_size))
    return shapes


def is_mtp_tensor(name: str, config: MiMoV2Config) -> bool:
    """Whether a name below `model.` is that of a tensor of some next-token layer."""
    first = weight_of(_MTP_INDEX.sub(_FIRST_MTP_LAYER, name))
    return any(candidate in mtp_shapes(config) for candidate in (first, *split_names(first)))


def split_names(name: str) -> tuple[str, ...]:
    """The three names that a fused `qkv_proj` tensor stands for, or nothing."""
    parent, found, leaf = name.rpartition(f".{FUSED_QKV}.")
    return tuple(f"{parent}.{part}.{leaf}" for part in SPLIT_QKV) if found else ()


def weight_of(name: str) -> str:
    """The weight that a block scale belongs to; other names are returned as they are."""
    return name.removesuffix(SCALE_SUFFIX) + WEIGHT_SUFFIX if name.endswith(SCALE_SUFFIX) else name


def scale_shape(weight: Shape, block: tuple[int, int]) -> Shape:
    """Shape of the block scales of a weight with one grid of blocks."""
    return tuple(-(-size // along) for size, along in zip(weight, block, strict=True))


def _layer(prefix: str, config: MiMoV2Config, layer: LayerConfig) -> Iterator[tuple[str, Shape]]:
    yield f"{prefix}.input_layernorm.weight", (config.hidden_size,)
    yield f"{prefix}.post_attention_layernorm.weight", (config.hidden_size,)
    yield from _attention(f"{prefix}.self_attn", config, layer.attention)
    if layer.moe is None:
        yield from _mlp(f"{prefix}.mlp", config.hidden_size, config.intermediate_size)
    else:
        yield from _moe(f"{prefix}.mlp", config.hidden_size, layer.moe)


def _attention(prefix: str, config: MiMoV2Config, attention: AttentionConfig) -> Iterator[tuple[str, Shape]]:
    rows = (
        attention.num_heads * attention.head_dim,
        attention.num_kv_heads * attention.head_dim,
        attention.num_kv_heads * attention.v_head_dim,
    )
    for part, size in zip(SPLIT_QKV, rows, strict=True):
        yield f"{prefix}.{part}.weight", (size, config.hidden_size)
        if attention.has_bias:
            yield f"{prefix}.{part}.bias", (size,)
    yield f"{prefix}.o_proj.weight", (config.hidden_size, attention.num_heads * attention.v_head_dim)
    if attention.has_sinks:
        yield f"{prefix}.attention_sink_bias", (attention.num_heads,)


def _mlp(prefix: str, hidden: int, intermediate: int) -> Iterator[tuple[str, Shape]]:
    yield f"{prefix}.gate_proj.weight", (intermediate, hidden)
    yield f"{prefix}.up_proj.weight", (intermediate, hidden)
    yield f"{prefix}.down_proj.weight", (hidden, intermediate)


def _moe(prefix: str, hidden: int, moe: MoEConfig) -> Iterator[tuple[str, Shape]]:
    yield f"{prefix}.gate.weight", (moe.num_experts, hidden)
    yield f"{prefix}.gate.e_score_correction_bias", (moe.num_experts,)
    for expert in range(moe.num_experts):
        yield from _mlp(f"{prefix}.experts.{expert}", hidden, moe.intermediate_size)
