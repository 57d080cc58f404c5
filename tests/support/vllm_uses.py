"""Every use of vLLM in our source, found by reading it: imports, attributes, overridden methods, calls.

Names alone do not say what they hold, so `RECEIVERS` says it for those that hold objects of vLLM.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from tests.support.imports import ROOT, import_statements, is_module, parse, python_files

RUNNER = "vllm.v1.worker.gpu_model_runner.GPUModelRunner"
ASYNC_LLM = "vllm.v1.engine.async_llm.AsyncLLM"
BUFFER = "vllm.v1.utils.CpuGpuBuffer"
BACKEND = "vllm.v1.attention.backends.registry.AttentionBackendEnum"
DIFFKV_BACKEND = "vllm.v1.attention.backends.flash_attn_diffkv.FlashAttentionDiffKVBackend"
GROUP = "vllm.distributed.parallel_state.GroupCoordinator"
LM_HEAD = "vllm.model_executor.layers.vocab_parallel_embedding.ParallelLMHead"
MOE_RUNNER = "vllm.model_executor.layers.fused_moe.runner.moe_runner.MoERunner"
ROUTED_EXPERTS = "vllm.model_executor.layers.fused_moe.routed_experts.RoutedExperts"
REGISTERED = "vllm.model_executor.models.registry._LazyRegisteredModel"
SUPPORTS_PP = "vllm.model_executor.models.interfaces.SupportsPP"
MIXTURE = "vllm.model_executor.models.interfaces.MixtureOfExperts"
OUTPUT_PROCESSOR = "vllm.v1.engine.output_processor.OutputProcessor"
OPENAI = "vllm.entrypoints.openai"
CHATS = f"{OPENAI}.chat_completion.serving.OpenAIServingChat"
COMPLETIONS = f"{OPENAI}.completion.serving.OpenAIServingCompletion"
RESPONSES = f"{OPENAI}.responses.serving.OpenAIServingResponses"
TOKENIZATION = "vllm.entrypoints.serve.tokenize.serving.ServingTokenization"
ERROR_RESPONSE = "vllm.entrypoints.serve.engine.protocol.ErrorResponse"
ERROR_INFO = "vllm.entrypoints.serve.engine.protocol.ErrorInfo"
VALIDATION_ERROR = "vllm.exceptions.VLLMValidationError"
TEXT_GENERATION = "vllm.model_executor.models.interfaces_base.VllmModelForTextGeneration"

CONFIGS = {
    "vllm_config": "vllm.config.VllmConfig",
    "model_config": "vllm.config.ModelConfig",
    "parallel_config": "vllm.config.ParallelConfig",
    "scheduler_config": "vllm.config.SchedulerConfig",
    "device_config": "vllm.config.DeviceConfig",
    "cache_config": "vllm.config.CacheConfig",
    "attention_config": "vllm.config.AttentionConfig",
    "eplb_config": "vllm.config.parallel.EPLBConfig",
}
# File -> name of a variable, attribute or function -> class of what it holds or returns.
RECEIVERS: dict[str, dict[str, str]] = {
    "models/compat.py": {
        **CONFIGS,
        "llm": ASYNC_LLM,
        "output_processor": OUTPUT_PROCESSOR,
        "chosen": BACKEND,
        "get_class": DIFFKV_BACKEND,
        "backend": DIFFKV_BACKEND,
        "scheduler_output": "vllm.v1.core.sched.output.SchedulerOutput",
        "new": "vllm.v1.core.sched.output.NewRequestData",
        "sampling_params": "vllm.SamplingParams",
        "input_batch": "vllm.v1.worker.gpu_input_batch.InputBatch",
        "query_start_loc": BUFFER,
        "discard_request_mask": BUFFER,
    },
    "models/mimo_v2/attention.py": CONFIGS,
    "models/mimo_v2/causal_lm.py": {"experts": MOE_RUNNER, "get_pp_group": GROUP},
    "models/mimo_v2/model.py": {**CONFIGS, "get_pp_group": GROUP, "stage": GROUP},
    "models/mimo_v2/moe.py": {
        **CONFIGS,
        "parallel": CONFIGS["parallel_config"],
        "get_ep_group": GROUP,
        "experts": MOE_RUNNER,
        "routed_experts": ROUTED_EXPERTS,
    },
    "models/mimo_v2/mtp.py": {**CONFIGS, "lm_head": LM_HEAD},
    "models/mimo_v2/quantization.py": CONFIGS,
    "models/runtime/runner.py": CONFIGS,
    "models/voxcpm2/minicpm4_paged.py": CONFIGS,
    "models/voxcpm2/scaffold.py": CONFIGS,
    "app/language/engine.py": {
        "llm": ASYNC_LLM,
        "_llm": ASYNC_LLM,
        "model_config": CONFIGS["model_config"],
        "openai_serving_chat": CHATS,
        "openai_serving_completion": COMPLETIONS,
        "openai_serving_responses": RESPONSES,
        "serving_tokenization": TOKENIZATION,
    },
    "app/language/errors.py": {"response": ERROR_RESPONSE, "error": ERROR_INFO, "raised": VALIDATION_ERROR},
    "app/pipeline/engine.py": {
        "llm": ASYNC_LLM,
        "_llm": ASYNC_LLM,
        "_live": ASYNC_LLM,
        "model_config": CONFIGS["model_config"],
        "last": "vllm.outputs.RequestOutput",
        "outputs": "vllm.outputs.CompletionOutput",
    },
}
# Attributes that our source asks for by `getattr` -> the class that has or gives them.
ASKED_FOR = {"module_name": REGISTERED, "class_name": REGISTERED, "weight_loader": ROUTED_EXPERTS}
# Models -> the interfaces of vLLM that they implement, and what of these; the rest is their own.
INTERFACES: dict[str, dict[str, set[str]]] = {
    "MiMoV2ForCausalLM": {
        TEXT_GENERATION: {"embed_input_ids", "forward", "compute_logits"},
        SUPPORTS_PP: {"forward", "make_empty_intermediate_tensors"},
        MIXTURE: {
            "expert_weights",
            "moe_layers",
            "num_moe_layers",
            "num_expert_groups",
            "num_shared_experts",
            "num_logical_experts",
            "num_routed_experts",
            "num_redundant_experts",
            "num_physical_experts",
            "num_local_physical_experts",
            "update_physical_experts_metadata",
        },
    },
}
# Mixins, whose bases are vLLM's only at run time.
MIXINS = {
    "SpeechRunnerMixin": (RUNNER,),
    "SpeechWorkerMixin": ("vllm.v1.worker.cpu_worker.CPUWorker", "vllm.v1.worker.gpu_worker.Worker"),
}
OWN = {"speech", "_dummy_tokens", "encode_audio", "speech_stats"}  # what our mixins add


@dataclass(frozen=True)
class CallSite:
    """A call: how many positional arguments, which keywords, and whether `*` or `**` add unknown ones."""

    where: str
    positional: int
    keywords: tuple[str, ...]
    unpacks: bool


@dataclass
class VllmUses:
    """Dotted symbol -> where it is used, and how it is called there."""

    places: dict[str, set[str]]
    calls: dict[str, list[CallSite]]


def find_uses() -> VllmUses:
    """All of `app/` and `models/`."""
    uses = VllmUses(defaultdict(set), defaultdict(list))
    for path in python_files("models") + python_files("app"):
        _File(path.relative_to(ROOT).as_posix(), parse(path), uses).read()
    return uses


def ledger() -> set[str]:
    """Symbols of the ledger in `models/compat.py`; `A.b`, `c` means A.b and A.c."""
    names = set()
    text = ast.get_docstring(parse(ROOT / "models/compat.py")) or ""
    for symbols in re.findall(r"^\* (.*?);", text, re.M | re.S):
        owner = ""
        for name in re.findall(r"`([\w.]+)`", symbols):
            owner = name.rpartition(".")[0] or owner
            names.add(name if "." in name or not owner else f"{owner}.{name}")
    return names


def _asked_for(node: ast.AST) -> str | None:
    """What `getattr` with a literal name asks for."""
    match node:
        case ast.Call(func=ast.Name("getattr"), args=[_, ast.Constant(str(name)), *_]):
            return f"{ASKED_FOR[name]}.{name}" if name in ASKED_FOR else None
    return None


class _File:
    def __init__(self, name: str, tree: ast.Module, uses: VllmUses) -> None:
        self.name, self.tree, self.uses = name, tree, uses
        self.receivers = RECEIVERS.get(name, {})
        self.bound: dict[str, str] = {
            bound: f"{module}.{imported}" if imported else module
            for module, imported, bound in import_statements(tree)
            if module.split(".")[0] == "vllm"
        }

    def read(self) -> None:
        for symbol in self.bound.values():
            if not is_module(symbol):
                self._use(symbol)
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ClassDef):
                for symbol in self._overridden(node):
                    self._use(symbol)
            elif isinstance(node, ast.Attribute):
                if symbol := self._symbol(node):
                    self._use(symbol)
            elif symbol := _asked_for(node):
                self._use(symbol)
            elif isinstance(node, ast.Call) and (symbol := self._symbol(node.func)):
                self.uses.calls[symbol].append(self._call(node))

    def _use(self, symbol: str) -> None:
        self.uses.places[symbol].add(self.name)

    def _symbol(self, node: ast.expr) -> str | None:
        """What an expression names: something imported, or an attribute of one, or of a known receiver."""
        if isinstance(node, ast.Name):
            return self.bound.get(node.id)
        if not isinstance(node, ast.Attribute):
            return None
        value = node.value
        if isinstance(value, ast.Name) and value.id in self.bound:
            return f"{self.bound[value.id]}.{node.attr}"
        if isinstance(value, ast.Subscript):
            value = value.value
        elif isinstance(value, ast.Call):
            value = value.func
        holder = value.id if isinstance(value, ast.Name) else getattr(value, "attr", None)
        return f"{self.receivers[holder]}.{node.attr}" if holder in self.receivers else None

    def _implemented(self, node: ast.ClassDef) -> Iterator[str]:
        """Members of vLLM's interfaces that a model has: methods, and attributes that it sets on itself."""
        own = {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
        for part in ast.walk(node):
            match part:
                case ast.Attribute(value=ast.Name("self"), ctx=ast.Store()):
                    own.add(part.attr)
        for interface, members in INTERFACES[node.name].items():
            yield from (f"{interface}.{member}" for member in members & own)

    def _overridden(self, node: ast.ClassDef) -> Iterator[str]:
        """Methods that a class redefines and attributes that a mixin expects."""
        if node.name in INTERFACES:
            yield from self._implemented(node)
            return
        bases = MIXINS.get(node.name) or [symbol for base in node.bases if (symbol := self._symbol(base))]
        for member in node.body:
            if isinstance(member, ast.FunctionDef):
                name = member.name
            elif isinstance(member, ast.AnnAssign) and node.name in MIXINS:
                name = ast.unparse(member.target)
            else:
                continue
            if name not in OWN and not name.startswith("__"):
                yield from (f"{base}.{name}" for base in bases)

    def _call(self, node: ast.Call) -> CallSite:
        starred = any(isinstance(argument, ast.Starred) for argument in node.args)
        keywords = tuple(keyword.arg for keyword in node.keywords if keyword.arg)
        unpacks = starred or len(keywords) < len(node.keywords)
        return CallSite(f"{self.name}:{node.lineno}", len(node.args), keywords, unpacks)
