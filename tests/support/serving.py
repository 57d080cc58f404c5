"""The application on a fake engine: called in the process, or behind a real server."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx
import uvicorn
from fastapi import FastAPI

from app.engines import Engines
from app.language.pipeline import LanguagePipeline
from app.lifecycle import EngineService, Report
from app.main import create_app
from app.pipeline.speech import SpeechPipeline
from app.pipeline.start import StartLanguage, StartSpeech, start_language
from app.settings import Settings
from models.voxcpm2.tokenizer import TextTokenizer
from tests.support.fake_engine import FakeEngine
from tests.support.fake_language import FakeLanguage
from tests.support.golden import CHECKPOINT

SPEECH = "/v1/audio/speech"
SESSION = "/v1/audio/speech/stream"
WAIT_S = 5.0
LANGUAGE_ONLY = {"speech_model": "none", "llm_model": "somewhere"}  # settings


def settings(**values: object) -> Settings:
    """Settings that no environment file changes."""
    return Settings(_env_file=None, **values)


def factory(engine: FakeEngine) -> StartSpeech:
    """An engine factory that is done at once."""

    async def start(_settings: Settings, report: Report) -> SpeechPipeline:
        report("starting engine")
        return SpeechPipeline(engine, TextTokenizer.from_checkpoint(CHECKPOINT))

    return start


def language_factory(pipeline: FakeLanguage) -> StartLanguage:
    """The same for language."""

    async def start(_settings: Settings, report: Report) -> LanguagePipeline:
        report("starting engine")
        return pipeline

    return start


async def no_speech(_settings: Settings, _report: Report) -> SpeechPipeline:
    """A factory that must not be asked."""
    raise AssertionError


@dataclass(frozen=True)
class Service:
    """A running application."""

    client: httpx.AsyncClient
    app: FastAPI
    port: int = 0
    server: uvicorn.Server | None = None

    @property
    def engines(self) -> Engines:
        return self.app.state.engines

    @property
    def speech(self) -> EngineService[SpeechPipeline]:
        assert self.engines.speech
        return self.engines.speech

    @property
    def language(self) -> EngineService[LanguagePipeline]:
        assert self.engines.language
        return self.engines.language


def _ready(app: FastAPI) -> bool:
    return all(service.status == "ready" for service in app.state.engines.services)


@asynccontextmanager
async def in_process(
    start: StartSpeech,
    wait: bool = True,
    raise_errors: bool = True,
    language: StartLanguage = start_language,
    **values: object,
) -> AsyncIterator[Service]:
    """The application called without a network; answers arrive whole."""
    app = create_app(settings(**values), start, language)
    transport = httpx.ASGITransport(app, raise_app_exceptions=raise_errors)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://test") as client,
    ):
        if wait:
            await until(lambda: _ready(app))
        yield Service(client, app)


@asynccontextmanager
async def on_port(
    start: StartSpeech, language: StartLanguage = start_language, **values: object
) -> AsyncIterator[Service]:
    """The application behind uvicorn on a free port."""
    app = create_app(settings(**values), start, language)
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=1))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        serving = asyncio.create_task(server.serve([listener]))
        try:
            await until(lambda: server.started and _ready(app))
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
                yield Service(client, app, port, server)
        finally:
            server.should_exit = True
            await serving


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition, not for long."""
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110 (what is waited for has no event)
            await asyncio.sleep(0.01)
