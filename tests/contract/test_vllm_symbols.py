"""Every symbol of vLLM that we use, and what we rely on: a new version of vLLM fails here, by name.

Uses are found by reading `app/` and `models/`; `CONTRACTS` says of each what must hold beyond its existence.
"""

import dataclasses
import inspect
import re
import runpy
from collections.abc import MutableMapping
from typing import Any, get_type_hints

import pytest
import vllm

from models import compat
from tests.contract.language_contracts import LANGUAGE_CONTRACTS
from tests.contract.mimo_v2_contracts import MIMO_V2_CONTRACTS, loads_parts
from tests.support.contracts import (
    Contract,
    Symbol,
    accepts,
    all_of,
    annotated,
    exists,
    fields,
    method,
    parameters,
)
from tests.support.imports import ROOT, python_files
from tests.support.vllm_uses import ASYNC_LLM, OUTPUT_PROCESSOR, RUNNER, CallSite, find_uses, ledger

USES = find_uses()


# -- contracts that need more than a line ------------------------------------------------------------------


def version_is_pinned(symbol: Symbol) -> None:
    assert symbol.value.startswith(f"{compat.SUPPORTED_VLLM}."), f"it is {symbol.value}"


def takes_lazy_strings(symbol: Symbol) -> None:
    parameters("model_arch", "model_cls")(symbol)
    hint = str(inspect.signature(symbol.value).parameters["model_cls"].annotation)
    assert "str" in hint, f"model_cls is {hint}"


def is_a_mapping(symbol: Symbol) -> None:
    assert isinstance(symbol.value, MutableMapping), f"it is a {type(symbol.value).__name__}"


def is_a_registry_of_classes(symbol: Symbol) -> None:
    assert isinstance(symbol.value, dict)
    assert all(isinstance(name, str) and isinstance(cls, type) for name, cls in symbol.value.items())


def is_a_decorator_factory(symbol: Symbol) -> None:
    signature = inspect.signature(symbol.value)
    assert len(signature.parameters) == 1, f"its parameters are {list(signature.parameters)}"
    assert callable(symbol.value("voxserve-contract-test")), "it does not return a decorator"


def sampling_params(symbol: Symbol) -> None:
    made = symbol.value(
        temperature=0.0,
        max_tokens=3,
        stop_token_ids=[2],
        detokenize=False,
        output_kind=vllm.sampling_params.RequestOutputKind.FINAL_ONLY,
        extra_args={"voxcpm2": b"\x00"},
    )
    assert made.extra_args == {"voxcpm2": b"\x00"}, "extra_args do not arrive as they are"
    assert 2 in made.all_stop_token_ids, "stop_token_ids do not stop"


def engine_args(symbol: Symbol) -> None:
    found = inspect.signature(symbol.value).parameters
    # Those that `build.shared_arguments` gives; the rest is checked at the call.
    for name in (
        "max_num_seqs",
        "gpu_memory_utilization",
        "tensor_parallel_size",
        "enable_prefix_caching",
        "device_ids",
        "max_num_batched_tokens",
        "max_model_len",
        "kv_cache_memory_bytes",
        "block_size",
        "num_gpu_blocks_override",
    ):
        assert name in found, f"it has no argument {name}"


def request_output(symbol: Symbol) -> None:
    source = inspect.getsource(symbol.value.__init__)
    assert "outputs" in inspect.signature(symbol.value).parameters, "it is made without outputs"
    assert "self.outputs = outputs" in source


def finish_reason(symbol: Symbol) -> None:
    from vllm.v1.engine import FINISH_REASON_STRINGS

    annotated("str")(symbol)
    assert {"stop", "length"} <= set(FINISH_REASON_STRINGS), f"reasons are {FINISH_REASON_STRINGS}"


def sampler_output(symbol: Symbol) -> None:
    fields(sampled_token_ids="Tensor", logprobs_tensors="LogprobsTensors")(symbol)
    required = {f.name for f in dataclasses.fields(symbol.value) if f.default is dataclasses.MISSING}
    assert required == {"sampled_token_ids", "logprobs_tensors"}, f"it needs {sorted(required)}"


