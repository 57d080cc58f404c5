"""What routes ask for."""

from typing import Annotated

from fastapi import Depends, Request

from app.engines import Engines
from app.errors import UnknownModel
from app.language.pipeline import LanguagePipeline
from app.lifecycle import EngineService
from app.pipeline.speech import SpeechPipeline
from app.settings import Settings
from app.voices.resolver import Voices

NO_SPEECH = "no speech model is served here: start the service without SPEECH_MODEL=none"
NO_LANGUAGE = "no language model is served here: start the service with LLM_MODEL"


def _settings(request: Request) -> Settings:
    settings: Settings = request.app.state.settings
    return settings


def _engines(request: Request) -> Engines:
    engines: Engines = request.app.state.engines
    return engines


def _voices(request: Request) -> Voices:
    voices: Voices = request.app.state.voices
    return voices


def _speech(request: Request) -> EngineService[SpeechPipeline]:
    service = _engines(request).speech
    if service is None:
        raise UnknownModel(NO_SPEECH, "model")
    return service


def _language(request: Request) -> EngineService[LanguagePipeline]:
    service = _engines(request).language
    if service is None:
        raise UnknownModel(NO_LANGUAGE, "model")
    return service


SettingsDep = Annotated[Settings, Depends(_settings)]
EnginesDep = Annotated[Engines, Depends(_engines)]
VoicesDep = Annotated[Voices, Depends(_voices)]
SpeechDep = Annotated[EngineService[SpeechPipeline], Depends(_speech)]
LanguageDep = Annotated[EngineService[LanguagePipeline], Depends(_language)]
