"""What vLLM learns of us, and how little that costs a process."""

import subprocess
import sys
from importlib.metadata import distribution, entry_points

import pytest
from vllm import ModelRegistry
from vllm.model_executor import model_loader
from vllm.model_executor.model_loader.base_loader import BaseModelLoader
from vllm.transformers_utils import config as vllm_config

from models.plugin import (
    ARCHITECTURES,
    IN_TREE,
    MIMO_V2_ARCHITECTURES,
    MIMO_V2_VARIABLE,
    OWN,
    VOXCPM2_FORMAT,
    register,
    register_mimo_v2,
)
from models.voxcpm2.hf_config import MODEL_ARCHITECTURE, VoxCPM2ConfigParser

HEAVY = (
    "models.voxcpm2.scaffold",
    "models.voxcpm2.audio_vae",
    "models.voxcpm2.weights",
    "models.runtime.runner",
    "models.mimo_v2.causal_lm",
)


def python(code: str) -> list[str]:
    """Words that a plain interpreter prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_registering_twice_is_registering_once() -> None:
    register()
    parser = vllm_config._CONFIG_FORMAT_TO_CONFIG_PARSER[VOXCPM2_FORMAT]
    loader = model_loader._LOAD_FORMAT_TO_MODEL_LOADER[VOXCPM2_FORMAT]
    models = {name: ModelRegistry.models[name] for name in ARCHITECTURES}
    register()
    assert vllm_config._CONFIG_FORMAT_TO_CONFIG_PARSER[VOXCPM2_FORMAT] is parser is VoxCPM2ConfigParser
    assert model_loader._LOAD_FORMAT_TO_MODEL_LOADER[VOXCPM2_FORMAT] is loader
    assert issubclass(loader, BaseModelLoader)
    assert {name: ModelRegistry.models[name] for name in ARCHITECTURES} == models


def test_the_parsers_architecture_is_registered() -> None:
    register()
    registered = ModelRegistry.models[MODEL_ARCHITECTURE]
    assert f"{registered.module_name}:{registered.class_name}" == ARCHITECTURES[MODEL_ARCHITECTURE]
    assert registered.load_model_cls().__name__ == MODEL_ARCHITECTURE


def test_the_installed_distribution_has_the_entry_point() -> None:
    (ours,) = [e for e in entry_points(group="vllm.general_plugins") if e.value.startswith("models.")]
    assert ours.name == "voxserve"
    assert ours.dist is not None
    assert ours.dist.name == distribution("voxserve").name
    assert ours.load() is register


def test_importing_the_plugin_imports_neither_torch_nor_vllm() -> None:
    code = "import sys, models.plugin; print(*{'torch', 'vllm', 'transformers'}.intersection(sys.modules))"
    assert python(code) == []


def test_registering_imports_no_model() -> None:
    code = f"""
import sys
from models.plugin import register
register()
print("registered", *(name for name in {HEAVY} if name in sys.modules))
"""
    assert python(code)[-1] == "registered"


def test_stock_mimo_v2_names_resolve_to_our_classes() -> None:
    register_mimo_v2(OWN)
    before = {name: ModelRegistry.models[name] for name in MIMO_V2_ARCHITECTURES}
    register_mimo_v2(OWN)
    for architecture, path in MIMO_V2_ARCHITECTURES.items():
        registered = ModelRegistry.models[architecture]
        assert registered is before[architecture]
        assert f"{registered.module_name}:{registered.class_name}" == path
        assert registered.load_model_cls().__module__.startswith("models.mimo_v2.")


def test_a_variable_leaves_mimo_v2_to_vllm() -> None:
    code = f"""
import os
os.environ["{MIMO_V2_VARIABLE}"] = "{IN_TREE}"
from models.plugin import register
register()
from vllm import ModelRegistry
print(*(ModelRegistry.models[name].module_name for name in {list(MIMO_V2_ARCHITECTURES)}))
"""
    assert all(word.startswith("vllm.") for word in python(code)[-len(MIMO_V2_ARCHITECTURES) :])


def test_an_unknown_choice_is_an_error() -> None:
    with pytest.raises(ValueError, match=MIMO_V2_VARIABLE):
        register_mimo_v2("other")
