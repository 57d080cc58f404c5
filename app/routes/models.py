"""OpenAI's list of models."""

import time

from fastapi import APIRouter

from app.deps import SettingsDep
from app.errors import UnknownModel
from app.schemas import Model, ModelList
from app.settings import Settings

router = APIRouter(prefix="/v1/models", tags=["models"])

STARTED = int(time.time())  # seconds since 1970; OpenAI gives the day a model was made, which we do not know


@router.get("")
async def list_models(settings: SettingsDep) -> ModelList:
    """The models that requests can name."""
    return ModelList(data=[Model(id=settings.speech_model_name, created=STARTED)])


@router.get("/{model_id:path}")  # a path, since ids such as openbmb/VoxCPM2 have slashes
async def retrieve_model(model_id: str, settings: SettingsDep) -> Model:
    """One of them."""
    check_model(model_id, settings)
    return Model(id=model_id, created=STARTED)


def check_model(name: str, settings: Settings) -> None:
    """Raise `UnknownModel` where the name is not served."""
    if not settings.serves(name):
        raise UnknownModel(
            f"the model {name!r} is not served here: use {settings.speech_model_name!r}", "model"
        )
