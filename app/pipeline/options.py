"""How engines are laid out. Free of torch and vLLM."""

from dataclasses import dataclass


@dataclass(frozen=True)
class EngineOptions:
    """What every engine is made with; `None` leaves the choice to vLLM.

    Attributes:
        dtype: "auto" is the checkpoint's own: vLLM's "auto" would round a float32 checkpoint to bfloat16.
        devices: indices of GPUs; ignored on a CPU.
        cores: numbers of CPU cores; ignored on a GPU.
    """

    max_num_seqs: int = 16
    max_num_batched_tokens: int | None = None
    max_model_len: int | None = None
    kv_cache_bytes: int | None = None
    gpu_memory_utilization: float = 0.9
    tensor_parallel_size: int = 1
    block_size: int | None = None
    num_kv_blocks: int | None = None
    dtype: str = "auto"
    prefix_caching: bool = True
    devices: tuple[int, ...] | None = None
    cores: tuple[int, ...] | None = None


@dataclass(frozen=True)
class LanguageOptions(EngineOptions):
    """And the language engine.

    Attributes:
        draft_tokens: tokens a step that the checkpoint's next-token layer proposes; 0: none.
        expert_parallel: whether the devices share out whole experts, instead of parts of each.
        own_classes: whether the model is ours, or vLLM's own.
    """

    pipeline_parallel_size: int = 1
    expert_parallel: bool = False
    draft_tokens: int = 0
    own_classes: bool = True
