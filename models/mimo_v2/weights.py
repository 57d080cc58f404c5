"""Loading a MiMoV2 checkpoint into one rank's parameters, and proving that nothing was lost on the way.

A parameter has slots, each filled by one tensor of the checkpoint: a fused `gate_up_proj` has two, the
experts' weights have some for each expert of this rank. Invariant: a tensor fills slots here, belongs to
another rank, or is an error that names it; when the checkpoint has been read, a slot that was not filled is
an error that names its tensor.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from vllm.distributed import get_tensor_model_parallel_rank, get_tensor_model_parallel_world_size
from vllm.model_executor.model_loader.weight_utils import default_weight_loader

from models.checkpoint import CheckpointError
from models.mimo_v2.attention import MiMoV2Attention
from models.mimo_v2.config import MiMoV2Config
from models.mimo_v2.fp8_qkv import Fp8QkvLoader, QkvLayout, dequantize_blocks, rank_rows
from models.mimo_v2.fp8_split_qkv import Fp8SplitQkvLoader
from models.mimo_v2.manifest import (
    FUSED_QKV,
    SCALE_SUFFIX,
    SPLIT_QKV,
    Shape,
    scale_shape,
    split_names,
    weight_of,
)
from models.mimo_v2.quantization import BlockScalePairs, is_fp8

# vLLM's mapping of one expert's projection: (parameter prefix, checkpoint prefix, physical expert, shard).
ExpertMapping = tuple[str, str, int, str]

# Fused parameters: the projections that fill them -> vLLM's name of the part.
FUSED_PROJECTIONS: dict[str, dict[str, str | int]] = {
    FUSED_QKV: dict(zip(SPLIT_QKV, ("q", "k", "v"), strict=True)),
    "gate_up_proj": {"gate_proj": 0, "up_proj": 1},
}
DENSE_PARTS = tuple(FUSED_PROJECTIONS["gate_up_proj"].values())
# Scales of a quantised KV cache: vLLM has defaults, and a checkpoint need not have them.
OPTIONAL_PARAMETERS = (".attn.q_scale", ".attn.k_scale", ".attn.v_scale", ".attn.prob_scale")
MAX_LISTED_NAMES = 20  # a wrong checkpoint lacks thousands; the first of them say why


@dataclass(frozen=True)
class Slot:
    """Where a tensor goes: a parameter, or a part of it."""

    parameter: str
    shard: str | int | None = None
    expert: int | None = None  # physical


def checkpoint_slots(parameters: Iterable[str], experts: Iterable[ExpertMapping]) -> dict[str, list[Slot]]:
    """The slots that each tensor of a checkpoint fills, by its name. Redundant experts give it several."""
    by_parameter: dict[str, list[ExpertMapping]] = defaultdict(list)
    for entry in experts:
        by_parameter[entry[0]].append(entry)
    slots: dict[str, list[Slot]] = defaultdict(list)
    for parameter in parameters:
        for name, slot in _sources(parameter, by_parameter):
            slots[name].append(slot)
    return dict(slots)


def _sources(parameter: str, experts: Mapping[str, list[ExpertMapping]]) -> Iterator[tuple[str, Slot]]:
    for prefix, entries in experts.items():
        head, found, leaf = parameter.partition(prefix)
        if found:
            for _, projection, expert, shard in entries:
                yield f"{head}{projection}{leaf}", Slot(parameter, shard, expert)
            return
    for fused, projections in FUSED_PROJECTIONS.items():
        head, found, leaf = parameter.rpartition(f".{fused}.")
        if found:
            for projection, part in projections.items():
                yield f"{head}.{projection}.{leaf}", Slot(parameter, part)
            return
    yield parameter, Slot(parameter)


def require_whole_blocks(name: str, rows: int, block: int) -> None:
    """Raise `CheckpointError` unless a rank's rows of a dense fp8 projection are whole blocks.

    vLLM's layer takes whole rows of scales, so that a part of a block would get its neighbour's, unnoticed.
    """
    if rows % block:
        raise CheckpointError(
            f"{name}: {rows} rows a rank are no whole fp8 blocks of {block}: use a smaller tensor-parallel "
            f"size, or a checkpoint whose sizes are multiples of {block}"
        )


class WeightLoader:
    """Fills the parameters of `module`. It lives as long as the loading does, over any number of calls."""

    def __init__(
        self,
        module: nn.Module,
        config: MiMoV2Config,
        shapes: Mapping[str, Shape],
        *,
        prefix: str = "",
        experts: Iterable[ExpertMapping] = (),
        is_elsewhere: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """Prepare to load.

        Args:
            module: to be filled.
            config: of the model.
            shapes: of all tensors that the checkpoint may have for `module`, on any rank, by name.
            prefix: of the names in the whole checkpoint, for errors.
            experts: the mapping of this rank's experts.
            is_elsewhere: whether a tensor belongs to another rank alone.
        """
        self._module = module
        self._config = config
        self._shapes = shapes
        self._prefix = prefix
        self._is_elsewhere = is_elsewhere
        self._parameters = dict(module.named_parameters())
        self._slots = checkpoint_slots(self._parameters, experts)
        self._received: set[str] = set()
        self._pairs = BlockScalePairs(config.fp8_block)
        self._tp_rank = get_tensor_model_parallel_rank()
        self._tp_size = get_tensor_model_parallel_world_size()
        self._fused_qkv = Fp8QkvLoader(self._tp_rank, self._tp_size, config.fp8_block)
        self._split_qkv = Fp8SplitQkvLoader(self._tp_rank, self._tp_size, config.fp8_block)

    def load(self, name: str, tensor: Tensor) -> set[str]:
        """Put one tensor where it belongs.

        Returns:
            Names of the parameters that got data; none while an fp8 tensor waits for others.

        Raises:
            CheckpointError: the tensor is unexpected, came twice, or has a wrong shape; it is named.
        """
        if split_names(name):
            return self._load_fused_qkv(name, tensor)
        self._check(name, tensor)
        self._received.add(name)
        if self._is_elsewhere(name):
            return set()
        if self._is_folded(name, tensor):
            values = self._pairs.add(name, tensor)
            if values is None:
                return set()
            name, tensor = weight_of(name), values
        if name not in self._slots:
            raise CheckpointError(f"{self._prefix}{name} has no place: the layer is not quantised")
        if self._is_split_fp8_qkv(name):
            return self._load_split_fp8_qkv(name, tensor)
        if name.endswith(SCALE_SUFFIX) and self._slots[name][0].shard in DENSE_PARTS:
            rows = self._shapes[weight_of(name)][0] // self._tp_size
            require_whole_blocks(self._prefix + name, rows, self._config.fp8_block[0])
        return {self._fill(slot, name, tensor) for slot in self._slots[name]}

    def try_load_fp8_qkv(self, name: str, tensor: Tensor) -> set[str] | None:
        """Take a half of a fused fp8 `qkv_proj`, and fill the projection once both are here.

        Returns:
            Names of the parameters that got data, or None: the tensor is none of these.

        Raises:
            CheckpointError: the tensor is unexpected, came twice, or has a wrong shape; it is named.
        """
        if not Fp8QkvLoader.accepts(name, tensor):
            return None
        self._receive_fused(name)
        if self._is_elsewhere(name):
            return set()
        try:
            shards = self._fused_qkv.add(name, tensor, self._fused_layout_of(name))
        except ValueError as error:
            raise CheckpointError(f"{self._prefix}{error}") from error
        return self._fill_fp8_qkv(shards) if shards else set()

    def require_complete(self) -> None:
        """Call when the checkpoint has been read.

        Raises:
            CheckpointError: a slot was not filled; each missing tensor is named.
        """
        halves = self._fused_qkv.pending()
        arrived = self._received.union(*map(split_names, halves))
        missing = {
            name
            for name, slots in self._slots.items()
            if name not in arrived and not slots[0].parameter.endswith(OPTIONAL_PARAMETERS)
        }
        missing.update(halves, self._pairs.pending())
        if missing:
            names = [self._prefix + name for name in sorted(missing)]
            more = f" and {len(names) - MAX_LISTED_NAMES} more" if len(names) > MAX_LISTED_NAMES else ""
            raise CheckpointError(
                f"the checkpoint has no {', '.join(names[:MAX_LISTED_NAMES])}{more}: download it again"
            )

    def _check(self, name: str, tensor: Tensor) -> None:
        expected = self._shapes.get(weight_of(name))
        if expected is None and name not in self._parameters:
            raise CheckpointError(f"{self._prefix}{name} is not part of this model")
        if name in self._received:
            raise CheckpointError(f"{self._prefix}{name} is in the checkpoint twice")
        if expected is not None and name.endswith(SCALE_SUFFIX):
            expected = scale_shape(expected, self._config.fp8_block)
        if expected is not None:
            self._require_shape(name, tensor, expected)

    def _require_shape(self, name: str, tensor: Tensor, expected: Shape) -> None:
        if tensor.shape != expected:
            shape, wanted = list(tensor.shape), list(expected)
            raise CheckpointError(f"{self._prefix}{name} has shape {shape}, the configuration says {wanted}")

    def _is_folded(self, name: str, tensor: Tensor) -> bool:
        """Whether a tensor is half of an fp8 weight whose parameter holds plain values."""
        slots = self._slots.get(weight_of(name))
        if not slots or is_fp8(self._parameters[slots[0].parameter]):
            return False
        return is_fp8(tensor) or name.endswith(SCALE_SUFFIX)

    def _is_split_fp8_qkv(self, name: str) -> bool:
        """Whether a tensor is one of the six that fill a block-fp8 projection of this rank."""
        slot = self._slots[name][0]
        parent, fused, leaf = slot.parameter.rpartition(f"{FUSED_QKV}.")
        if not fused or slot.shard is None or leaf == "bias":
            return False
        return f"{parent}{FUSED_QKV}{SCALE_SUFFIX}" in self._parameters

    def _load_split_fp8_qkv(self, name: str, tensor: Tensor) -> set[str]:
        try:
            shards = self._split_qkv.add(name, tensor, self._layout(name, groups=1))
        except ValueError as error:
            raise CheckpointError(f"{self._prefix}{error}") from error
        return self._fill_fp8_qkv(shards) if shards else set()

    def _fill(self, slot: Slot, name: str, tensor: Tensor) -> str:
        parameter: Any = self._parameters[slot.parameter]
        load: Any = getattr(parameter, "weight_loader", default_weight_loader)  # set by vLLM's layers
        if slot.expert is not None:
            is_here = load(
                parameter,
                tensor,
                slot.parameter,
                shard_id=slot.shard,
                expert_id=slot.expert,
                return_success=True,
            )
            assert is_here, f"{name} was given to a rank without expert {slot.expert}"
        elif slot.shard is not None:
            load(parameter, tensor, slot.shard)
        else:
            load(parameter, tensor)
        return slot.parameter

    def _receive_fused(self, name: str) -> None:
        parts = split_names(name)
        if not all(weight_of(part) in self._shapes for part in parts):
            raise CheckpointError(f"{self._prefix}{name} is not part of this model")
        if name in self._received or not self._received.isdisjoint(parts):
            raise CheckpointError(f"{self._prefix}{name} is in the checkpoint twice")
        self._received |= {name, *parts}

    def _load_fused_qkv(self, name: str, tensor: Tensor) -> set[str]:
        """A fused `qkv_proj` that is not fp8, or its bias: rows in the same groups, nothing to scale."""
        self._receive_fused(name)
        if self._is_elsewhere(name):
            return set()
        layout = self._fused_layout_of(name)
        self._require_shape(name, tensor, (layout.rows, *self._shapes[split_names(name)[0]][1:]))
        rows = rank_rows(layout, self._tp_rank, self._tp_size)
        default_weight_loader(self._parameters[name], tensor[rows])
        return {name}

    def _fill_fp8_qkv(self, shards: Mapping[str, Tensor]) -> set[str]:
        weight = next(name for name in shards if not name.endswith(SCALE_SUFFIX))
        if is_fp8(self._parameters[weight]):
            for name, shard in shards.items():
                default_weight_loader(self._parameters[name], shard)
            return set(shards)
        (scale,) = set(shards) - {weight}
        values = dequantize_blocks(shards[weight], shards[scale], self._config.fp8_block)
        default_weight_loader(self._parameters[weight], values)
        return {weight}

    def _fused_layout_of(self, name: str) -> QkvLayout:
        """Of a fused projection. All have as many groups as full layers have KV heads."""
        return self._layout(name, self._config.full.num_kv_heads)

    def _layout(self, name: str, groups: int) -> QkvLayout:
        """Of the attention of a tensor."""
        module = self._module.get_submodule(name.rsplit(".", 2)[0])
        assert isinstance(module, MiMoV2Attention)
        attention = module.config
        return QkvLayout(
            attention.num_heads, attention.num_kv_heads, attention.head_dim, attention.v_head_dim, groups
        )
