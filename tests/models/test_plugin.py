"""What vLLM learns of us, and how little that costs a process."""

import subprocess
import sys
from importlib.metadata import distribution, entry_points

from vllm import ModelRegistry
from vllm.model_executor import model_loader
from vllm.model_executor.model_loader.base_loader import BaseModelLoader
from vllm.transformers_utils import config as vllm_config

from models.plugin import ARCHITECTURES, VOXCPM2_FORMAT, register
from models.voxcpm2.hf_config import MODEL_ARCHITECTURE, VoxCPM2ConfigParser

HEAVY = (
    "models.voxcpm2.scaffold",
    "models.voxcpm2.audio_vae",
    "models.voxcpm2.weights",
    "models.runtime.runner",
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