def has_numpy_view(symbol: Symbol) -> None:
    exists(symbol)
    parameter = inspect.signature(symbol.owner).parameters["with_numpy"]
    assert parameter.default is True, "its numpy view is no longer made by default"


def host_buffer(symbol: Symbol) -> None:
    """Filled on the host before the forward; `.np` is read by `_init_model_kwargs`."""
    from vllm.v1.utils import CpuGpuBuffer

    made = rf"self\.{symbol.leaf} = self\._make_buffer\("
    assert re.search(made, inspect.getsource(symbol.owner)), "it is not made by _make_buffer"
    buffer = inspect.signature(symbol.owner._make_buffer)
    assert buffer.return_annotation in (CpuGpuBuffer, "CpuGpuBuffer"), f"it is {buffer.return_annotation}"
    assert buffer.parameters["numpy"].default is True, "its numpy view is no longer made by default"
    filled = inspect.getsource(symbol.owner._prepare_inputs)
    assert f"self.{symbol.leaf}.np[" in filled, "_prepare_inputs does not fill it"


def discard_request_mask(symbol: Symbol) -> None:
    """True where a prefill goes on: only its complement emits a patch."""
    host_buffer(symbol)
    source = inspect.getsource(symbol.owner._bookkeeping_sync)
    assert "self.discard_request_mask.np[:num_reqs]" in source, "tokens are discarded by another mask"


def runner_method(*names: str) -> Contract:
    """A method of the runner that its CPU subclass leaves alone, so that one mixin serves both."""

    def check(symbol: Symbol) -> None:
        from vllm.v1.worker.cpu_model_runner import CPUModelRunner

        parameters(*names)(symbol)
        assert issubclass(CPUModelRunner, symbol.owner), "the CPU runner no longer extends it"
        assert symbol.leaf not in vars(CPUModelRunner), "the CPU runner has its own"

    return check


def states_come_first(symbol: Symbol) -> None:
    """Requests enter and leave, then inputs are prepared, then `_init_model_kwargs` is asked."""
    source = inspect.getsource(symbol.owner.execute_model)
    calls = [source.find(f"self.{name}(") for name in ("_update_states", "_prepare_inputs", "_preprocess")]
    assert -1 not in calls, "execute_model no longer calls it, _prepare_inputs and _preprocess"
    assert calls == sorted(calls), "execute_model has another order"


def asked_for_every_forward(symbol: Symbol) -> None:
    assert inspect.signature(symbol.value).parameters["num_reqs"].default is None
    real, dummy = (inspect.getsource(getattr(symbol.owner, name)) for name in ("_preprocess", "_dummy_run"))
    assert "model_kwargs = self._init_model_kwargs()" in real, "_preprocess does not ask it"
    assert "model_kwargs = self._init_model_kwargs(num_reqs=0)" in dummy, "_dummy_run does not ask it"


def loads_the_model(symbol: Symbol) -> None:
    from vllm.v1.worker.cpu_model_runner import CPUModelRunner

    for runner in (symbol.owner, CPUModelRunner):
        assert "self.model = " in inspect.getsource(runner.load_model), (
            f"{runner.__name__} sets no self.model"
        )


def builds_a_runner(symbol: Symbol) -> None:
    """`init_device` leaves a V1 runner at `self.model_runner`, its model not yet loaded."""
    cls = symbol.owner
    source = inspect.getsource(cls.init_device) + inspect.getsource(
        getattr(cls, "_init_workspace_and_model_runner", cls.init_device)
    )
    assert re.search(r"self\.model_runner(: \w+)? = ", source), "it builds no self.model_runner"
    assert "load_model(" not in source, "it loads the model already"
    assert "self.model_runner.load_model(" in inspect.getsource(cls.load_model)
    assert "use_v2_model_runner" in inspect.getsource(inspect.getmodule(cls)), "V1 cannot be chosen"


