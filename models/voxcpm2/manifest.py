"""Name and shape of every tensor that a checkpoint's configuration promises. Free of torch.

One table serves the loader (what is missing, unexpected or wrongly shaped), `voxserve doctor` (without
loading anything) and `voxserve make-checkpoint` (what to write). The AudioVAE's tensors are not in it: its
module knows them.
"""

from collections.abc import Iterator, Mapping

from models.checkpoint import CheckpointError
from models.voxcpm2.config import TransformerConfig, VoxCPM2ModelConfig

Shape = tuple[int, ...]

# Of each kind a checkpoint has one; the first that is there counts.
MODEL_FILES = ("model.safetensors", "pytorch_model.bin")
AUDIO_VAE_FILES = ("audiovae.safetensors", "audiovae.pth")

STOP_CLASSES = 2  # go on, stop
MAX_LISTED_PROBLEMS = 20  # a wrong checkpoint has hundreds; the first of them say why


def tensor_manifest(config: VoxCPM2ModelConfig) -> dict[str, Shape]:
    """Shapes of all tensors of `model.safetensors` by their released names."""
    lm, encoder, dit = config.lm_config, config.local_encoder, config.local_dit
    hidden, feat = lm.hidden_size, config.feat_dim
    shapes: dict[str, Shape] = {
        "base_lm.embed_tokens.weight": (lm.vocab_size, hidden),
        "feat_encoder.special_token": (1, 1, 1, encoder.hidden_size),
        "stop_head.weight": (STOP_CLASSES, hidden),
    }
    shapes.update(_stack("base_lm", lm))
    shapes.update(_stack("residual_lm", config.residual_lm))
    shapes.update(_stack("feat_encoder.encoder", encoder))
    shapes.update(_stack("feat_decoder.estimator.decoder", dit))
    linears = {  # name: (output, input)
        "feat_encoder.in_proj": (encoder.hidden_size, feat),
        "feat_decoder.estimator.in_proj": (dit.hidden_size, feat),
        "feat_decoder.estimator.cond_proj": (dit.hidden_size, feat),
        "feat_decoder.estimator.out_proj": (feat, dit.hidden_size),
        "feat_decoder.estimator.time_mlp.linear_1": (dit.hidden_size, dit.hidden_size),
        "feat_decoder.estimator.time_mlp.linear_2": (dit.hidden_size, dit.hidden_size),
        "feat_decoder.estimator.delta_time_mlp.linear_1": (dit.hidden_size, dit.hidden_size),
        "feat_decoder.estimator.delta_time_mlp.linear_2": (dit.hidden_size, dit.hidden_size),
        "fsq_layer.in_proj": (config.scalar_quantization_latent_dim, hidden),
        "fsq_layer.out_proj": (hidden, config.scalar_quantization_latent_dim),
        "enc_to_lm_proj": (hidden, encoder.hidden_size),
        "lm_to_dit_proj": (dit.hidden_size, hidden),
        "res_to_dit_proj": (dit.hidden_size, hidden),
        "fusion_concat_proj": (hidden, 2 * hidden),
        "stop_proj": (hidden, hidden),
    }
    for name, shape in linears.items():
        shapes[f"{name}.weight"] = shape
        shapes[f"{name}.bias"] = shape[:1]
    return shapes


def _stack(prefix: str, config: TransformerConfig) -> Iterator[tuple[str, Shape]]:
    hidden, wide = config.hidden_size, config.intermediate_size
    q_size = config.num_attention_heads * config.head_dim
    kv_size = config.num_key_value_heads * config.head_dim
    for i in range(config.num_hidden_layers):
        layer = f"{prefix}.layers.{i}"
        yield f"{layer}.input_layernorm.weight", (hidden,)
        yield f"{layer}.post_attention_layernorm.weight", (hidden,)
        yield f"{layer}.self_attn.q_proj.weight", (q_size, hidden)
        yield f"{layer}.self_attn.k_proj.weight", (kv_size, hidden)
        yield f"{layer}.self_attn.v_proj.weight", (kv_size, hidden)
        yield f"{layer}.self_attn.o_proj.weight", (hidden, q_size)
        yield f"{layer}.mlp.gate_proj.weight", (wide, hidden)
        yield f"{layer}.mlp.up_proj.weight", (wide, hidden)
        yield f"{layer}.mlp.down_proj.weight", (hidden, wide)
    yield f"{prefix}.norm.weight", (hidden,)


def find_problems(expected: Mapping[str, Shape], found: Mapping[str, Shape]) -> list[str]:
    """One line for each tensor that is missing, unexpected or wrongly shaped."""
    problems = [f"{name} is missing" for name in expected if name not in found]
    problems += [f"{name} is not part of this model" for name in found if name not in expected]
    problems += [
        f"{name} has shape {list(found[name])}, the configuration says {list(shape)}"
        for name, shape in expected.items()
        if name in found and found[name] != shape
    ]
    return problems


def require_complete(expected: Mapping[str, Shape], found: Mapping[str, Shape], source: str) -> None:
    """Raise `CheckpointError`, naming the tensors, unless `found` is exactly what is `expected`."""
    problems = find_problems(expected, found)
    if not problems:
        return
    listed = "; ".join(problems[:MAX_LISTED_PROBLEMS])
    more = f"; and {len(problems) - MAX_LISTED_PROBLEMS} more" if len(problems) > MAX_LISTED_PROBLEMS else ""
    raise CheckpointError(
        f"{source} does not match its config.json: {listed}{more}. "
        "Download the checkpoint again, or check that both files belong together"
    )
