"""What waits to be sent to one client, and the one task that sends it.

Audio waits for room, so that a client that reads slowly holds up its own speech and fills no memory; messages
do not wait. What belongs to an utterance can be taken back until it is on its way. Where several speak by
turns in binary frames, each turn is announced.
"""

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Protocol

from pydantic import BaseModel
from starlette.websockets import WebSocket

from app.sessions.messages import AudioFrames, AudioStart

MAX_AUDIO_BYTES = 2**20  # 10 s of 48 kHz PCM
MAX_MESSAGES = 4096  # more than any client leaves unread that still lives
STALL_TIMEOUT_S = 30.0  # in which one frame must leave


class Utterance(Protocol):
    """What frames belong to."""

    @property
    def context_id(self) -> str | None:
        """Of its context."""
        ...


class SlowReaderError(Exception):
    """The client does not read what it asked for."""


@dataclass(frozen=True)
class _Item:
    frame: bytes | str
    owner: Utterance | None
    audio_bytes: int = 0
    begins: bool = False


class Outbox:
    """Frames for one socket, in order.

    Args:
        websocket: accepted.
        stall_timeout_s: seconds that one frame may take to leave.
    """

    def __init__(self, websocket: WebSocket, stall_timeout_s: float = STALL_TIMEOUT_S) -> None:
        self._websocket = websocket
        self._stall_timeout_s = stall_timeout_s
        self._items: deque[_Item] = deque()
        self._audio_bytes = 0
        self._speaking: Utterance | None = None
        self._filled = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    @property
    def full(self) -> bool:
        """Whether more messages wait than a living client leaves unread."""
        return len(self._items) > MAX_MESSAGES

    def put(self, message: BaseModel, owner: Utterance | None = None) -> None:
        """A message, behind what waits already."""
        begins = isinstance(message, AudioStart)
        self._append(_Item(message.model_dump_json(exclude_none=True), owner, begins=begins))

    async def put_audio(self, frame: bytes | BaseModel, size: int, owner: Utterance) -> None:
        """A frame of `size` bytes of audio, once there is room for it."""
        await self._room.wait()
        encoded = frame if isinstance(frame, bytes) else frame.model_dump_json(exclude_none=True)
        self._append(_Item(encoded, owner, size))

    def take_back(self, owner: Utterance) -> None:
        """Drop what waits of an utterance."""
        self._items = deque(item for item in self._items if item.owner is not owner)
        self._count(sum(item.audio_bytes for item in self._items) - self._audio_bytes)

    async def send_all(self) -> None:
        """Send what comes, until cancelled.

        Raises:
            SlowReaderError: a frame did not leave in time.
        """
        while True:
            await self._filled.wait()
            while self._items:
                item = self._items.popleft()
                self._count(-item.audio_bytes)
                await self._announce(item)
                await self._send(item.frame)
            self._filled.clear()

    async def _announce(self, item: _Item) -> None:
        """Say whose binary frames follow, unless it is clear."""
        binary = isinstance(item.frame, bytes)
        if binary and item.owner and item.owner is not self._speaking:
            await self._send(AudioFrames(context_id=item.owner.context_id).model_dump_json(exclude_none=True))
        if binary or item.begins:
            self._speaking = item.owner

    async def _send(self, frame: bytes | str) -> None:
        try:
            async with asyncio.timeout(self._stall_timeout_s):
                if isinstance(frame, bytes):
                    await self._websocket.send_bytes(frame)
                else:
                    await self._websocket.send_text(frame)
        except TimeoutError as error:
            raise SlowReaderError from error

    def _append(self, item: _Item) -> None:
        self._items.append(item)
        self._filled.set()
        self._count(item.audio_bytes)

    def _count(self, change: int) -> None:
        self._audio_bytes += change
        if self._audio_bytes < MAX_AUDIO_BYTES:
            self._room.set()
        else:
            self._room.clear()