CONTRACTS: dict[str, Contract] = {
    # the engine, as the API process drives it
    "vllm.__version__": version_is_pinned,
    "vllm.SamplingParams": sampling_params,
    "vllm.SamplingParams.extra_args": annotated("dict"),
    "vllm.sampling_params.RequestOutputKind": exists,
    "vllm.sampling_params.RequestOutputKind.FINAL_ONLY": exists,
    "vllm.inputs.engine.tokens_input": accepts("prompt_token_ids", "cache_salt"),
    "vllm.engine.arg_utils.AsyncEngineArgs": engine_args,
    "vllm.outputs.RequestOutput": request_output,
    "vllm.outputs.RequestOutput.outputs": exists,
    "vllm.outputs.CompletionOutput.finish_reason": finish_reason,
    "vllm.outputs.CompletionOutput.token_ids": annotated("Sequence[int]"),
    ASYNC_LLM: exists,
    f"{ASYNC_LLM}.from_engine_args": parameters("engine_args"),
    f"{ASYNC_LLM}.generate": parameters("prompt", "sampling_params", "request_id"),
    f"{ASYNC_LLM}.collective_rpc": parameters("method", "timeout", "args"),
    f"{ASYNC_LLM}.reset_prefix_cache": exists,
    f"{ASYNC_LLM}.shutdown": parameters("timeout"),
    f"{ASYNC_LLM}.errored": exists,
    f"{ASYNC_LLM}.model_config": method("__init__", "self.model_config = "),
    f"{ASYNC_LLM}.output_handler": method(
        "_run_output_handler", "self.output_handler = asyncio.create_task("
    ),
    f"{ASYNC_LLM}.output_processor": method("__init__", "self.output_processor = OutputProcessor("),
    f"{OUTPUT_PROCESSOR}.propagate_error": parameters("e"),
    f"{OUTPUT_PROCESSOR}.get_num_unfinished_requests": all_of(
        parameters(), method("get_num_unfinished_requests", "return len(self.request_states)")
    ),
    "vllm.v1.engine.exceptions.EngineDeadError": exists,
    # plug-in points
    "vllm.ModelRegistry": exists,
    "vllm.ModelRegistry.models": is_a_mapping,
    "vllm.ModelRegistry.register_model": takes_lazy_strings,
    "vllm.model_executor.model_loader._LOAD_FORMAT_TO_MODEL_LOADER": is_a_registry_of_classes,
    "vllm.model_executor.model_loader.register_model_loader": is_a_decorator_factory,
    "vllm.model_executor.model_loader.base_loader.BaseModelLoader": parameters("load_config"),
    "vllm.model_executor.model_loader.base_loader.BaseModelLoader.download_model": parameters("model_config"),
    "vllm.model_executor.model_loader.base_loader.BaseModelLoader.load_weights": parameters(
        "model", "model_config"
    ),
    "vllm.transformers_utils.config._CONFIG_FORMAT_TO_CONFIG_PARSER": is_a_registry_of_classes,
    "vllm.transformers_utils.config.register_config_parser": is_a_decorator_factory,
    "vllm.transformers_utils.config_parser_base.ConfigParserBase": exists,
    "vllm.transformers_utils.config_parser_base.ConfigParserBase.parse": parameters(
        "model", "trust_remote_code", "revision", "code_revision"
    ),
    "vllm.platforms.current_platform": exists,
    "vllm.platforms.current_platform.is_cpu": exists,
    # configuration
    "vllm.config.VllmConfig": exists,
    "vllm.config.VllmConfig.additional_config": annotated("dict"),
    "vllm.config.VllmConfig.cache_config": annotated("CacheConfig"),
    "vllm.config.VllmConfig.device_config": annotated("DeviceConfig"),
    "vllm.config.VllmConfig.model_config": annotated("ModelConfig"),
    "vllm.config.VllmConfig.parallel_config": annotated("ParallelConfig"),
    "vllm.config.VllmConfig.scheduler_config": annotated("SchedulerConfig"),
    "vllm.config.DeviceConfig.device": exists,
    "vllm.config.ModelConfig": exists,
    "vllm.config.ModelConfig.dtype": annotated("dtype"),
    "vllm.config.ModelConfig.hf_config": exists,
    "vllm.config.ModelConfig.max_model_len": annotated("int"),
    "vllm.config.ModelConfig.model": annotated("str"),
    "vllm.config.ParallelConfig.pipeline_parallel_size": annotated("int"),
    "vllm.config.SchedulerConfig.max_num_seqs": annotated("int"),
    # layers
    "vllm.distributed.get_tensor_model_parallel_rank": exists,
    "vllm.distributed.get_tensor_model_parallel_world_size": exists,
    "vllm.model_executor.layers.activation.SiluAndMul": exists,
    "vllm.model_executor.layers.attention.Attention": parameters("num_heads", "head_size", "scale"),
    "vllm.model_executor.layers.linear.MergedColumnParallelLinear": all_of(
        parameters("input_size", "output_sizes"), loads_parts
    ),
    "vllm.model_executor.layers.linear.QKVParallelLinear": all_of(
        parameters("hidden_size", "head_size", "total_num_heads", "total_num_kv_heads"), loads_parts
    ),
    "vllm.model_executor.layers.linear.RowParallelLinear": parameters("input_size", "output_size"),
    "vllm.model_executor.layers.vocab_parallel_embedding.VocabParallelEmbedding": parameters(
        "num_embeddings", "embedding_dim"
    ),
    "vllm.sequence.IntermediateTensors": parameters("tensors"),
    # the worker and its runner
    "vllm.v1.outputs.SamplerOutput": sampler_output,
    "vllm.v1.core.sched.output.NewRequestData.prompt_token_ids": annotated("list[int]"),
    "vllm.v1.core.sched.output.NewRequestData.req_id": annotated("str"),
    "vllm.v1.core.sched.output.NewRequestData.sampling_params": method(
        "from_request", "sampling_params=request.sampling_params"
    ),
    "vllm.v1.core.sched.output.SchedulerOutput.finished_req_ids": annotated("set[str]"),
    "vllm.v1.core.sched.output.SchedulerOutput.scheduled_new_reqs": annotated("NewRequestData"),
    "vllm.v1.utils.CpuGpuBuffer.np": has_numpy_view,
    "vllm.v1.worker.gpu_input_batch.InputBatch.num_computed_tokens_cpu": method(
        "__init__", "self.num_computed_tokens_cpu = self.num_computed_tokens_cpu_tensor.numpy()"
    ),
    "vllm.v1.worker.gpu_input_batch.InputBatch.num_reqs": exists,
    "vllm.v1.worker.gpu_input_batch.InputBatch.req_ids": exists,
    f"{RUNNER}._update_states": all_of(runner_method("scheduler_output"), states_come_first),
    f"{RUNNER}._init_model_kwargs": all_of(runner_method("num_reqs"), asked_for_every_forward),
    f"{RUNNER}._dummy_run": runner_method("num_tokens"),
    f"{RUNNER}._sample": all_of(
        runner_method("logits", "spec_decode_metadata"), method("sample_tokens", "self._sample(")
    ),
    f"{RUNNER}.load_model": loads_the_model,
    f"{RUNNER}.model": exists,
    f"{RUNNER}.input_batch": method("__init__", "self.input_batch = InputBatch("),
    f"{RUNNER}.query_start_loc": host_buffer,
    f"{RUNNER}.discard_request_mask": discard_request_mask,
    f"{RUNNER}.vllm_config": method("__init__", "self.vllm_config = vllm_config"),
    f"{RUNNER}.device": method("__init__", "self.device = device"),
    "vllm.v1.worker.cpu_worker.CPUWorker": exists,
    "vllm.v1.worker.cpu_worker.CPUWorker.init_device": builds_a_runner,
    "vllm.v1.worker.cpu_worker.CPUWorker.model_runner": exists,
    "vllm.v1.worker.gpu_worker.Worker": exists,
    "vllm.v1.worker.gpu_worker.Worker.init_device": builds_a_runner,
    "vllm.v1.worker.gpu_worker.Worker.model_runner": exists,
    **LANGUAGE_CONTRACTS,
    **MIMO_V2_CONTRACTS,
}


