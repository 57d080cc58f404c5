"""The only door to vLLM symbols outside its public surface.

Everything here was read from one version of vLLM and is pinned to it: importing this module under another one
is an error, and `tests/contract/` asserts each symbol and signature, so that a bump fails there, by name.

Ledger (symbol; why we need it; remove when):

* `CPUWorker`, `Worker`; a plug-in brings its runner by its worker; when vLLM takes a runner class.
* `GPUModelRunner._update_states`; requests enter and leave; when the V2 runner's `ModelState` reaches CPU.
* `GPUModelRunner._init_model_kwargs`; extra inputs of a forward, dummy runs included; likewise.
* `GPUModelRunner._dummy_run`; says how many positions a dummy forward has; likewise.
* `GPUModelRunner._sample`; our tokens come from the patch, not from logits; likewise.
* `GPUModelRunner.input_batch`, `query_start_loc`, `discard_request_mask`; what a step computes; likewise.
* `SamplerOutput`; the answer of `_sample`; likewise.
* `BaseModelLoader`, `register_model_loader`; two weight files in one directory; when vLLM loads such layouts.
* `AsyncLLM.output_handler`, `output_processor`; to end requests before a shutdown, and to count them; when
  vLLM's own shutdown does.
* `register_config_parser`; a `config.json` without `model_type`; when the release has one.
* `AttentionBackendEnum.FLASH_ATTN_DIFFKV`, `TRITON_ATTN_DIFFKV`, of the classes of both
  `FlashAttentionDiffKVBackend.set_head_size_v`, of the first alone `is_supported_on_current_device`; values
  narrower than keys; when `Attention` chooses by `head_size_v`.
* `MoERunner.routed_experts`, `RoutedExperts.expert_map`, `weight_loader`, which can return whether it loaded;
  which experts a rank has; when the mapping of experts says so. Used by `mimo_v2`, as are the next two.
* `FusedMoEFactory`, `GateLinear`, `fused_moe_make_expert_params_mapping`; fused experts; when settled.
* `CacheConfig.sliding_window`, set to None; full layers beside sliding ones; when vLLM reads hub fields.
* `ModelRegistry.models`, `_LazyRegisteredModel.module_name`, `class_name`; to replace a class quietly; when
  the registry can.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import vllm
from vllm import ModelRegistry
from vllm.platforms import current_platform
from vllm.v1.outputs import SamplerOutput

if TYPE_CHECKING:
    import torch
    from vllm.config import ModelConfig

    from models.runtime.runner import SpeechRunner

SUPPORTED_VLLM = "0.32"

if not vllm.__version__.startswith(f"{SUPPORTED_VLLM}."):
    raise ImportError(
        f"voxserve is pinned to vLLM {SUPPORTED_VLLM}, but {vllm.__version__} is installed: run `make setup`"
    )


def register_architecture(architecture: str, path: str) -> None:
    """Make vLLM resolve `architecture` to the class at `package:Class`. Idempotent."""
    if architecture not in ModelRegistry.models:
        ModelRegistry.register_model(architecture, path)


def replace_architecture(architecture: str, path: str) -> None:
    """Make vLLM resolve an architecture that it knows itself to the class at `package:Class`. Idempotent."""
    module, _, name = path.partition(":")
    current = ModelRegistry.models.get(architecture)
    if (getattr(current, "module_name", None), getattr(current, "class_name", None)) != (module, name):
        ModelRegistry.models.pop(architecture, None)  # else vLLM warns of what is meant
        ModelRegistry.register_model(architecture, path)


def register_mimo_v2_config() -> None:
    """Let a Pro checkpoint's `config.json` be read without running the code that it brings. Idempotent."""
    from transformers import AutoConfig  # noqa: PLC0415 (heavy; only when vLLM starts)

    from models.mimo_v2.hf_config import MiMoV2HFConfig  # noqa: PLC0415

    AutoConfig.register(MiMoV2HFConfig.model_type, MiMoV2HFConfig, exist_ok=True)


def diffkv_backend(vllm_config: Any, head_size: int, v_head_size: int, has_sinks: bool) -> type[Any] | None:
    """The device's attention backend for values narrower than keys; None: it has none, or sizes are equal.

    A user's `attention_config.backend` is followed if it is such a backend. The size of V is a setting of the
    whole backend class: all layers of a process that use one must agree on it.
    """
    from vllm.platforms import current_platform  # noqa: PLC0415 (heavy; only when a model is built)
    from vllm.v1.attention.backends.registry import AttentionBackendEnum  # noqa: PLC0415

    if v_head_size == head_size or not current_platform.is_cuda_alike():
        return None
    requested = vllm_config.attention_config.backend
    chosen = AttentionBackendEnum.FLASH_ATTN_DIFFKV
    if requested is not None and requested.name.endswith("_DIFFKV"):
        chosen = requested
    elif not chosen.get_class().is_supported_on_current_device(
        head_size=head_size, head_size_v=v_head_size, has_sinks=has_sinks
    ):
        chosen = AttentionBackendEnum.TRITON_ATTN_DIFFKV
    backend: type[Any] = chosen.get_class()
    backend.set_head_size_v(v_head_size)
    return backend


