"""MiMoV2 models on one process without an engine, and checkpoints changed for a test."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.distributed import parallel_state
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.model_loader.utils import initialize_model
from vllm.utils.torch_utils import set_default_torch_dtype

from models.mimo_v2.config import MiMoV2Config, parse_config
from models.mimo_v2.fp8_qkv import SCALE
from models.mimo_v2.make_checkpoint import CONFIGS, SIZES
from models.mimo_v2.manifest import FUSED_QKV, SPLIT_QKV
from models.plugin import register

FLASH_CONFIG = parse_config({**SIZES, **CONFIGS["flash"]})
PRO_CONFIG = parse_config({**SIZES, **CONFIGS["pro-fp8"]})
WEIGHTS = "model.safetensors"
# So small that random fp8 codes make weights, and a power of two: regrouping rows changes nothing.
UNIFORM_SCALE = 2.0**-11


def drop_quantization(config: Any) -> Any:
    """A vLLM override: compute in the model's dtype. vLLM itself allows fp8 checkpoints no float32."""
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    return config


# Of a float32 model whose numbers can be compared, with an engine or without.
ENGINE_ARGUMENTS: dict[str, Any] = {
    "dtype": "float32",
    "enforce_eager": True,
    "max_model_len": 512,
    "hf_overrides": drop_quantization,
}


def engine_config(checkpoint: Path) -> VllmConfig:
    """vLLM's whole configuration for a float32 model of `checkpoint`."""
    return EngineArgs(model=str(checkpoint), **ENGINE_ARGUMENTS).create_engine_config()


@contextmanager
def one_process() -> Iterator[None]:
    """vLLM's process groups, of this process alone."""
    register()
    with tempfile.TemporaryDirectory() as scratch, set_current_vllm_config(VllmConfig()):
        parallel_state.init_distributed_environment(
            world_size=1,
            rank=0,
            distributed_init_method=f"file://{scratch}/rendezvous",
            local_rank=0,
            backend="gloo",
        )
        parallel_state.ensure_model_parallel_initialized(1, 1)
        yield
        parallel_state.destroy_model_parallel()
        parallel_state.destroy_distributed_environment()


@contextmanager
def tensor_parallel(rank: int, size: int) -> Iterator[None]:
    """Build and load as this tensor-parallel rank would. To compute would take the others."""
    group: Any = SimpleNamespace(rank_in_group=rank, world_size=size, ranks=list(range(size)))
    with patch.object(parallel_state, "_TP", group):
        yield


def build(config: VllmConfig) -> nn.Module:
    """The empty model that vLLM would make."""
    config.compilation_config.static_forward_context.clear()
    with set_current_vllm_config(config), set_default_torch_dtype(torch.float32):
        return initialize_model(config)


def read(checkpoint: Path) -> dict[str, Tensor]:
    """All tensors of a checkpoint."""
    return load_file(checkpoint / WEIGHTS)


def derive(
    checkpoint: Path, directory: Path, change: Callable[[dict[str, Tensor]], dict[str, Tensor]]
) -> Path:
    """A copy of a checkpoint with changed tensors."""
    directory.mkdir()
    for file in checkpoint.iterdir():
        if file.name != WEIGHTS:
            (directory / file.name).write_bytes(file.read_bytes())
    tensors = {name: tensor.contiguous() for name, tensor in change(read(checkpoint)).items()}
    save_file(tensors, directory / WEIGHTS, metadata={"format": "pt"})
    return directory


def uniform_scales(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """All block scales the same, so that fused and split forms can hold exactly the same values."""
    return {
        name: torch.full_like(tensor, UNIFORM_SCALE) if name.endswith(SCALE) else tensor
        for name, tensor in tensors.items()
    }


def split_fused_qkv(tensors: dict[str, Tensor], config: MiMoV2Config) -> dict[str, Tensor]:
    """The fused projections of a checkpoint with uniform scales taken apart."""
    result = {}
    for name, tensor in tensors.items():
        parent, found, leaf = name.rpartition(f".{FUSED_QKV}.")
        if not found:
            result[name] = tensor
        elif leaf != SCALE:
            in_mtp = ".mtp." in parent
            layer = None if in_mtp else config.layers[int(parent.split(".")[2])]
            attention = config.sliding if layer is None else layer.attention
            groups = config.full.num_kv_heads
            rows = (
                attention.num_heads * attention.head_dim // groups,
                attention.num_kv_heads * attention.head_dim // groups,
                attention.num_kv_heads * attention.v_head_dim // groups,
            )
            grouped = tensor.view(torch.uint8).view(groups, sum(rows), -1).split(rows, dim=1)
            for part, codes in zip(SPLIT_QKV, grouped, strict=True):
                whole = codes.flatten(0, 1).contiguous().view(tensor.dtype)
                blocks = [-(-size // 128) for size in whole.shape]
                result[f"{parent}.{part}.weight"] = whole
                result[f"{parent}.{part}.{SCALE}"] = torch.full(blocks, UNIFORM_SCALE)
    return result
