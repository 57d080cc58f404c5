"""What routes ask for."""

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import Depends
from starlette.requests import HTTPConnection

from app.audio.pool import EncoderPool
from app.engines import Engines
from app.errors import UnknownModel
from app.language.pipeline import LanguagePipeline
from app.lifecycle import EngineService
from app.pipeline.speech import SpeechPipeline
from app.settings import Settings
from app.speaking import Speaker
from app.voices.resolver import Voices

NO_SPEECH = "no speech model is served here: start the service without SPEECH_MODEL=none"
NO_LANGUAGE = "no language model is served here: start the service with LLM_MODEL"


async def _settings(connection: HTTPConnection) -> Settings:
    settings: Settings = connection.app.state.settings
    return settings


async def _engines(connection: HTTPConnection) -> Engines:
    engines: Engines = connection.app.state.engines
    return engines


async def _voices(connection: HTTPConnection) -> Voices:
    voices: Voices = connection.app.state.voices
    return voices


SettingsDep = Annotated[Settings, Depends(_settings)]
EnginesDep = Annotated[Engines, Depends(_engines)]
VoicesDep = Annotated[Voices, Depends(_voices)]


async def _speech(engines: EnginesDep) -> AsyncIterator[EngineService[SpeechPipeline]]:
    if engines.speech is None:
        raise UnknownModel(NO_SPEECH, "model")
    with engines.speech.request():
        yield engines.speech


async def _language(engines: EnginesDep) -> AsyncIterator[EngineService[LanguagePipeline]]:
    if engines.language is None:
        raise UnknownModel(NO_LANGUAGE, "model")
    with engines.language.request():
        yield engines.language


async def _speaker(
    connection: HTTPConnection, settings: SettingsDep, engines: EnginesDep, voices: VoicesDep
) -> Speaker:
    if engines.speech is None:
        raise UnknownModel(NO_SPEECH, "model")
    encoders: EncoderPool = connection.app.state.encoders
    return Speaker(engines.speech, encoders, voices, settings)


# Their requests are counted until the answer, streamed ones included, has been sent.
SpeechDep = Annotated[EngineService[SpeechPipeline], Depends(_speech)]
LanguageDep = Annotated[EngineService[LanguagePipeline], Depends(_language)]
SpeakerDep = Annotated[Speaker, Depends(_speaker)]
