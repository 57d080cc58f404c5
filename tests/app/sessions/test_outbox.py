"""The frames of one socket: in order, bounded, and taken back."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from app.sessions.messages import AudioStart, Pong
from app.sessions.outbox import MAX_AUDIO_BYTES, MAX_MESSAGES, Outbox, SlowReaderError
from tests.support.serving import until

START = AudioStart(utterance_index=0, format="pcm", sample_rate=24000, seed=1)
PONG = '{"type":"pong"}'


class Socket:
    """What the outbox needs of one; `open` lets frames leave."""

    def __init__(self) -> None:
        self.sent: list[bytes | str] = []
        self.open = asyncio.Event()
        self.open.set()

    async def send_bytes(self, frame: bytes) -> None:
        await self.open.wait()
        self.sent.append(frame)

    async def send_text(self, frame: str) -> None:
        await self.open.wait()
        self.sent.append(frame)


class Speaking:
    """What audio belongs to."""

    def __init__(self, context_id: str | None = None) -> None:
        self.context_id = context_id


@asynccontextmanager
async def sending(outbox: Outbox) -> AsyncIterator[None]:
    task = asyncio.create_task(outbox.send_all())
    try:
        yield
    finally:
        task.cancel()


async def test_messages_and_audio_keep_their_order() -> None:
    socket, owner = Socket(), Speaking()
    outbox = Outbox(socket)
    async with sending(outbox):
        outbox.put(START, owner)
        await outbox.put_audio(b"one", 3, owner)
        outbox.put(Pong())
        await until(lambda: len(socket.sent) == 3)
    assert socket.sent == [START.model_dump_json(exclude_none=True), b"one", PONG]


async def test_turns_of_several_speakers_are_announced() -> None:
    socket, first, second = Socket(), Speaking("a"), Speaking("b")
    outbox = Outbox(socket)
    async with sending(outbox):
        outbox.put(START, first)
        for speaking in (first, first, second, second, first):
            await outbox.put_audio(b"x", 1, speaking)
        await until(lambda: len(socket.sent) == 8)
    turns = [json.loads(frame).get("context_id") for frame in socket.sent[1:] if isinstance(frame, str)]
    assert [isinstance(frame, bytes) for frame in socket.sent] == [
        False,
        True,
        True,
        False,
        True,
        True,
        False,
        True,
    ]
    assert turns == ["b", "a"]


async def test_audio_waits_for_room() -> None:
    socket, owner = Socket(), Speaking()
    socket.open.clear()
    outbox = Outbox(socket)
    put = 0

    async def fill() -> None:
        nonlocal put
        while True:
            await outbox.put_audio(b"x", MAX_AUDIO_BYTES // 4, owner)
            put += 1

    async with sending(outbox):
        filling = asyncio.create_task(fill())
        await asyncio.sleep(0.05)
        assert put == 5  # one on its way, and four that wait
        outbox.put(Pong())  # a message does not wait
        socket.open.set()
        await until(lambda: put > 20)
        filling.cancel()


async def test_what_is_taken_back_is_not_sent_and_makes_room() -> None:
    socket, mine, other = Socket(), Speaking(), Speaking("b")
    socket.open.clear()
    outbox = Outbox(socket)
    async with sending(outbox):
        await outbox.put_audio(b"on its way", 10, mine)
        await asyncio.sleep(0.01)
        await outbox.put_audio(b"mine", MAX_AUDIO_BYTES, mine)
        outbox.put(Pong(), mine)
        waiting = asyncio.create_task(outbox.put_audio(b"other", 5, other))
        await asyncio.sleep(0.01)
        assert not waiting.done()
        outbox.take_back(mine)
        await waiting
        socket.open.set()
        await until(lambda: len(socket.sent) == 4)
    assert [frame for frame in socket.sent if isinstance(frame, bytes)] == [b"on its way", b"other"]
    assert PONG not in socket.sent


async def test_a_client_that_does_not_read_is_an_error() -> None:
    socket = Socket()
    socket.open.clear()
    outbox = Outbox(socket, stall_timeout_s=0.01)
    outbox.put(Pong())
    with pytest.raises(SlowReaderError):
        await outbox.send_all()


async def test_it_knows_when_too_many_messages_wait() -> None:
    outbox = Outbox(Socket())
    for _ in range(MAX_MESSAGES):
        outbox.put(Pong())
    assert not outbox.full
    outbox.put(Pong())
    assert outbox.full
