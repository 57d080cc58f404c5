"""The entry point of group `vllm.general_plugins`: tells vLLM in every process what we add.

`register` is idempotent and imports neither torch models nor kernels: architectures are strings that vLLM
resolves when it needs them.
"""

import os
from importlib.metadata import entry_points

from models.runtime.die_with_parent import die_with_parent

ARCHITECTURES = {"VoxCPM2ForTextToSpeech": "models.voxcpm2:VoxCPM2ForTextToSpeech"}
# Names that vLLM knows itself, and what they resolve to here.
MIMO_V2_ARCHITECTURES = {
    "MiMoV2FlashForCausalLM": "models.mimo_v2:MiMoV2FlashForCausalLM",
    "MiMoV2ForCausalLM": "models.mimo_v2:MiMoV2ForCausalLM",
    "MiMoV2MTPModel": "models.mimo_v2:MiMoV2MTP",
}
# Set to IN_TREE, it leaves MiMoV2 to vLLM's own classes, to compare. An environment variable, since vLLM
# calls `register` in each of its processes without arguments.
MIMO_V2_VARIABLE = "MIMO_V2_CLASSES"
OWN, IN_TREE = "own", "vllm"
VOXCPM2_FORMAT = "voxcpm2"  # our name in vLLM's config-format and load-format registries
PLUGIN_GROUP = "vllm.general_plugins"
PLUGIN = "voxserve"  # our entry point in that group


def why_invisible() -> str | None:
    """Why vLLM's processes would not find our models, and what to do; None if they do."""
    if PLUGIN not in {point.name for point in entry_points(group=PLUGIN_GROUP)}:
        return f"there is no entry point {PLUGIN} in {PLUGIN_GROUP}: run `make setup`, or `pip install -e .`"
    allowed = os.environ.get("VLLM_PLUGINS")
    if allowed is not None and PLUGIN not in allowed.split(","):
        return f"VLLM_PLUGINS={allowed} excludes {PLUGIN}: add it, or unset the variable"
    return None


def register() -> None:
    """Register our architectures, the parser of VoxCPM2's `config.json` and its weight loader.

    Raises:
        ValueError: `MIMO_V2_VARIABLE` is set to something unknown.
    """
    die_with_parent()
    from models import compat  # noqa: PLC0415 (vLLM calls this early in start-up)

    for architecture, path in ARCHITECTURES.items():
        compat.register_architecture(architecture, path)
    compat.register_voxcpm2_format(VOXCPM2_FORMAT)
    register_mimo_v2(os.environ.get(MIMO_V2_VARIABLE, OWN))


def register_mimo_v2(classes: str) -> None:
    """Make vLLM resolve MiMoV2's architectures to our classes, unless `classes` is `IN_TREE`.

    Raises:
        ValueError: `classes` is neither `OWN` nor `IN_TREE`.
    """
    from models import compat  # noqa: PLC0415 (vLLM calls this early in start-up)

    if classes not in (OWN, IN_TREE):
        raise ValueError(f"{MIMO_V2_VARIABLE} is {classes!r}: set it to {OWN!r} or {IN_TREE!r}")
    compat.register_mimo_v2_config()
    if classes == OWN:
        for architecture, path in MIMO_V2_ARCHITECTURES.items():
            compat.replace_architecture(architecture, path)
