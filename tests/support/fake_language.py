"""A language pipeline without a model: it streams or answers what a body asks for, and fails when told to."""

import asyncio
import json
from collections.abc import AsyncGenerator

from app.language.pipeline import Answer, Endpoint, JsonObject

ANSWER = b'{"object": "chat.completion"}'


def event(index: int) -> bytes:
    """One event of every stream."""
    return f"data: {json.dumps({'index': index})}\n\n".encode()


class FakeLanguage:
    """The surface of `LanguagePipeline`.

    Args:
        events: length of each stream.
        delay_s: before each event, and before a whole answer.
        fail_at: number of the event in whose place `error` is raised; a whole answer has one.
        held: if given, a request waits for it before the engine hears of it.

    Attributes:
        requests: endpoint and body of every request.
        closed: streams that ended, in whatever way.
    """

    def __init__(
        self,
        events: int = 3,
        delay_s: float = 0.0,
        fail_at: int | None = None,
        error: Exception | None = None,
        held: asyncio.Event | None = None,
    ) -> None:
        self.errored = False
        self.running = 0
        self.warm_ups = 0
        self.closed = 0
        self.shut_down = False
        self.requests: list[tuple[Endpoint, JsonObject]] = []
        self._events = events
        self._delay_s = delay_s
        self._fail_at = fail_at
        self._error = error
        self._held = held

    async def warm_up(self) -> None:
        self.warm_ups += 1

    async def shutdown(self) -> None:
        self.shut_down = True

    async def answer(self, endpoint: Endpoint, body: JsonObject) -> Answer:
        self.requests.append((endpoint, body))
        if self._held:
            await self._held.wait()
        if body.get("stream"):
            return self._stream()
        self.running += 1
        try:
            await self._step(0)
        finally:
            self.running -= 1
        return ANSWER

    async def _stream(self) -> AsyncGenerator[bytes, None]:
        self.running += 1
        try:
            for index in range(self._events):
                await self._step(index)
                yield event(index)
        finally:
            self.running -= 1
            self.closed += 1

    async def _step(self, index: int) -> None:
        await asyncio.sleep(self._delay_s)
        if index == self._fail_at and self._error:
            raise self._error
