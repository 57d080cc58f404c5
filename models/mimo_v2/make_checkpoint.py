"""Tiny random MiMoV2 checkpoints in the released layouts, for tests and for a first try: they write nonsense.

    config.json               the hub's field names
    model.safetensors         by `manifest`, next-token layer included
    tokenizer.json, tokenizer_config.json, generation_config.json

| kind | architecture | weights |
|---|---|---|
| flash | MiMoV2FlashForCausalLM | bfloat16; `q_proj`, `k_proj`, `v_proj` |
| pro-fp8 | MiMoV2ForCausalLM | block-fp8 with scales; fused `qkv_proj`; `o_proj` and the rest bfloat16 |

Both have full and sliding layers, dense and sparse ones, sinks, and heads with K wider than V. The same kind
and seed give the same bytes.
"""

import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor

from models.checkpoint import MADE_BY, CheckpointError, make_directory, write_json
from models.mimo_v2.config import MiMoV2Config, parse_config
from models.mimo_v2.fp8_qkv import SCALE, WEIGHT, quantize_blocks
from models.mimo_v2.make_tokenizer import CHAT_TEMPLATE, END_OF_TEXT, TURN_END, VOCAB_SIZE, make_tokenizer
from models.mimo_v2.manifest import FUSED_QKV, SPLIT_QKV, Shape, model_shapes, mtp_shapes

Kind = Literal["flash", "pro-fp8"]
KINDS: tuple[Kind, ...] = ("flash", "pro-fp8")

SIZES: dict[str, object] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 96,  # 3 to 2, as the release has 192 to 128
    "v_head_dim": 64,
    "swa_num_attention_heads": 4,
    "swa_num_key_value_heads": 4,
    "swa_head_dim": 96,
    "swa_v_head_dim": 64,
    "sliding_window": 48,  # no multiple of a cache block
    "sliding_window_size": 48,
    "max_position_embeddings": 4096,
    "rope_theta": 5000000,
    "swa_rope_theta": 10000,
    "partial_rotary_factor": 0.334,
    "attention_value_scale": 0.707,
    "attention_bias": False,
    "add_full_attention_sink_bias": False,
    "add_swa_attention_sink_bias": True,
    "layernorm_epsilon": 1e-5,
    "hidden_act": "silu",
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "norm_topk_prob": True,
    "routed_scaling_factor": None,
    "scoring_func": "sigmoid",
    "topk_method": "noaux_tc",
    "n_shared_experts": None,
    "tie_word_embeddings": False,
    "num_nextn_predict_layers": 1,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "dtype": "bfloat16",
}
CONFIGS: dict[Kind, dict[str, object]] = {
    "flash": {
        "architectures": ["MiMoV2FlashForCausalLM"],
        "model_type": "mimo_v2_flash",
        "num_hidden_layers": 6,
        "hybrid_layer_pattern": [0, 1, 1, 1, 1, 0],
        "moe_layer_freq": [0, 1, 1, 1, 1, 1],
        "n_routed_experts": 8,
        "moe_intermediate_size": 64,
    },
    "pro-fp8": {
        "architectures": ["MiMoV2ForCausalLM"],
        "model_type": "mimo_v2",
        "num_hidden_layers": 4,
        "hybrid_layer_pattern": [0, 1, 1, 0],
        "moe_layer_freq": [0, 1, 1, 1],
        "n_routed_experts": 4,
        "moe_intermediate_size": 256,  # two ranks have whole blocks each
        "quantization_config": {
            "quant_method": "fp8",
            "fmt": "e4m3",
            "activation_scheme": "dynamic",
            "weight_block_size": [128, 128],
            "ignored_layers": [f"model.layers.{i}.self_attn.o_proj" for i in range(4)],
        },
    },
}

# Standard deviations of matrices are in units of 1/sqrt(inputs). Queries and keys are larger, so that
# attention prefers some positions.
MATRIX_GAIN = 1.0
ATTENTION_GAIN = 1.6
OUTPUT_GAIN = 0.5  # of what a layer adds: the last token's embedding stays visible to the head
HEAD_GAIN = 2.0
MTP_NOISE_GAIN = 0.1  # beside the embedding, which passes: so that some drafts are right
SINK_STD = 1.0
CORRECTION_BIAS_STD = 0.1  # of the spread of the scores, which lie between 0 and 1
NORM_RANGE = (0.7, 1.3)
QUANTIZED = (FUSED_QKV, "gate_proj", "up_proj", "down_proj")


