"""The service's engines, speech and language: started side by side, stopped together.

When one fails, the server stops, so that a supervisor starts both anew.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar

from fastapi import FastAPI

from app.language.pipeline import LanguagePipeline
from app.lifecycle import EngineService, Report
from app.pipeline.speech import SpeechPipeline
from app.pipeline.start import StartLanguage, StartSpeech
from app.processes import kill_children
from app.settings import Settings

P = TypeVar("P")


class Engines:
    """Those that the settings ask for; the other is `None`."""

    def __init__(self, settings: Settings, start_speech: StartSpeech, start_language: StartLanguage) -> None:
        self.failed = asyncio.Event()
        turn = asyncio.Lock() if settings.spans_cores else None
        self.speech: EngineService[SpeechPipeline] | None = None
        self.language: EngineService[LanguagePipeline] | None = None
        if settings.serves_speech:
            start = _in_turn(partial(start_speech, settings), turn)
            self.speech = EngineService("speech", start, settings.speech_max_requests, self.failed)
        if settings.serves_language:
            begin = _in_turn(partial(start_language, settings), turn)
            self.language = EngineService("language", begin, settings.llm_max_requests, self.failed)

    @property
    def services(self) -> list[EngineService[SpeechPipeline] | EngineService[LanguagePipeline]]:
        """Those there are."""
        return [service for service in (self.speech, self.language) if service is not None]

    @asynccontextmanager
    async def lifespan(self, _app: FastAPI) -> AsyncIterator[None]:
        """Run beside the application: the starts in the background, the ends awaited."""
        for service in self.services:
            service.begin()
        yield
        await self.stop()

    async def stop(self) -> None:
        """End the engines: first those that started, since a start is ended by killing all that is left."""
        for service in self.services:
            service.announce_stop()
        await asyncio.gather(*(service.stop() for service in self.services if service.started))
        await asyncio.gather(*(service.stop() for service in self.services))
        kill_children()


def _in_turn(
    start: Callable[[Report], Awaitable[P]], turn: asyncio.Lock | None
) -> Callable[[Report], Awaitable[P]]:
    """A start that waits for the other's end, if there is a `turn`: dealing cores is the whole process's."""
    if turn is None:
        return start

    async def start_in_turn(report: Report) -> P:
        if turn.locked():
            report("waiting for the other engine")
        async with turn:
            return await start(report)

    return start_in_turn
