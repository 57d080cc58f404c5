"""The entry point of group `vllm.general_plugins`: tells vLLM in every process what we add.

`register` is idempotent and imports neither torch models nor kernels: architectures are strings that vLLM
resolves when it needs them.
"""

from models.runtime.die_with_parent import die_with_parent

ARCHITECTURES = {"VoxCPM2ForTextToSpeech": "models.voxcpm2:VoxCPM2ForTextToSpeech"}
VOXCPM2_FORMAT = "voxcpm2"  # our name in vLLM's config-format and load-format registries


def register() -> None:
    """Register our architectures, the parser of VoxCPM2's `config.json` and its weight loader."""
    die_with_parent()
    from models import compat  # noqa: PLC0415 (vLLM calls this early in start-up)

    for architecture, path in ARCHITECTURES.items():
        compat.register_architecture(architecture, path)
    compat.register_voxcpm2_format(VOXCPM2_FORMAT)
