"""Whether a checkpoint directory is complete, each fault by name. Big weights stay on disk."""

from collections.abc import Iterator
from pathlib import Path

from app.commands.findings import Finding, failed, ok
from models.checkpoint import CheckpointError
from models.voxcpm2.config import VoxCPM2ModelConfig, read_config
from models.voxcpm2.manifest import (
    AUDIO_VAE_FILES,
    MAX_LISTED_PROBLEMS,
    MODEL_FILES,
    find_problems,
    tensor_manifest,
)
from models.voxcpm2.tokenizer import TextTokenizer

DOWNLOAD = "download the checkpoint again, or make it anew"


def check_checkpoint(directory: Path) -> Iterator[Finding]:
    """Configuration, tokenizer, and every tensor's presence and shape."""
    yield _tokenizer(directory)
    try:
        config = read_config(directory)
    except CheckpointError as error:
        yield failed("config", str(error), DOWNLOAD)
        return  # which tensors there must be is not known
    yield ok(
        "config",
        f"{directory}: {config.lm_config.num_hidden_layers} + {config.residual_lm_num_layers} layers of "
        f"{config.lm_config.hidden_size}, {config.dtype}, {config.sample_rate} Hz",
    )
    yield _model_weights(directory, config)
    yield _audio_vae(directory, config)


def _tokenizer(directory: Path) -> Finding:
    try:
        tokens = len(TextTokenizer.from_checkpoint(directory)("Hello world."))
    except CheckpointError as error:
        return failed("tokenizer", str(error), DOWNLOAD)
    return ok("tokenizer", f"'Hello world.' is {tokens} tokens")


def _model_weights(directory: Path, config: VoxCPM2ModelConfig) -> Finding:
    from models.voxcpm2.weights import find_weight_file, read_shapes  # noqa: PLC0415 (imports torch)

    expected = tensor_manifest(config)
    try:
        path = find_weight_file(directory, MODEL_FILES)
        problems = find_problems(expected, read_shapes(path))
    except CheckpointError as error:
        return failed("weights", str(error), DOWNLOAD)
    if problems:
        hidden = len(problems) - MAX_LISTED_PROBLEMS
        listed = "; ".join([*problems[:MAX_LISTED_PROBLEMS], *([f"and {hidden} more"] if hidden > 0 else [])])
        return failed("weights", f"{path.name}: {listed}", DOWNLOAD)
    return ok("weights", f"{path.name}: {len(expected)} tensors, {path.stat().st_size / 1e6:.0f} MB")


def _audio_vae(directory: Path, config: VoxCPM2ModelConfig) -> Finding:
    import torch  # noqa: PLC0415 (seconds to import)

    from models.voxcpm2.audio_vae import AudioVAE, match_audio_vae_weights  # noqa: PLC0415
    from models.voxcpm2.weights import find_weight_file, read_tensors  # noqa: PLC0415

    try:
        path = find_weight_file(directory, AUDIO_VAE_FILES)
        tensors = read_tensors(path)
        with torch.device("meta"):
            vae = AudioVAE(config.audio_vae_config)
        match_audio_vae_weights(vae, tensors)
    except CheckpointError as error:
        return failed("audio VAE", str(error), DOWNLOAD)
    return ok("audio VAE", f"{path.name}: {len(tensors)} tensors")
