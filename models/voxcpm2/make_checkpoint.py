"""A tiny random VoxCPM2 checkpoint in the released layout, for tests and for a first try: it speaks noise.

    config.json         with `architecture` and without `model_type`
    model.safetensors   the language models, encoder and DiT, by `manifest.tensor_manifest`
    audiovae.pth        `{"state_dict": ...}`, convolutions weight-normed
    tokenizer.json, tokenizer_config.json

The same seed gives the same bytes.
"""

import math
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from models.checkpoint import CONFIG_FILE, MADE_BY, make_directory, write_json
from models.voxcpm2.config import ARCHITECTURE, parse_config
from models.voxcpm2.make_tokenizer import VOCAB_SIZE, make_tokenizer
from models.voxcpm2.manifest import Shape, tensor_manifest
from models.voxcpm2.tokenizer import TOKENIZER_FILE

if TYPE_CHECKING:
    import torch

MODEL_FILE, AUDIO_VAE_FILE = "model.safetensors", "audiovae.pth"
TOKENIZER_CONFIG_FILE = "tokenizer_config.json"

HEAD_SIZE = 32
ROPE_FREQUENCIES = range(HEAD_SIZE // 2)
MAX_POSITIONS = 4096
LOCAL_SIZES = {"hidden_dim": 64, "ffn_dim": 128, "num_heads": 4, "num_layers": 2, "kv_channels": HEAD_SIZE}
CONFIG: dict[str, object] = {
    "architecture": ARCHITECTURE,
    "lm_config": {
        "bos_token_id": 1,
        "eos_token_id": 2,
        "hidden_size": 128,
        "intermediate_size": 256,
        "max_position_embeddings": MAX_POSITIONS,
        "num_attention_heads": 4,
        "num_hidden_layers": 4,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "rope_scaling": {
            "type": "longrope",
            "long_factor": [round(1 + 0.05 * i, 2) for i in ROPE_FREQUENCIES],
            "short_factor": [round(1 + 0.01 * i, 2) for i in ROPE_FREQUENCIES],
            "original_max_position_embeddings": MAX_POSITIONS,
        },
        "vocab_size": VOCAB_SIZE,
        "use_mup": False,
        "scale_emb": 12,
        "dim_model_base": 256,
        "scale_depth": 1.4,
        "kv_channels": HEAD_SIZE,
    },
    "patch_size": 4,
    "feat_dim": 16,
    "residual_lm_num_layers": 2,
    "residual_lm_no_rope": True,
    "scalar_quantization_latent_dim": 32,
    "scalar_quantization_scale": 9,
    "encoder_config": LOCAL_SIZES,
    "dit_config": LOCAL_SIZES,
    "audio_vae_config": {
        "encoder_dim": 8,
        "encoder_rates": [2, 5, 8, 8],
        "latent_dim": 16,
        "decoder_dim": 128,
        "decoder_rates": [8, 6, 5, 2, 2, 2],
        "depthwise": True,
        "sample_rate": 16000,
        "out_sample_rate": 48000,
        "use_noise_block": False,
        "sr_bin_boundaries": [20000, 30000, 40000],
    },
    "max_length": 2048,
    "device": "cpu",
    "dtype": "float32",
}

# Standard deviations of matrices are in units of 1/sqrt(inputs). With these, values stay finite however long
# speech lasts, and samples are neither clipped nor lost in 16 bits.
MATRIX_GAIN = 0.6
CONVOLUTION_GAIN = 0.7
BIAS_STD = 0.02
# Lowers the stop logit, whose inputs are mostly positive, so that speech lasts a second or two, not as short
# as it may.
STOP_HEAD_LEAN = 0.04
ALPHA_RANGE = (0.5, 1.5)  # of the periodic activations

Floats = npt.NDArray[np.float32]


def default_checkpoint(cache_dir: Path) -> Path:
    """The checkpoint that serves where none is named: seed 0, made in `cache_dir` on first use.

    Raises:
        OSError: `cache_dir` cannot be written.
    """
    directory = cache_dir / f"random-checkpoint-{version('voxserve')}"
    if not directory.is_dir():
        make_checkpoint(directory)
    return directory


def make_checkpoint(directory: Path, seed: int = 0, *, force: bool = False) -> None:
    """Write a checkpoint whose numbers follow from `seed`. Parent directories are made.

    Args:
        directory: absent or empty; with `force` also one that we made.
        seed: at least 0.
        force: replace an earlier checkpoint of ours.

    Raises:
        CheckpointError: something else is there; says what to do.
        OSError: it cannot be written.
    """
    make_directory(directory, partial(_write, seed=seed), force=force)


def _write(directory: Path, seed: int) -> None:
    import torch  # noqa: PLC0415 (seconds to import, and the constants above do without)
    from safetensors.numpy import save  # noqa: PLC0415

    config = parse_config(CONFIG, source=MADE_BY)
    random = np.random.default_rng(seed)
    tensors = {name: _tensor(name, shape, random) for name, shape in tensor_manifest(config).items()}
    tensors["stop_head.weight"][1] -= STOP_HEAD_LEAN
    (directory / MODEL_FILE).write_bytes(save(tensors))  # `save_file` would make it the owner's alone
    torch.save({"state_dict": _audio_vae(random)}, directory / AUDIO_VAE_FILE)
    make_tokenizer().save(str(directory / TOKENIZER_FILE))
    write_json(
        directory / TOKENIZER_CONFIG_FILE,
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "unk_token": "<unk>",
            "bos_token": "<s>",
            "eos_token": "</s>",
        },
    )
    write_json(directory / CONFIG_FILE, {**CONFIG, "made_by": MADE_BY, "seed": seed})


