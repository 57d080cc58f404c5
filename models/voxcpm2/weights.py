"""Reading a checkpoint's two weight files, checking them against the manifest, and filling the model.

    model.safetensors or pytorch_model.bin       the language models, encoder and DiT
    audiovae.safetensors or audiovae.pth         the AudioVAE, weight-normed or plain

Pickled files are read with `weights_only`, which executes no code.
"""

import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from models.checkpoint import CheckpointError
from models.voxcpm2.audio_vae import AudioVAE, load_audio_vae_weights, match_audio_vae_weights
from models.voxcpm2.config import read_config
from models.voxcpm2.manifest import AUDIO_VAE_FILES, MODEL_FILES, require_complete, tensor_manifest

if TYPE_CHECKING:
    from models.voxcpm2.scaffold import VoxCPM2ForTextToSpeech

AUDIO_VAE_PREFIX = "audio_vae."

# Prefixes of released names -> of our modules. Names not listed are the same.
RENAMED_PREFIXES = {
    "feat_encoder.": "local_encoder.",
    "feat_decoder.estimator.": "local_dit.",
    "fsq_layer.": "fsq.",
}


def find_weight_file(checkpoint: Path, names: tuple[str, ...]) -> Path:
    """The first of `names` that exists in a checkpoint directory, or `CheckpointError`."""
    for name in names:
        if (checkpoint / name).is_file():
            return checkpoint / name
    raise CheckpointError(f"{checkpoint} has neither {' nor '.join(names)}: download the checkpoint again")


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a weight file, on the CPU.

    Raises:
        CheckpointError: the file is damaged, holds something else than tensors, or would execute code.
    """
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        mapped = zipfile.is_zipfile(path)  # files of torch before 1.6 cannot be
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except pickle.UnpicklingError as error:  # torch's own text advises to execute what the file holds
        raise CheckpointError(
            f"{path} cannot be read (damaged, or more than tensors): download the checkpoint again"
        ) from error
    except (SafetensorError, RuntimeError, EOFError, OSError) as error:
        raise CheckpointError(f"{path} cannot be read ({error}): download the checkpoint again") from error
    tensors = content.get("state_dict", content) if isinstance(content, dict) else content
    if not isinstance(tensors, dict) or not all(isinstance(t, Tensor) for t in tensors.values()):
        raise CheckpointError(f"{path} does not hold named tensors: it is not a VoxCPM2 weight file")
    return tensors


def read_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Shapes of all tensors of a weight file, without reading a safetensors file's data.

    Raises:
        CheckpointError: as `read_tensors`.
    """
    if path.suffix != ".safetensors":
        return {name: tuple(tensor.shape) for name, tensor in read_tensors(path).items()}
    try:
        with safe_open(path, "pt") as file:
            return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} cannot be read ({error}): download the checkpoint again") from error


def check_checkpoint(checkpoint: Path) -> None:
    """Say what is wrong with a checkpoint directory before an engine is started for it.

    Raises:
        CheckpointError: a file is missing or unreadable, or a tensor is missing, unexpected or wrongly
            shaped; it is named.
    """
    config = read_config(checkpoint)
    model_file = find_weight_file(checkpoint, MODEL_FILES)
    vae_file = find_weight_file(checkpoint, AUDIO_VAE_FILES)
    require_complete(tensor_manifest(config), read_shapes(model_file), str(model_file))
    with torch.device("meta"):
        vae = AudioVAE(config.audio_vae_config)
    match_audio_vae_weights(vae, read_tensors(vae_file))


def read_checkpoint(checkpoint: Path) -> dict[str, Tensor]:
    """Both weight files of a checkpoint directory, the AudioVAE's names prefixed with `audio_vae.`.

    Raises:
        CheckpointError: a file is missing or unreadable, or a tensor of the language models, encoder or DiT
            is missing, unexpected or wrongly shaped; it is named.
    """
    model_file = find_weight_file(checkpoint, MODEL_FILES)
    vae_file = find_weight_file(checkpoint, AUDIO_VAE_FILES)
    tensors = read_tensors(model_file)
    expected = tensor_manifest(read_config(checkpoint))
    require_complete(expected, {n: tuple(t.shape) for n, t in tensors.items()}, str(model_file))
    tensors.update({AUDIO_VAE_PREFIX + name: tensor for name, tensor in read_tensors(vae_file).items()})
    return tensors


def load_model_weights(model: "VoxCPM2ForTextToSpeech", native: Mapping[str, Tensor]) -> set[str]:
    """Fill `model` from tensors in the released naming.

    Returns:
        Names of the parameters that got data.

    Raises:
        CheckpointError: a parameter got none, or the AudioVAE's tensors are not those of its configuration.
    """
    vae = {n.removeprefix(AUDIO_VAE_PREFIX): t for n, t in native.items() if n.startswith(AUDIO_VAE_PREFIX)}
    load_audio_vae_weights(model.audio_vae, vae)
    loaded = {f"audio_vae.{name}" for name, _ in model.audio_vae.named_parameters()}
    paged = {"base_lm.": model.base_lm, "residual_lm.": model.residual_lm}
    for prefix, stack in paged.items():
        loaded |= {prefix + name for name in stack.load_weights_from_native(native)}
    parameters = dict(model.named_parameters())
    for name, tensor in native.items():
        if not name.startswith((AUDIO_VAE_PREFIX, *paged)):
            loaded.add(_copy(parameters, name, tensor))
    empty = sorted(set(parameters) - loaded)
    if empty:
        raise CheckpointError(f"the checkpoint has no data for {', '.join(empty)}")
    return loaded


def _copy(parameters: Mapping[str, nn.Parameter], name: str, tensor: Tensor) -> str:
    target = name
    for released, ours in RENAMED_PREFIXES.items():
        if name.startswith(released):
            target = ours + name.removeprefix(released)
    parameters[target].data.copy_(tensor)
    return target
