"""Whatever a client does in whatever order: never a hang, audio after a cancel, or a leaked slot."""

import asyncio
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.asyncio.client import ClientConnection, connect

from tests.support.fake_engine import FakeEngine
from tests.support.serving import SESSION, factory, on_port, until

WAIT_S = 10.0
EXAMPLES = 200
CONTEXTS = (None, "a", "b")
TEXTS = ("Hello. ", "And then ", "this follows! ", "你好。", "...", "")
OTHERS = ("input.flush", "input.done", "input.cancel", "session.start", "ping")
REFUSALS = ("wait already", "being written")  # of what is asked too often, or too soon

actions = st.one_of(
    st.tuples(st.just("input.text"), st.sampled_from(TEXTS)),
    st.tuples(st.sampled_from(OTHERS), st.none()),
    st.tuples(st.just("wait"), st.sampled_from([0.0, 0.002, 0.01])),
)
steps = st.lists(st.tuples(actions, st.sampled_from(CONTEXTS)), max_size=14)


class Listener:
    """Hears everything, and objects to audio of an utterance that was cancelled."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self.counts = {"input.cancelled": 0, "session.done": 0, "pong": 0}
        self._open: dict[str | None, int] = {}  # utterances by context, whose audio may come
        self._heard: str | None = None

    async def run(self) -> None:
        async for frame in self._socket:
            if isinstance(frame, bytes):
                assert self._heard in self._open, "audio of an utterance that has ended or was cancelled"
            else:
                self._take(json.loads(frame))

    def _take(self, message: dict[str, Any]) -> None:
        kind, context = message["type"], message.get("context_id")
        if kind == "error":
            assert any(reason in message["message"] for reason in REFUSALS), message
        if kind in self.counts:
            self.counts[kind] += 1
        if kind == "audio.start":
            self._open[context] = message["utterance_index"]
        if kind in ("audio.start", "audio.frames"):
            self._heard = context
        if kind in ("audio.end", "input.cancelled"):
            self._open.pop(context, None)


async def play(url: str, engine: FakeEngine, script: list[Any], leaves: bool) -> None:
    async with connect(url, max_size=None) as socket:
        listener = Listener(socket)
        listening = asyncio.create_task(listener.run())
        for (kind, value), context in script:
            if kind == "wait":
                await asyncio.sleep(value)
                continue
            fields = {"text": value} if kind == "input.text" else {}
            if kind != "ping" and context:
                fields["context_id"] = context
            await socket.send(json.dumps({"type": kind, **fields}))
        if leaves:
            socket.transport.abort()
        else:
            for context in CONTEXTS:
                named = {"context_id": context} if context else {}
                await socket.send(json.dumps({"type": "input.cancel", **named}))
            cancels = sum(kind == "input.cancel" for (kind, _), _ in script) + len(CONTEXTS)
            await until(lambda: listener.counts["input.cancelled"] == cancels or listening.done())
            await socket.send(json.dumps({"type": "ping"}))
            pings = sum(kind == "ping" for (kind, _), _ in script) + 1
            await until(lambda: listener.counts["pong"] == pings or listening.done())
        await until(lambda: engine.running == 0)
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        if not listening.cancelled() and isinstance(listening.exception(), AssertionError):
            listening.result()


def test_interleavings() -> None:
    """One server for all examples: a slot that one of them leaks is missing in the next."""

    @settings(max_examples=EXAMPLES, deadline=None)
    @given(script=steps, leaves=st.booleans())
    def run(script: list[Any], leaves: bool) -> None:
        loop.run_until_complete(asyncio.wait_for(play(url, engine, script, leaves), WAIT_S))

    async def serve(ready: "asyncio.Future[int]", stop: asyncio.Event) -> None:
        async with on_port(factory(FakeEngine())) as service:
            service.speech.pipeline.engine = engine
            ready.set_result(service.port)
            await stop.wait()
            assert service.speech.running == 0

    engine = FakeEngine(patches=4, delay_s=0.001)
    loop = asyncio.new_event_loop()
    try:
        ready, stop = loop.create_future(), asyncio.Event()
        serving = loop.create_task(serve(ready, stop))
        url = f"ws://127.0.0.1:{loop.run_until_complete(ready)}{SESSION}"
        run()
        stop.set()
        loop.run_until_complete(serving)
    finally:
        loop.close()
