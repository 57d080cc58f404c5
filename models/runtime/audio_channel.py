"""The way of generated patches from the engine's worker to the API process: a ZeroMQ pipe beside vLLM's own.

vLLM merges outputs of a slow reader, so audio cannot ride on them. One message carries one step: which
request (by the channel it named) got which patch, and all their floats. The token stream stays the clock:
patch k belongs to output token k, and an answer is complete when the engine says that it is finished and all
its patches have arrived.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt
import zmq
import zmq.asyncio

Floats = npt.NDArray[np.float32]
AUDIO_ENDPOINT = "voxserve_audio_endpoint"  # key of vLLM's additional_config


class PatchLabel(msgspec.Struct, frozen=True, array_like=True):
    """Which patch a row of a message is: number `index`, from 0, of the request listening on `channel`."""

    channel: str
    index: int


class AudioSender:
    """The worker's end."""

    def __init__(self, endpoint: str) -> None:
        self._socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.PUSH)
        self._socket.setsockopt(zmq.SNDHWM, 0)  # a step never waits for the API process
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.connect(endpoint)

    def send(self, labels: Sequence[PatchLabel], rows: Floats) -> None:
        """Send one step: `rows` is float32 `[len(labels), width]`."""
        self._socket.send_multipart((msgspec.msgpack.encode(labels), np.ascontiguousarray(rows).data))


@dataclass(frozen=True)
class ReceivedPatch:
    """One patch as it came: its number, and its floats (PCM, latents, stop logits)."""

    index: int
    row: Floats


class AudioReceiver:
    """The API process's end: binds `endpoint` and hands each patch to the queue of its channel."""

    def __init__(self, endpoint: str) -> None:
        self._socket = zmq.asyncio.Context.instance().socket(zmq.PULL)
        self._socket.setsockopt(zmq.RCVHWM, 0)
        self._socket.bind(endpoint)
        self._queues: dict[str, asyncio.Queue[ReceivedPatch]] = {}
        self._decoder = msgspec.msgpack.Decoder(list[PatchLabel])
        self._task = asyncio.create_task(self._receive(), name="audio-receiver")

    @property
    def failed(self) -> bool:
        """Whether receiving broke off: no patch arrives any more."""
        return self._task.done()

    @property
    def open_channels(self) -> int:
        """Requests that are listening."""
        return len(self._queues)

    def open(self, channel: str) -> asyncio.Queue[ReceivedPatch]:
        """Listen on a channel; names are used once."""
        assert channel not in self._queues
        queue: asyncio.Queue[ReceivedPatch] = asyncio.Queue()
        self._queues[channel] = queue
        return queue

    def close_channel(self, channel: str) -> None:
        """Stop listening; patches that still come are dropped."""
        self._queues.pop(channel, None)

    async def close(self) -> None:
        """Stop receiving and free the endpoint."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self._socket.close(linger=0)

    async def _receive(self) -> None:
        while True:
            header, payload = await self._socket.recv_multipart()
            labels = self._decoder.decode(header)
            rows = np.frombuffer(payload, dtype=np.float32).reshape(len(labels), -1)
            for label, row in zip(labels, rows, strict=True):
                if queue := self._queues.get(label.channel):
                    queue.put_nowait(ReceivedPatch(label.index, row.copy()))  # not the whole step's message
