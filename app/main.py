"""The application: wiring only."""

from importlib.metadata import version

from fastapi import FastAPI

from app.error_handlers import add_error_handlers
from app.lifecycle import SpeechService
from app.middleware import BodyLimit, RequestContext
from app.pipeline.start import StartPipeline, start_pipeline
from app.routes import health, models, speech
from app.settings import Settings


def create_app(settings: Settings, engine_factory: StartPipeline = start_pipeline) -> FastAPI:
    """The service under `settings`; tests give a factory of their own."""
    service = SpeechService(settings, engine_factory)
    app = FastAPI(
        title="voxserve",
        summary="VoxCPM2 text to speech on an asynchronous vLLM engine",
        version=version("voxserve"),
        lifespan=service.lifespan,
        redirect_slashes=False,
    )
    app.state.settings = settings
    app.state.speech = service
    app.add_middleware(BodyLimit)
    app.add_middleware(RequestContext)
    add_error_handlers(app)
    for router in (health.router, models.router, speech.router):
        app.include_router(router)
    return app
