"""The entry point of group `vllm.general_plugins`: tells vLLM in every process what we add.

`register` is idempotent and imports neither torch models nor kernels: architectures are strings that vLLM
resolves when it needs them.
"""

import os

ARCHITECTURES = {"VoxCPM2ForTextToSpeech": "models.voxcpm2:VoxCPM2ForTextToSpeech"}
# Names that vLLM knows itself, and what they resolve to here.
MIMO_V2_ARCHITECTURES = {
    "MiMoV2FlashForCausalLM": "models.mimo_v2:MiMoV2FlashForCausalLM",
    "MiMoV2ForCausalLM": "models.mimo_v2:MiMoV2ForCausalLM",
    "MiMoV2MTPModel": "models.mimo_v2:MiMoV2MTP",
}
# Set to IN_TREE, it leaves MiMoV2 to vLLM's own classes, to compare. An environment variable, since vLLM
# calls `register` in each of its processes without arguments.
MIMO_V2_VARIABLE = "VOXSERVE_MIMO_V2_CLASSES"
OWN, IN_TREE = "own", "vllm"
VOXCPM2_FORMAT = "voxcpm2"  # our name in vLLM's config-format and load-format registries


def register() -> None:
    """Register our architectures, the parser of VoxCPM2's `config.json` and its weight loader.

    Raises:
        ValueError: `MIMO_V2_VARIABLE` is set to something unknown.
    """
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
