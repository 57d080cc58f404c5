"""Spoken sessions on a fake engine: a real server, and the `websockets` client."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
import websockets
from websockets.asyncio.client import ClientConnection, connect

from app.audio.encode import to_s16
from app.errors import GenerationFailed
from tests.support.fake_engine import FakeEngine
from tests.support.serving import SESSION, Service, factory, on_port, until

START = {"type": "session.start", "sample_rate": 48000, "seed": 7}
LONG = 100_000
WAIT_S = 10.0


class Client:
    """One socket, and what came over it."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket

    async def say(self, kind: str, **fields: Any) -> None:
        await self.socket.send(json.dumps({"type": kind, **fields}))

    async def hear(self) -> Any:
        """The next frame: bytes, or a message."""
        frame = await asyncio.wait_for(self.socket.recv(), WAIT_S)
        return frame if isinstance(frame, bytes) else json.loads(frame)

    async def until(self, kind: str) -> list[Any]:
        """All frames up to the first message of that type."""
        heard = [await self.hear()]
        while isinstance(heard[-1], bytes) or heard[-1]["type"] != kind:
            heard.append(await self.hear())
        return heard


@asynccontextmanager
async def session(engine: FakeEngine) -> AsyncIterator[tuple[Client, Service]]:
    async with on_port(factory(FakeEngine())) as service:
        service.speech.pipeline.engine = engine
        async with connect(f"ws://127.0.0.1:{service.port}{SESSION}") as socket:
            yield Client(socket), service


def kinds(frames: list[Any]) -> list[str]:
    return [frame["type"] for frame in frames if not isinstance(frame, bytes)]


def audio(frames: list[Any]) -> bytes:
    return b"".join(frame for frame in frames if isinstance(frame, bytes))


def expected(engine: FakeEngine, patches: int, seed: int = 7) -> bytes:
    return b"".join(to_s16(engine._patch(seed, index).pcm).tobytes() for index in range(patches))


async def test_an_utterance() -> None:
    engine = FakeEngine(patches=4)
    async with session(engine) as (client, _):
        await client.socket.send(json.dumps(START))
        await client.say("input.text", text="Hello ")
        await client.say("input.text", text="world.")
        await client.say("input.done")
        heard = await client.until("session.done")
    assert kinds(heard) == ["session.started", "audio.start", "audio.end", "session.done"]
    started, start = heard[0], heard[1]
    assert (started["format"], started["sample_rate"]) == ("pcm", 48000)
    assert (start["seed"], start["utterance_index"], start["sample_rate"]) == (7, 0, 48000)
    assert audio(heard) == expected(engine, 4)
    end, done = heard[-2:]
    assert end["total_bytes"] == len(audio(heard))
    assert end["audio_duration_s"] == pytest.approx(4 * 0.16)
    assert 0 < end["first_audio_s"] <= end["elapsed_s"]
    assert end["error"] is False
    assert done["total_sentences"] == 1


async def test_no_configuration_is_needed() -> None:
    async with session(FakeEngine()) as (client, _):
        await client.say("input.text", text="Hello world.")
        await client.say("input.done")
        heard = await client.until("session.done")
    assert heard[0]["sample_rate"] == 24000
    assert audio(heard)


async def test_a_sentence_is_spoken_before_the_next_is_written() -> None:
    engine = FakeEngine(patches=2)
    async with session(engine) as (client, _):
        await client.say("input.text", text="This sentence is complete. And this ")
        heard = await client.until("audio.start")
        assert len(engine.requests) == 1
        await client.say("input.text", text="one follows.")
        await client.say("input.done")
        heard = await client.until("session.done")
    assert heard[-1]["total_sentences"] == 2
    assert [generation.seed for _, generation in engine.requests][1] - engine.requests[0][1].seed == 1


@pytest.mark.parametrize("kind", ["input.flush", "pause"])
async def test_an_unfinished_sentence_is_spoken_on_a_flush_or_a_pause(kind: str) -> None:
    async with session(FakeEngine()) as (client, _):
        await client.say("session.start", max_buffer_delay_ms=50 if kind == "pause" else 0)
        await client.say("input.text", text="No full stop")
        if kind == "input.flush":
            await client.say(kind)
        heard = await client.until("audio.start")
        assert "session.done" not in kinds(heard)


