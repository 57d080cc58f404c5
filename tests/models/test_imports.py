"""The seams, read from the source: who may import what."""

import ast
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from tests.support.imports import ROOT, eager_statements, modules_imported, parse, python_files

# vLLM's surface for out-of-tree models: layers, configuration, plug-in registries, platforms.
PUBLIC = {
    "vllm",
    "vllm.compilation.decorators",
    "vllm.config",
    "vllm.distributed",
    "vllm.model_executor.layers.activation",
    "vllm.model_executor.layers.attention",
    "vllm.model_executor.layers.fused_moe",
    "vllm.model_executor.layers.layernorm",
    "vllm.model_executor.layers.linear",
    "vllm.model_executor.layers.logits_processor",
    "vllm.model_executor.layers.quantization",
    "vllm.model_executor.layers.rotary_embedding",
    "vllm.model_executor.layers.vocab_parallel_embedding",
    "vllm.model_executor.model_loader.weight_utils",
    "vllm.model_executor.models.interfaces",
    "vllm.model_executor.models.utils",
    "vllm.model_executor.utils",
    "vllm.platforms",
    "vllm.sequence",
    "vllm.transformers_utils.config_parser_base",
}

# The rest, with the only file that may touch it.
NON_PUBLIC = {
    "models/compat.py": {
        "vllm.model_executor.model_loader",
        "vllm.model_executor.model_loader.base_loader",
        "vllm.transformers_utils.config",
        "vllm.v1.attention.backends.registry",
        "vllm.v1.outputs",
        "vllm.v1.worker.cpu_worker",
        "vllm.v1.worker.gpu_worker",
    },
}

LIGHT = (
    *(f"voxcpm2.{name}" for name in ("config", "content_ids", "limits", "manifest", "prompt", "tokenizer")),
    *(f"mimo_v2.{name}" for name in ("config", "manifest", "make_tokenizer")),
)


def loaded_by(modules: list[str]) -> set[str]:
    """Top-level packages in a plain interpreter after it has imported `modules`."""
    code = f"import sys, {', '.join(modules)}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_models_never_import_the_service() -> None:
    offenders = {
        str(path): found
        for path in python_files("models")
        if (found := {name for name in modules_imported(parse(path)) if name.split(".")[0] == "app"})
    }
    assert offenders == {}


def test_non_public_vllm_has_one_door() -> None:
    found = defaultdict(set)
    for path in python_files("models"):
        for name in modules_imported(parse(path)):
            if name.split(".")[0] == "vllm" and name not in PUBLIC:
                found[path.relative_to(ROOT).as_posix()].add(name)
    assert dict(found) == NON_PUBLIC


@pytest.mark.parametrize("name", LIGHT)
def test_light_modules_import_neither_torch_nor_vllm(name: str) -> None:
    assert not loaded_by([f"models.{name}"]) & {"torch", "vllm", "transformers"}


def test_the_service_imports_what_is_light() -> None:
    """All but the modules that talk to vLLM themselves, and what a function imports when it is needed."""
    wanted = set()
    for path in python_files("app"):
        tree = parse(path)
        if not any(name.split(".")[0] == "vllm" for name in modules_imported(tree)):
            wanted |= modules_imported(*eager_statements(tree))
    ours = sorted(name for name in wanted if name.split(".")[0] == "models")
    assert "models.voxcpm2.prompt" in ours
    assert not loaded_by(ours) & {"torch", "vllm", "transformers"}


def test_every_module_says_what_it_is() -> None:
    for path in python_files("models"):
        assert ast.get_docstring(parse(path)), path


def test_paths_are_those_of_the_repository() -> None:
    assert ROOT / "models" / "plugin.py" in python_files("models")
    assert Path(__file__).is_relative_to(ROOT)
