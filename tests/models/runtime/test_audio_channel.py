"""Patches over a real ZeroMQ pipe: each to its own request, in order, and nothing kept for those who left."""

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import pytest_asyncio

from models.runtime.audio_channel import AudioReceiver, AudioSender, PatchLabel, ReceivedPatch

WIDTH = 7
TIMEOUT_S = 20

Pipe = tuple[AudioSender, AudioReceiver]


@pytest_asyncio.fixture
async def pipe(tmp_path: Path) -> AsyncIterator[Pipe]:
    endpoint = f"ipc://{tmp_path}/audio"
    receiver = AudioReceiver(endpoint)
    sender = AudioSender(endpoint)
    yield sender, receiver
    await receiver.close()
    sender._socket.close(linger=0)  # in service a worker's socket ends with its process


def rows(*values: float) -> npt.NDArray[np.float32]:
    """One row for each value, all of it."""
    return np.repeat(np.array(values, np.float32)[:, None], WIDTH, axis=1)


async def take(queue: asyncio.Queue[ReceivedPatch], count: int) -> list[ReceivedPatch]:
    async with asyncio.timeout(TIMEOUT_S):
        return [await queue.get() for _ in range(count)]


async def flush(pipe: Pipe) -> None:
    """Wait until all that was sent has arrived: the pipe keeps order."""
    sender, receiver = pipe
    marker = receiver.open("flush")
    sender.send([PatchLabel("flush", 0)], rows(0.0))
    await take(marker, 1)
    receiver.close_channel("flush")


async def test_a_step_of_several_requests(pipe: Pipe) -> None:
    sender, receiver = pipe
    a, b = receiver.open("a"), receiver.open("b")
    sender.send([PatchLabel("b", 4), PatchLabel("a", 0)], rows(1.5, -2.0))
    (of_a,), (of_b,) = await take(a, 1), await take(b, 1)
    assert (of_a.index, of_b.index) == (0, 4)
    np.testing.assert_array_equal(of_a.row, rows(-2.0)[0])
    np.testing.assert_array_equal(of_b.row, rows(1.5)[0])
    assert of_a.row.dtype == np.float32


async def test_a_thousand_steps_interleaved(pipe: Pipe) -> None:
    sender, receiver = pipe
    rng = np.random.default_rng(0)
    queues = {name: receiver.open(name) for name in "abcde"}
    sent: dict[str, list[float]] = {name: [] for name in queues}
    for step in range(1000):
        present = rng.permutation(list(queues))[: rng.integers(1, 6)].tolist()
        labels = [PatchLabel(name, len(sent[name])) for name in present]
        values = [step * 10.0 + i for i in range(len(present))]
        for name, value in zip(present, values, strict=True):
            sent[name].append(value)
        sender.send(labels, rows(*values))
        if step % 100 == 0:
            await asyncio.sleep(0)  # the receiver may read some, or not
    for name, queue in queues.items():
        got = await take(queue, len(sent[name]))
        assert [patch.index for patch in got] == list(range(len(sent[name])))
        assert [patch.row[0].item() for patch in got] == sent[name]
        assert queue.empty()


async def test_every_float_arrives_as_it_was(pipe: Pipe) -> None:
    sender, receiver = pipe
    queue = receiver.open("a")
    special = np.array([[0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, 3.4e38]], np.float32)
    sender.send([PatchLabel("a", 0)], special)
    (patch,) = await take(queue, 1)
    assert patch.row.tobytes() == special[0].tobytes()


async def test_rows_that_are_a_strided_view(pipe: Pipe) -> None:
    sender, receiver = pipe
    queue = receiver.open("a")
    wide = np.arange(4 * WIDTH, dtype=np.float32).reshape(2, 2 * WIDTH)
    sender.send([PatchLabel("a", 0), PatchLabel("a", 1)], wide[:, :WIDTH])
    got = await take(queue, 2)
    np.testing.assert_array_equal([patch.row for patch in got], wide[:, :WIDTH])


async def test_a_buffer_that_is_used_again_after_the_step(pipe: Pipe) -> None:
    """A worker's output buffer is overwritten by the next step, whether or not anybody has read yet."""
    sender, receiver = pipe
    queue = receiver.open("a")
    for index in range(50):
        buffer = rows(float(index))
        sender.send([PatchLabel("a", index)], buffer)
        buffer[:] = -1.0
    assert [patch.row[-1].item() for patch in await take(queue, 50)] == list(range(50))


async def test_a_closed_channel_is_dropped(pipe: Pipe) -> None:
    sender, receiver = pipe
    a, b = receiver.open("a"), receiver.open("b")
    receiver.close_channel("a")
    sender.send([PatchLabel("a", 0), PatchLabel("b", 0), PatchLabel("never opened", 0)], rows(1.0, 2.0, 3.0))
    (patch,) = await take(b, 1)
    assert patch.row[0] == 2.0
    assert a.empty()
    assert receiver.open_channels == 1


async def test_closing_twice_and_closing_what_was_never_open(pipe: Pipe) -> None:
    _, receiver = pipe
    receiver.open("a")
    receiver.close_channel("a")
    receiver.close_channel("a")
    receiver.close_channel("never opened")
    assert receiver.open_channels == 0


async def test_a_name_is_used_by_one_at_a_time(pipe: Pipe) -> None:
    _, receiver = pipe
    receiver.open("a")
    with pytest.raises(AssertionError):
        receiver.open("a")


async def test_no_queue_outlives_its_request(pipe: Pipe) -> None:
    sender, receiver = pipe
    gone = []
    for i in range(200):
        name = f"speech-{i}"
        queue = receiver.open(name)
        sender.send([PatchLabel(name, 0), PatchLabel(name, 1)], rows(1.0, 2.0))
        await take(queue, 1)  # the second is left unread, as when a caller hangs up
        gone.append(weakref.ref(queue))
        receiver.close_channel(name)
        del queue
    await flush(pipe)
    gc.collect()
    assert receiver.open_channels == 0
    assert not [reference for reference in gone if reference() is not None]


async def test_a_slow_reader_loses_nothing_and_blocks_nobody(pipe: Pipe) -> None:
    sender, receiver = pipe
    slow, fast = receiver.open("slow"), receiver.open("fast")
    for index in range(300):
        sender.send([PatchLabel("slow", index), PatchLabel("fast", index)], rows(0.0, 1.0))
    assert [patch.index for patch in await take(fast, 300)] == list(range(300))
    assert [patch.index for patch in await take(slow, 300)] == list(range(300))


async def test_sending_never_waits(tmp_path: Path) -> None:
    """Nobody listens at all: a step goes on all the same."""
    sender = AudioSender(f"ipc://{tmp_path}/nobody")
    async with asyncio.timeout(TIMEOUT_S):
        await asyncio.to_thread(lambda: [sender.send([PatchLabel("a", i)], rows(0.0)) for i in range(5000)])
    sender._socket.close(linger=0)


async def test_close_frees_the_endpoint(tmp_path: Path) -> None:
    endpoint = f"ipc://{tmp_path}/audio"
    await AudioReceiver(endpoint).close()
    receiver, sender = AudioReceiver(endpoint), AudioSender(endpoint)
    queue = receiver.open("a")
    sender.send([PatchLabel("a", 0)], rows(1.0))
    await take(queue, 1)
    await receiver.close()
    sender._socket.close(linger=0)