def _tensor(name: str, shape: Shape, random: np.random.Generator) -> Floats:
    if name.endswith("norm.weight"):
        return np.ones(shape, np.float32)
    std = BIAS_STD if name.endswith(".bias") else MATRIX_GAIN / math.sqrt(shape[-1])
    return _normal(shape, std, random)


def _audio_vae(random: np.random.Generator) -> dict[str, "torch.Tensor"]:
    """The AudioVAE's tensors in the released naming: a gain and a direction for each convolution."""
    import torch  # noqa: PLC0415

    from models.voxcpm2.audio_vae import BOUNDARIES, AudioVAE  # noqa: PLC0415

    config = parse_config(CONFIG, source=MADE_BY).audio_vae_config
    with torch.device("meta"):
        shapes = {name: tuple(tensor.shape) for name, tensor in AudioVAE(config).state_dict().items()}
    tensors: dict[str, Floats | npt.NDArray[np.int32]] = {}
    for name, shape in shapes.items():
        if name.endswith(".alpha"):
            tensors[name] = random.uniform(*ALPHA_RANGE, shape).astype(np.float32)
        elif name.endswith(".bias"):
            tensors[name] = _normal(shape, BIAS_STD, random)
        elif name.endswith("_embed.weight"):  # the condition on the output rate: none
            tensors[name] = np.full(shape, float(name.endswith("scale_embed.weight")), np.float32)
        else:
            direction = _normal(shape, CONVOLUTION_GAIN / math.sqrt(math.prod(shape[1:])), random)
            layer = name.removesuffix(".weight")
            tensors[f"{layer}.weight_g"] = np.sqrt(np.square(direction).sum(axis=(1, 2), keepdims=True))
            tensors[f"{layer}.weight_v"] = direction
    tensors[BOUNDARIES] = np.array(config.sr_bin_boundaries, np.int32)
    return {name: torch.from_numpy(values) for name, values in tensors.items()}


def _normal(shape: Shape, std: float, random: np.random.Generator) -> Floats:
    return np.float32(std) * random.standard_normal(shape, np.float32)
