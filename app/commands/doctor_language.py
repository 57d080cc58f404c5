"""Whether a MiMoV2 checkpoint directory is complete, each fault by name. Big weights stay on disk."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from app.commands.findings import Finding, failed, ok
from models.checkpoint import CONFIG_FILE, CheckpointError
from models.mimo_v2.config import MODEL_TYPES, MiMoV2Config, parse_config
from models.mimo_v2.manifest import model_shapes, split_names

DOWNLOAD = "download the checkpoint again"
CONFIG, TOKENIZER, WEIGHTS = "language config", "language tokenizer", "language weights"
TEMPLATES = ("chat_template.jinja", "tokenizer_config.json")  # where a chat template may be
INDEX_FILE, SINGLE_FILE = "model.safetensors.index.json", "model.safetensors"
MAX_LISTED_NAMES = 5  # a wrong directory lacks thousands


def check_language_checkpoint(directory: Path) -> Iterator[Finding]:
    """Configuration, tokenizer with its chat template, and every tensor's presence."""
    yield _tokenizer(directory)
    try:
        config = _config(directory)
    except CheckpointError as error:
        yield failed(CONFIG, str(error), DOWNLOAD)
        return  # which tensors there must be is not known
    yield ok(
        CONFIG,
        f"{directory}: {len(config.layers)} layers of {config.hidden_size}, {config.num_experts} experts",
    )
    try:
        names = _tensor_names(directory)
        missing = sorted(_promised(config) - names.union(*map(split_names, names)))
    except CheckpointError as error:
        yield failed(WEIGHTS, str(error), DOWNLOAD)
        return
    if missing:
        yield failed(WEIGHTS, f"{_listed(missing)} missing", DOWNLOAD)
    else:
        yield ok(WEIGHTS, f"{len(names)} tensors")


def _tokenizer(directory: Path) -> Finding:
    from tokenizers import Tokenizer  # noqa: PLC0415 (as slow to import as transformers)

    path = directory / "tokenizer.json"
    try:
        count = len(Tokenizer.from_str(path.read_text(encoding="utf-8")).encode("Hello world.").ids)
    except Exception as error:  # noqa: BLE001 (tokenizers raises no narrower class)
        return failed(TOKENIZER, f"{path} cannot be read: {error}", DOWNLOAD)
    if not any(_has_template(directory / name) for name in TEMPLATES):
        return failed(TOKENIZER, f"neither {' nor '.join(TEMPLATES)} has a chat template", DOWNLOAD)
    return ok(TOKENIZER, f"'Hello world.' is {count} tokens")


def _has_template(path: Path) -> bool:
    if path.suffix != ".json":
        return path.is_file()
    try:
        return bool(_json(path).get("chat_template"))
    except CheckpointError:
        return False


def _config(directory: Path) -> MiMoV2Config:
    raw = _json(directory / CONFIG_FILE)
    if raw.get("model_type") not in MODEL_TYPES:
        raise CheckpointError(
            f"config field model_type is {raw.get('model_type')!r}, not {' or '.join(map(repr, MODEL_TYPES))}"
        )
    return parse_config(raw)


def _tensor_names(directory: Path) -> set[str]:
    """Names of all tensors, of which each file has those that the index says."""
    from models.voxcpm2.weights import read_shapes  # noqa: PLC0415 (imports torch)

    indexed = _index(directory)
    found: set[str] = set()
    for name in sorted(set(indexed.values())) or [SINGLE_FILE]:
        if not (directory / name).is_file():
            raise CheckpointError(f"{directory / name} is missing")
        found |= set(read_shapes(directory / name))
    if missing := sorted(set(indexed) - found):
        raise CheckpointError(f"{_listed(missing)} in no file, though {INDEX_FILE} says so")
    return found


def _index(directory: Path) -> Mapping[str, str]:
    """The file of each tensor; nothing where one file has all."""
    if not (directory / INDEX_FILE).is_file():
        return {}
    places = _json(directory / INDEX_FILE).get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(place, str) for place in places.values()):
        raise CheckpointError(f"{directory / INDEX_FILE} has no weight_map of names")
    return places


def _promised(config: MiMoV2Config) -> set[str]:
    names = {f"model.{name}" for name in model_shapes(config)}
    return names if config.tie_word_embeddings else names | {"lm_head.weight"}


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - MAX_LISTED_NAMES} more are" if len(names) > MAX_LISTED_NAMES else ""
    listed = ", ".join(names[:MAX_LISTED_NAMES])
    return listed + (more or (" is" if len(names) == 1 else " are"))


def _json(path: Path) -> dict[str, object]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} has no JSON object")
    return content
