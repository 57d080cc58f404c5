"""What routes ask for."""

from typing import Annotated

from fastapi import Depends, Request

from app.lifecycle import SpeechService
from app.settings import Settings


def _settings(request: Request) -> Settings:
    settings: Settings = request.app.state.settings
    return settings


def _speech(request: Request) -> SpeechService:
    speech: SpeechService = request.app.state.speech
    return speech


SettingsDep = Annotated[Settings, Depends(_settings)]
SpeechDep = Annotated[SpeechService, Depends(_speech)]
