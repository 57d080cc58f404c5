"""One spoken session: a loop that receives and never waits for speech, and a task that sends.

| Close code | Meaning |
|---|---|
| 1000 | `session.close`, or nothing happened for `IDLE_TIMEOUT_S` |
| 1011 | the server failed |
| 4008 | the client did not read what it asked for |
"""

import asyncio
import json
import logging
from typing import assert_never

from pydantic import ValidationError
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from app.error_handlers import invalid_request
from app.errors import InvalidRequest, VoxserveError, wire_of
from app.schemas import ErrorDetail
from app.sessions.context import SpeechContext
from app.sessions.messages import (
    CLIENT_MESSAGE,
    MESSAGE_TYPES,
    ClientMessage,
    ErrorMessage,
    InputCancel,
    InputDone,
    InputFlush,
    InputText,
    Ping,
    Pong,
    SessionClose,
    SessionStart,
    SessionStarted,
)
from app.sessions.outbox import Outbox, SlowReaderError
from app.sessions.written import Opened
from app.speaking import Speaker

MAX_CONTEXTS = 16  # of one socket
IDLE_TIMEOUT_S = 300.0  # without a message while nothing is spoken; clients that wait for a human send pings
CLOSE_NORMAL, CLOSE_FAILED, CLOSE_SLOW_READER = 1000, 1011, 4008

UNKNOWN_TYPE = ("union_tag_invalid", "union_tag_not_found")

logger = logging.getLogger(__name__)


class Session:
    """One socket, accepted.

    Args:
        websocket: of the client.
        speaker: turns text into encoded audio.
    """

    def __init__(self, websocket: WebSocket, speaker: Speaker) -> None:
        self._websocket = websocket
        self._speaker = speaker
        self._outbox = Outbox(websocket)
        self._contexts: dict[str | None, SpeechContext] = {}

    async def run(self) -> None:
        """Serve until either side ends it; nothing of it goes on afterwards."""
        receiving = asyncio.create_task(self._receive_all())
        sending = asyncio.create_task(self._outbox.send_all())
        code = CLOSE_NORMAL
        try:
            done, _ = await asyncio.wait({receiving, sending}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        except SlowReaderError:
            logger.warning("a session's client does not read")
            code = CLOSE_SLOW_READER
        except WebSocketDisconnect:
            logger.info("a session's client left")
        except Exception:
            logger.exception("unexpected error in a session")
            code = CLOSE_FAILED
        finally:
            speaking = [task for context in self._contexts.values() for task in context.stop()]
            for task in (receiving, sending):
                task.cancel()
            await asyncio.gather(receiving, sending, *speaking, return_exceptions=True)
        if self._websocket.client_state is WebSocketState.CONNECTED:
            await self._websocket.close(code)

    async def _receive_all(self) -> None:
        while True:
            try:
                async with asyncio.timeout(IDLE_TIMEOUT_S):
                    event = await self._websocket.receive()
            except TimeoutError:
                if any(context.active for context in self._contexts.values()):
                    continue
                return
            if event["type"] == "websocket.disconnect":
                raise WebSocketDisconnect(event.get("code", CLOSE_NORMAL))
            if self._outbox.full:
                raise SlowReaderError
            message = self._parse(event.get("text"))
            if isinstance(message, SessionClose):
                return
            if message:
                await self._handle(message)

    def _parse(self, text: str | None) -> ClientMessage | None:
        """The message; None where it is none, which the client hears."""
        try:
            if text is None:
                raise InvalidRequest("messages are JSON objects in text frames, not binary ones")
            try:
                return CLIENT_MESSAGE.validate_python(json.loads(text))
            except ValueError as error:
                raise _as_invalid(error) from error
        except InvalidRequest as error:
            self._complain(error, None)
            return None

    async def _handle(self, message: ClientMessage) -> None:
        match message:
            case Ping():
                self._outbox.put(Pong())
            case SessionClose():
                pass
            case _:
                try:
                    await self._handle_in_context(message)
                except VoxserveError as error:
                    self._complain(error, message.context_id)

    async def _handle_in_context(
        self, message: SessionStart | InputText | InputFlush | InputDone | InputCancel
    ) -> None:
        match message:
            case SessionStart():
                await self._open(message)
            case InputText():
                (await self._context(message.context_id)).write(message.text)
            case InputFlush():
                (await self._context(message.context_id)).flush()
            case InputDone():
                (await self._context(message.context_id)).finish()
            case InputCancel():
                (await self._context(message.context_id)).cancel()
            case _:
                assert_never(message)

    async def _context(self, context_id: str | None) -> SpeechContext:
        if context_id not in self._contexts:
            opening = {"type": "session.start", "context_id": context_id}
            await self._open(SessionStart.model_validate(opening))
        return self._contexts[context_id]

    async def _open(self, options: SessionStart) -> None:
        context = self._contexts.get(options.context_id)
        if context and context.writing:
            raise InvalidRequest(
                "an utterance is being written: send `input.done` or `input.cancel` before", "type"
            )
        if not context and len(self._contexts) >= MAX_CONTEXTS:
            self._drop_one()
        manner = await self._speaker.manner(options)
        output = manner.output
        opened = Opened(options.context_id, options, manner)
        if context:
            context.opened = opened
        else:
            self._contexts[options.context_id] = SpeechContext(opened, self._speaker, self._outbox)
        self._outbox.put(
            SessionStarted(context_id=options.context_id, format=output.format.name, sample_rate=output.rate)
        )

    def _drop_one(self) -> None:
        """Forget a context in which nothing happens, to make room."""
        for context_id, context in self._contexts.items():
            if not context.active:
                del self._contexts[context_id]
                return
        raise InvalidRequest(f"{MAX_CONTEXTS} contexts are active: end one of them before", "context_id")

    def _complain(self, error: VoxserveError, context_id: str | None) -> None:
        wire = wire_of(error)
        detail = ErrorDetail(message=str(error), type=wire.type, param=error.param, code=wire.code)
        self._outbox.put(ErrorMessage(context_id=context_id, message=str(error), error=detail))


def _as_invalid(error: ValueError) -> InvalidRequest:
    if not isinstance(error, ValidationError):
        return InvalidRequest(f"the message is not valid JSON ({error})")
    problems = error.errors()
    if problems[0]["type"] in UNKNOWN_TYPE:
        return InvalidRequest(f"`type` must be one of {', '.join(MESSAGE_TYPES)}", "type")
    return invalid_request(problems)