async def test_a_cancel_is_heard_at_once_and_frees_the_slot() -> None:
    engine = FakeEngine(patches=LONG, delay_s=0.005)
    async with session(engine) as (client, _):
        await client.say("session.start", max_patches=2000)
        await client.say("input.text", text="A sentence of some words. " * 40)
        await client.until("audio.start")
        await client.say("input.cancel")
        await client.until("input.cancelled")
        await until(lambda: engine.running == 0)
        await client.say("ping")
        assert (await client.hear())["type"] == "pong", "nothing came after the acknowledgement"
        engine._patches = 2
        await client.say("input.text", text="Again.")
        await client.say("input.done")
        heard = await client.until("session.done")
    assert heard[0]["utterance_index"] == 1
    assert audio(heard)


async def test_a_client_that_leaves_frees_the_slot() -> None:
    engine = FakeEngine(patches=LONG, delay_s=0.005)
    async with session(engine) as (client, service):
        await client.say("input.text", text="A sentence of some words. " * 40)
        await client.until("audio.start")
        client.socket.transport.abort()
        await until(lambda: engine.running == 0)
        assert service.speech.running == 0


async def test_contexts_speak_at_the_same_time_without_a_mix() -> None:
    engine = FakeEngine(patches=6, delay_s=0.002)
    async with session(engine) as (client, _):
        for name, seed in (("a", 1), ("b", 2)):
            await client.say("session.start", context_id=name, seed=seed, sample_rate=48000)
        for name in ("a", "b"):
            await client.say("input.text", context_id=name, text="Hello world.")
            await client.say("input.done", context_id=name)
        heard = await client.until("session.done") + await client.until("session.done")
    said = {"a": b"", "b": b""}
    speaking = ""
    for frame in heard:
        if isinstance(frame, bytes):
            said[speaking] += frame
        elif frame["type"] in ("audio.start", "audio.frames"):
            speaking = frame["context_id"]
    assert said == {"a": expected(engine, 6, 1), "b": expected(engine, 6, 2)}


async def test_utterances_of_a_context_come_one_after_the_other() -> None:
    engine = FakeEngine(patches=3)
    async with session(engine) as (client, _):
        await client.socket.send(json.dumps(START))
        for text in ("One.", "Two.", "Three."):
            await client.say("input.text", text=text)
            await client.say("input.done")
        heard = [frame for _ in range(3) for frame in await client.until("session.done")]
    indices = [
        frame["utterance_index"]
        for frame in heard
        if not isinstance(frame, bytes) and "utterance_index" in frame
    ]
    assert indices == sorted(indices)
    assert audio(heard) == expected(engine, 3) * 3


async def test_audio_in_base64() -> None:
    engine = FakeEngine(patches=3)
    async with session(engine) as (client, _):
        await client.socket.send(json.dumps(START | {"audio": "base64"}))
        await client.say("input.text", text="Hello.")
        await client.say("input.done")
        heard = await client.until("session.done")
    deltas = [base64.b64decode(frame["audio"]) for frame in heard if frame["type"] == "audio.delta"]
    assert b"".join(deltas) == expected(engine, 3)


async def test_the_names_of_vllm_omni() -> None:
    engine = FakeEngine(patches=3)
    async with session(engine) as (client, _):
        await client.say("session.config", voice="alloy", response_format="wav", sample_rate=48000)
        await client.say("input.text", text="Hello.")
        await client.say("input.done")
        heard = await client.until("session.done")
        await client.say("session.close")
        with pytest.raises(websockets.ConnectionClosedOK):
            await client.hear()
    assert kinds(heard)[1:] == ["audio.start", "audio.done", "session.done"]
    (frame,) = [frame for frame in heard if isinstance(frame, bytes)]
    assert frame[:4] == b"RIFF"


