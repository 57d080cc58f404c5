"""Where the model's files are: a directory as it is, a hub id by way of the local cache."""

from collections.abc import Sequence
from pathlib import Path

from huggingface_hub import HfApi, snapshot_download, try_to_load_from_cache
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

from models.checkpoint import CheckpointError
from models.voxcpm2.manifest import AUDIO_VAE_FILES, MODEL_FILES

WEIGHT_FILES = (MODEL_FILES, AUDIO_VAE_FILES)
LANGUAGE_FILES = ("*.json", "*.jinja", "*.safetensors")


def resolve_checkpoint(model: str, revision: str | None = None, files: Sequence[str] | None = None) -> Path:
    """Local directory of `model`, downloaded from the Hugging Face hub where it is a repository id.

    The hub's own variables hold: HF_HOME, HF_TOKEN, HF_HUB_OFFLINE, HF_ENDPOINT.

    Args:
        model: a directory, or a repository id such as `openbmb/VoxCPM2`.
        revision: branch, tag or commit of the repository; a directory has none.
        files: patterns of the files to download; None: those of a speech model.

    Raises:
        CheckpointError: no such directory, or the repository cannot be had; says what to do.
    """
    path = Path(model).expanduser()
    if path.is_dir():
        if revision:
            raise CheckpointError(f"{model} is a directory, so a revision means nothing: drop it")
        return path
    if path.is_absolute() or model.startswith((".", "~")):
        raise CheckpointError(
            f"{model} is not a directory: name one, or a Hugging Face repository as OWNER/NAME"
        )
    try:
        patterns = _speech_files(model, revision) if files is None else list(files)
        return Path(snapshot_download(model, revision=revision, allow_patterns=patterns))
    except HFValidationError as error:
        raise CheckpointError(f"{model} is neither a directory nor a repository id: {error}") from error
    except LocalEntryNotFoundError as error:
        raise CheckpointError(
            f"{model} is not in the local cache and the hub cannot be reached (or HF_HUB_OFFLINE is set): "
            "download it while online, or name a local directory"
        ) from error
    except HfHubHTTPError as error:
        raise CheckpointError(
            f"the hub refused {model}{f' at {revision}' if revision else ''}: {error}. Check the name "
            "and the revision, and set HF_TOKEN for a gated repository"
        ) from error


def _speech_files(model: str, revision: str | None) -> list[str]:
    """Files to download: small ones, and weights in one form. Repositories also hold examples."""
    try:
        names = HfApi().list_repo_files(model, revision=revision)
    except Exception:  # noqa: BLE001 (offline or worse: the download says it better)
        cached = {
            form: try_to_load_from_cache(model, form, revision=revision) for form in sum(WEIGHT_FILES, ())
        }
        names = [form for form, path in cached.items() if isinstance(path, str)]
    return ["*.json", *(next((form for form in forms if form in names), forms[0]) for forms in WEIGHT_FILES)]