def explain(name: str, reason: object) -> str:
    places = ", ".join(sorted(USES.places[name])) or "nothing found by reading the source"
    return f"vLLM {vllm.__version__}: {name}, used in {places}: {reason}"


@pytest.mark.parametrize("name", CONTRACTS)
def test_symbol(name: str) -> None:
    try:
        CONTRACTS[name](Symbol(name))
    except (AssertionError, AttributeError, ImportError, KeyError, TypeError, ValueError) as error:
        pytest.fail(explain(name, error), pytrace=False)


def is_typed_dict(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, dict)


CALLS = [(name, call) for name, calls in sorted(USES.calls.items()) for call in calls]


@pytest.mark.parametrize(("name", "call"), CALLS, ids=[f"{name}@{call.where}" for name, call in CALLS])
def test_call(name: str, call: CallSite) -> None:
    """Each call of vLLM, as it stands in our source, fits the signature."""
    symbol = Symbol(name)
    if is_typed_dict(symbol.value):
        assert set(call.keywords) <= set(get_type_hints(symbol.value)), explain(name, call)
        return
    unbound = isinstance(symbol.owner, type) and inspect.isfunction(
        inspect.getattr_static(symbol.owner, symbol.leaf)
    )
    arguments = [None] * (call.positional + unbound)
    signature = inspect.signature(symbol.value)
    bind = signature.bind_partial if call.unpacks else signature.bind
    try:
        bind(*arguments, **dict.fromkeys(call.keywords))
    except TypeError as error:
        pytest.fail(explain(name, f"the call at {call.where} does not fit: {error}"), pytrace=False)


