"""The application: wiring only."""

from importlib.metadata import version

from fastapi import FastAPI

from app.engines import Engines
from app.error_handlers import add_error_handlers
from app.middleware import BodyLimit, RequestContext
from app.pipeline.start import StartLanguage, StartSpeech, start_language, start_speech
from app.routes import health, language, models, speech
from app.settings import Settings


def create_app(
    settings: Settings,
    speech_factory: StartSpeech = start_speech,
    language_factory: StartLanguage = start_language,
) -> FastAPI:
    """The service under `settings`; tests give factories of their own."""
    engines = Engines(settings, speech_factory, language_factory)
    app = FastAPI(
        title="voxserve",
        summary="VoxCPM2 text to speech and MiMoV2 chat on asynchronous vLLM engines",
        version=version("voxserve"),
        lifespan=engines.lifespan,
        redirect_slashes=False,
    )
    app.state.settings = settings
    app.state.engines = engines
    app.add_middleware(BodyLimit)
    app.add_middleware(RequestContext)
    add_error_handlers(app)
    for router in (health.router, models.router, speech.router, language.router):
        app.include_router(router)
    return app