async def test_nothing_to_say_is_done_at_once() -> None:
    async with session(FakeEngine()) as (client, _):
        await client.say("input.done")
        heard = await client.until("session.done")
    assert kinds(heard) == ["session.started", "session.done"]
    assert heard[-1]["total_sentences"] == 0


@pytest.mark.parametrize(
    ("frame", "param"),
    [
        ("{", None),
        ("[]", None),
        ("7", None),
        (b"audio?", None),
        ("{}", "type"),
        ('{"type": "shout"}', "type"),
        ('{"type": "input.text"}', "text"),
        ('{"type": "input.text", "text": 5}', "text"),
        ('{"type": "input.text", "text": "a", "context_id": ""}', "context_id"),
        ('{"type": "session.start", "voice": "nobody"}', "voice"),
        ('{"type": "session.start", "sped": 1}', "sped"),
        ('{"type": "session.start", "response_format": "opus", "sample_rate": 44100}', "sample_rate"),
        ('{"type": "input.text", "text": "%s"}' % ("a" * 5000), "text"),
    ],
)
async def test_what_is_wrong_is_said_and_the_session_goes_on(frame: str | bytes, param: str | None) -> None:
    async with session(FakeEngine()) as (client, _):
        await client.socket.send(frame)
        heard = await client.until("error")
        error = heard[-1]["error"]
        assert set(error) <= {"message", "type", "param", "code"}
        assert error.get("param") == param
        await client.say("ping")
        assert (await client.hear())["type"] == "pong"


async def test_a_start_in_the_midst_of_an_utterance_is_refused() -> None:
    async with session(FakeEngine()) as (client, _):
        await client.say("input.text", text="Not yet")
        await client.say("session.start", voice="alloy")
        heard = await client.until("error")
        assert "input.done" in heard[-1]["message"]


async def test_an_utterance_that_fails_says_so_and_the_next_is_spoken() -> None:
    engine = FakeEngine(patches=4, fail_at=2, error=GenerationFailed("broke"))
    async with session(engine) as (client, _):
        await client.say("input.text", text="Hello.")
        await client.say("input.done")
        heard = await client.until("session.done")
        assert kinds(heard) == ["session.started", "audio.start", "error", "audio.end", "session.done"]
        assert heard[-2]["error"] is True
        engine._error = None
        await client.say("input.text", text="Hello.")
        await client.say("input.done")
        assert "error" not in kinds(await client.until("session.done"))


async def test_while_the_engine_cannot_the_handshake_is_an_http_answer() -> None:
    async with on_port(factory(FakeEngine())) as service:
        service.speech.status = "stopping"
        with pytest.raises(websockets.InvalidStatus) as caught:
            await connect(f"ws://127.0.0.1:{service.port}{SESSION}")
        service.speech.status = "ready"
    assert caught.value.response.status_code == 503
    assert json.loads(caught.value.response.body)["error"]["code"] == "engine_dead"


async def test_a_client_that_does_not_read_holds_only_its_own_speech_back() -> None:
    engine = FakeEngine(patches=40)
    async with session(engine) as (client, service):
        await client.say("session.start", sample_rate=48000)
        for _ in range(60):
            await client.say("input.text", text="A sentence of some words. ")
        await asyncio.sleep(1.0)
        begun = len(engine.requests)
        assert begun < 60, "generation is held back"
        other = await service.client.post("/v1/audio/speech", json={"model": "voxcpm2", "input": "Hello."})
        assert other.status_code == 200


async def test_samples_are_those_of_the_rest_route() -> None:
    engine = FakeEngine(patches=5)
    async with session(engine) as (client, service):
        await client.say("session.start", seed=3)
        await client.say("input.text", text="Hello world.")
        await client.say("input.done")
        heard = audio(await client.until("session.done"))
        body = {"model": "voxcpm2", "input": "Hello world.", "seed": 3, "response_format": "pcm"}
        rest = (await service.client.post("/v1/audio/speech", json=body)).content
    np.testing.assert_array_equal(np.frombuffer(heard, "<i2"), np.frombuffer(rest, "<i2"))
