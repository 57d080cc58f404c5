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

CONFIGS = {
    "vllm_config": "vllm.config.VllmConfig",
    "model_config": "vllm.config.ModelConfig",
    "parallel_config": "vllm.config.ParallelConfig",
    "scheduler_config": "vllm.config.SchedulerConfig",
    "device_config": "vllm.config.DeviceConfig",
}
# File -> name of a variable or attribute -> class of what it holds.
RECEIVERS: dict[str, dict[str, str]] = {
    "models/compat.py": {
        "llm": ASYNC_LLM,
        "model_config": CONFIGS["model_config"],
        "scheduler_output": "vllm.v1.core.sched.output.SchedulerOutput",
        "new": "vllm.v1.core.sched.output.NewRequestData",
        "sampling_params": "vllm.SamplingParams",
        "input_batch": "vllm.v1.worker.gpu_input_batch.InputBatch",
        "query_start_loc": BUFFER,
        "discard_request_mask": BUFFER,
    },
    "models/runtime/runner.py": CONFIGS,
    "models/voxcpm2/minicpm4_paged.py": CONFIGS,
    "models/voxcpm2/scaffold.py": CONFIGS,
    "app/pipeline/engine.py": {
        "llm": ASYNC_LLM,
        "_llm": ASYNC_LLM,
        "_live": ASYNC_LLM,
        "model_config": CONFIGS["model_config"],
        "last": "vllm.outputs.RequestOutput",
        "outputs": "vllm.outputs.CompletionOutput",
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
    for line in re.findall(r"^\* (.*?);", ast.get_docstring(parse(ROOT / "models/compat.py")) or "", re.M):
        owner = ""
        for name in re.findall(r"`([\w.]+)`", line):
            owner = name.rpartition(".")[0] or owner
            names.add(name if "." in name or not owner else f"{owner}.{name}")
    return names


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
            elif isinstance(node, ast.Attribute) and (symbol := self._symbol(node)):
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
        value = node.value.value if isinstance(node.value, ast.Subscript) else node.value
        if isinstance(value, ast.Name) and value.id in self.bound:
            return f"{self.bound[value.id]}.{node.attr}"
        holder = value.id if isinstance(value, ast.Name) else getattr(value, "attr", None)
        return f"{self.receivers[holder]}.{node.attr}" if holder in self.receivers else None

    def _overridden(self, node: ast.ClassDef) -> Iterator[str]:
        """Methods that a class redefines and attributes that a mixin expects."""
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
