"""The application: wiring only."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

from fastapi import FastAPI

from app.audio.pool import EncoderPool
from app.engines import Engines
from app.error_handlers import add_error_handlers
from app.middleware import MAX_BODY_BYTES, BodyLimit, RequestContext
from app.pipeline.start import StartLanguage, StartSpeech, start_language, start_speech
from app.routes import health, language, models, speech, speech_stream, voice_consents, voices
from app.settings import Settings
from app.voices.resolver import open_voices


def create_app(
    settings: Settings,
    speech_factory: StartSpeech = start_speech,
    language_factory: StartLanguage = start_language,
) -> FastAPI:
    """The service under `settings`; tests give factories of their own."""
    encoders = EncoderPool()
    engines = Engines(settings, speech_factory, language_factory)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with engines.lifespan(app):
            yield
        encoders.shutdown()

    app = FastAPI(
        title="voxserve",
        summary="VoxCPM2 text to speech and MiMoV2 chat on asynchronous vLLM engines",
        version=version("voxserve"),
        lifespan=lifespan,
        redirect_slashes=False,
    )
    app.state.settings = settings
    app.state.engines = engines
    app.state.encoders = encoders
    app.state.voices = open_voices(settings)
    upload_bytes = settings.voices_max_upload_mib * 2**20 + MAX_BODY_BYTES
    larger = dict.fromkeys((voices.router.prefix, voice_consents.router.prefix), upload_bytes)
    larger |= dict.fromkeys(language.PATHS, language.MAX_BODY_BYTES)
    larger[speech.PATH] = upload_bytes * 4 // 3  # a recording in base64
    app.add_middleware(BodyLimit, larger=larger)
    app.add_middleware(RequestContext)
    add_error_handlers(app)
    for routes in (health, models, speech, speech_stream, voices, voice_consents, language):
        app.include_router(routes.router)
    return app