def test_no_use_is_without_a_contract() -> None:
    assert set(CONTRACTS) == set(USES.places), "add to CONTRACTS what is new, and take out what is gone"


def test_the_ledger_names_what_is_used() -> None:
    entries = ledger()
    assert len(entries) > 10
    unused = {entry for entry in entries if not any(name.endswith(f".{entry}") for name in USES.places)}
    assert not unused, "entries of the ledger in models/compat.py that nothing uses"


def test_the_ledger_is_complete() -> None:
    """What starts with an underscore, or is of a private runner or worker, has an entry."""
    entries = ledger()
    workers = {"vllm.v1.worker.cpu_worker.CPUWorker", "vllm.v1.worker.gpu_worker.Worker"}
    private = {name for name in USES.places if name in workers or name.startswith(f"{RUNNER}._")}
    missing = {name for name in private if not any(name.endswith(f".{entry}") for entry in entries)}
    assert len(private) > len(workers)
    assert not missing, "add these to the ledger in models/compat.py"


def test_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm, "__version__", "0.33.0")
    with pytest.raises(
        ImportError, match=r"pinned to vLLM 0\.32, but 0\.33\.0 is installed: run `make setup`"
    ):
        runpy.run_path(str(ROOT / "models/compat.py"))


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_lock_files_have_the_supported_version(device: str) -> None:
    lock = (ROOT / "requirements" / f"{device}.lock").read_text(encoding="utf-8")
    versions = re.findall(r"^vllm(?:-cpu)?==([\d.]+)", lock, re.M)
    assert len(versions) == 1
    assert versions[0].startswith(f"{compat.SUPPORTED_VLLM}.")


def test_environment_variables() -> None:
    """vLLM knows each of its variables that our source names; one of another name would do nothing."""
    from vllm.envs import environment_variables

    named = {
        name
        for path in python_files("models") + python_files("app")
        for name in re.findall(r"\"(VLLM_[A-Z0-9_]+)\"", path.read_text(encoding="utf-8"))
    }
    assert len(named) > 3
    assert named <= set(environment_variables), "vLLM does not read these"
