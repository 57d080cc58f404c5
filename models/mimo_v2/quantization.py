"""Block-fp8 on devices without kernels for it: weights are dequantised while they are loaded."""

from torch import Tensor
from vllm.config import VllmConfig
from vllm.model_executor.layers.quantization import QuantizationConfig
from vllm.platforms import current_platform

from models.checkpoint import CheckpointError
from models.mimo_v2.fp8_qkv import dequantize_blocks
from models.mimo_v2.manifest import SCALE_SUFFIX, WEIGHT_SUFFIX, weight_of


def kernel_quantization(vllm_config: VllmConfig) -> QuantizationConfig | None:
    """The checkpoint's quantisation where the device can compute in it.

    vLLM's block-fp8 kernels for CPUs need AMX; a CPU computes in the model's dtype instead.
    """
    return None if current_platform.is_cpu() else vllm_config.quant_config


def is_fp8(tensor: Tensor) -> bool:
    """Whether a tensor holds 8-bit floating-point codes."""
    return tensor.is_floating_point() and tensor.itemsize == 1


class BlockScalePairs:
    """Pairs each fp8 weight with its block scales, in whatever order they arrive, and dequantises it."""

    def __init__(self, block: tuple[int, int]) -> None:
        self._block = block
        self._halves: dict[str, Tensor] = {}  # by the name of the half that is here

    def add(self, name: str, tensor: Tensor) -> Tensor | None:
        """Take one half; once the other is here too, return the values, float32 and of the weight's shape.

        Raises:
            CheckpointError: the weight is not fp8.
        """
        other = _other(name)
        if other not in self._halves:
            self._halves[name] = tensor
            return None
        halves = {name: tensor, other: self._halves.pop(other)}
        weight = weight_of(name)
        if not is_fp8(halves[weight]):
            raise CheckpointError(f"{weight} is {halves[weight].dtype}, but has block scales: it must be fp8")
        return dequantize_blocks(halves[weight], halves[_other(weight)], self._block)

    def pending(self) -> list[str]:
        """Names of the tensors whose other half is here and that have not arrived."""
        return [_other(name) for name in self._halves]


def _other(name: str) -> str:
    if name.endswith(SCALE_SUFFIX):
        return name.removesuffix(SCALE_SUFFIX) + WEIGHT_SUFFIX
    return name.removesuffix(WEIGHT_SUFFIX) + SCALE_SUFFIX