def make_checkpoint(
    directory: Path,
    kind: Kind = "flash",
    seed: int = 0,
    *,
    force: bool = False,
    fields: Mapping[str, object] | None = None,
) -> None:
    """Write a checkpoint whose numbers follow from `kind` and `seed`. Parent directories are made.

    Args:
        directory: absent or empty; with `force` also one that we made.
        kind: of the module's table.
        seed: at least 0.
        force: replace an earlier checkpoint of ours.
        fields: of `config.json`, where they are to differ, such as sizes.

    Raises:
        CheckpointError: something else is there, or there is no such kind; says what to do.
        OSError: it cannot be written.
    """
    if kind not in KINDS:
        raise CheckpointError(f"there is no checkpoint of kind {kind!r}: name {' or '.join(KINDS)}")
    make_directory(directory, partial(_write, kind=kind, seed=seed, fields=fields or {}), force=force)


def _write(directory: Path, kind: Kind, seed: int, fields: Mapping[str, object]) -> None:
    raw: dict[str, object] = {**SIZES, **CONFIGS[kind], **fields, "made_by": MADE_BY, "seed": seed}
    config = parse_config(raw)
    tensors = _random_tensors(config, seed)
    if kind == "pro-fp8":
        tensors = _to_pro(tensors, config)
    (directory / "model.safetensors").write_bytes(save(tensors, metadata={"format": "pt"}))
    make_tokenizer().save(str(directory / "tokenizer.json"))
    write_json(
        directory / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": TURN_END,
            "pad_token": END_OF_TEXT,
            "model_max_length": SIZES["max_position_embeddings"],
            "clean_up_tokenization_spaces": False,
            "chat_template": CHAT_TEMPLATE,
        },
    )
    write_json(directory / "generation_config.json", {"eos_token_id": [2, 0], "pad_token_id": 0})
    write_json(directory / "config.json", raw)


def _random_tensors(config: MiMoV2Config, seed: int) -> dict[str, Tensor]:
    random = np.random.default_rng(seed)
    shapes = {
        f"model.{name}": shape for name, shape in {**model_shapes(config), **mtp_shapes(config)}.items()
    }
    shapes["lm_head.weight"] = (config.vocab_size, config.hidden_size)
    return {name: _random_tensor(name, shape, random) for name, shape in shapes.items()}


def _random_tensor(name: str, shape: Shape, random: np.random.Generator) -> Tensor:
    if name.endswith("norm.weight"):
        return torch.from_numpy(random.uniform(*NORM_RANGE, shape)).bfloat16()
    values = torch.from_numpy(random.standard_normal(shape, np.float32))
    if name.endswith("e_score_correction_bias"):
        return values * CORRECTION_BIAS_STD
    values *= _std(name, shape)
    if name.endswith("eh_proj.weight"):
        values += torch.eye(*shape)
    return values.bfloat16()


def _std(name: str, shape: Shape) -> float:
    if name.endswith("embed_tokens.weight"):
        return 1.0
    if name.endswith("attention_sink_bias"):
        return SINK_STD
    gain = MATRIX_GAIN
    if name.endswith(("q_proj.weight", "k_proj.weight")):
        gain = ATTENTION_GAIN
    elif name.endswith(("o_proj.weight", "down_proj.weight")):
        gain = OUTPUT_GAIN
    elif name.endswith("eh_proj.weight"):
        gain = MTP_NOISE_GAIN
    elif name == "lm_head.weight":
        gain = HEAD_GAIN
    return gain / math.sqrt(shape[-1])


def _to_pro(tensors: dict[str, Tensor], config: MiMoV2Config) -> dict[str, Tensor]:
    """Fuse the three projections of each attention, and quantise what the Pro format quantises."""
    result: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        layer, _, leaf = name.rpartition(".")
        parent, _, projection = layer.rpartition(".")
        if projection == SPLIT_QKV[0]:
            parts = [tensors[f"{parent}.{part}.{leaf}"] for part in SPLIT_QKV]
            groups = zip(*(part.chunk(config.full.num_kv_heads) for part in parts), strict=True)
            quantized = [quantize_blocks(torch.cat(group), config.fp8_block) for group in groups]
            fused = f"{parent}.{FUSED_QKV}"
            result[f"{fused}.{WEIGHT}"] = torch.cat([weight for weight, _ in quantized])
            result[f"{fused}.{SCALE}"] = torch.cat([scale for _, scale in quantized])
        elif projection in QUANTIZED:
            result[f"{layer}.{WEIGHT}"], result[f"{layer}.{SCALE}"] = quantize_blocks(
                tensor, config.fp8_block
            )
        elif projection not in SPLIT_QKV:
            result[name] = tensor
    return result