def register_voxcpm2_format(name: str) -> None:
    """Register VoxCPM2's config parser and weight loader under `name`. Idempotent."""
    from vllm.model_executor import model_loader  # noqa: PLC0415 (heavy; only when vLLM starts)
    from vllm.transformers_utils import config as config_parsers  # noqa: PLC0415

    from models.voxcpm2.hf_config import VoxCPM2ConfigParser  # noqa: PLC0415

    if name not in config_parsers._CONFIG_FORMAT_TO_CONFIG_PARSER:
        config_parsers.register_config_parser(name)(VoxCPM2ConfigParser)
    if name not in model_loader._LOAD_FORMAT_TO_MODEL_LOADER:
        model_loader.register_model_loader(name)(_checkpoint_loader())


def _checkpoint_loader() -> type[Any]:
    from vllm.model_executor.model_loader.base_loader import BaseModelLoader  # noqa: PLC0415

    class CheckpointLoader(BaseModelLoader):  # type: ignore[misc]
        """Loads a local VoxCPM2 checkpoint directory, checked tensor by tensor."""

        def download_model(self, model_config: "ModelConfig") -> None:
            """Nothing to do: `checkpoint.resolve` has made the directory."""

        def load_weights(self, model: Any, model_config: "ModelConfig") -> None:
            """Fill `model` from the directory `model_config.model`."""
            from models.voxcpm2.weights import read_checkpoint  # noqa: PLC0415 (imports torch)

            model.load_weights(read_checkpoint(Path(model_config.model)).items())

    return CheckpointLoader


def stop_outputs(llm: Any, reason: Exception) -> None:
    """End all running requests of an `AsyncLLM` with `reason`, and the task that reads its engine.

    To that task a wanted shutdown would be a failure to log; cancelled, it tells its requests nothing.
    """
    llm.output_processor.propagate_error(reason)
    if llm.output_handler is not None:
        llm.output_handler.cancel()


def count_requests(llm: Any) -> int:
    """Requests, running and waiting, that an `AsyncLLM` has not answered yet; each of `n` choices is one."""
    return int(llm.output_processor.get_num_unfinished_requests())


class SpeechRunnerMixin:
    """Turns vLLM's V1 model runner, of CPU or CUDA, into one that drives a `SpeechRunner`."""

    speech: "SpeechRunner"
    _dummy_tokens: int = 0

    # What the runner beneath provides.
    model: Any
    input_batch: Any
    query_start_loc: Any
    discard_request_mask: Any
    vllm_config: Any
    device: "torch.device"

    def load_model(self, *args: Any, **kwargs: Any) -> None:
        """Load the model, then allocate its slots."""
        from models.runtime.runner import SpeechRunner  # noqa: PLC0415 (imports the model)

        super().load_model(*args, **kwargs)  # type: ignore[misc]
        self.speech = SpeechRunner(self.model, self.vllm_config, self.device)

    def _update_states(self, scheduler_output: Any) -> Any:
        self.speech.update(
            finished=scheduler_output.finished_req_ids,
            new=[
                (new.req_id, len(new.prompt_token_ids), new.sampling_params.extra_args)
                for new in scheduler_output.scheduled_new_reqs
            ],
        )
        return super()._update_states(scheduler_output)  # type: ignore[misc]

    def _dummy_run(self, num_tokens: int, *args: Any, **kwargs: Any) -> Any:
        self._dummy_tokens = num_tokens
        try:
            return super()._dummy_run(num_tokens, *args, **kwargs)  # type: ignore[misc]
        finally:
            self._dummy_tokens = 0

    def _init_model_kwargs(self, num_reqs: int | None = None) -> dict[str, Any]:
        if self._dummy_tokens:
            return self.speech.prepare_dummy(self._dummy_tokens)
        count = self.input_batch.num_reqs if num_reqs is None else num_reqs
        bounds = self.query_start_loc.np[: count + 1]
        return self.speech.prepare(
            request_ids=self.input_batch.req_ids[:count],
            starts=self.input_batch.num_computed_tokens_cpu[:count],
            lengths=bounds[1:] - bounds[:-1],
            emits=~self.discard_request_mask.np[:count],
        )

    def _sample(self, logits: Any, spec_decode_metadata: Any) -> SamplerOutput:
        del logits, spec_decode_metadata
        token_ids = self.speech.emit(self.input_batch.num_reqs)
        return SamplerOutput(sampled_token_ids=token_ids.unsqueeze(-1), logprobs_tensors=None)


def device_worker() -> Any:
    """The stock worker class of the device that vLLM runs on."""
    if current_platform.is_cpu():
        from vllm.v1.worker.cpu_worker import CPUWorker  # noqa: PLC0415 (binds memory when imported)

        return CPUWorker
    from vllm.v1.worker.gpu_worker import Worker  # noqa: PLC0415 (needs CUDA)

    return Worker


def adopt_runner(runner: Any) -> None:
    """Give a runner that vLLM has built the behaviour of `SpeechRunnerMixin`, before it loads a model."""
    base = type(runner)
    runner.__class__ = type(f"Speech{base.__name__}", (SpeechRunnerMixin, base), {})
