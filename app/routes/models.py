"""OpenAI's list of models."""

import time
from collections.abc import Sequence
from typing import NoReturn

from fastapi import APIRouter

from app.deps import SettingsDep
from app.errors import UnknownModel
from app.schemas import Model, ModelList
from app.settings import Settings

router = APIRouter(prefix="/v1/models", tags=["models"])

MAX_NAME_CHARS = 128  # of a model that a client made up
STARTED = int(time.time())  # seconds since 1970; OpenAI gives the day a model was made, which we do not know


@router.get("")
async def list_models(settings: SettingsDep) -> ModelList:
    """The models that requests can name."""
    return ModelList(data=[Model(id=name, created=STARTED) for name in _served(settings)])


@router.get("/{model_id:path}")  # a path, since ids such as openbmb/VoxCPM2 have slashes
async def retrieve_model(model_id: str, settings: SettingsDep) -> Model:
    """One of them."""
    if not settings.serves(model_id) and model_id not in settings.llm_names:
        _refuse(model_id, _served(settings))
    return Model(id=model_id, created=STARTED)


def check_speech_model(name: str, settings: Settings) -> None:
    """Raise `UnknownModel` where speech may not be asked of that name."""
    if not settings.serves(name):
        _refuse(name, [settings.speech_model_name])


def check_language_model(name: str, settings: Settings) -> None:
    """Raise `UnknownModel` where the language model does not have that name."""
    if name not in settings.llm_names:
        _refuse(name, [settings.llm_model_name])


def _served(settings: Settings) -> list[str]:
    speech = [settings.speech_model_name] if settings.serves_speech else []
    return speech + ([settings.llm_model_name] if settings.serves_language else [])


def _refuse(name: str, served: Sequence[str]) -> NoReturn:
    raise UnknownModel(
        f"the model {name[:MAX_NAME_CHARS]!r} is not served here: use {' or '.join(map(repr, served))}",
        "model",
    )
