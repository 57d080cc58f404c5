"""Work for a client ends when the client goes away."""

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

from starlette.types import Receive

T = TypeVar("T")


class ClientGone(Exception):
    """The client closed the connection before its answer was complete."""


async def unless_gone(work: Coroutine[None, None, T], receive: Receive) -> T:
    """The result of `work`, which is cancelled, and its clean-up awaited, when the client goes away.

    The request's body must have been read: `receive` then has nothing to say but that the client is gone.

    Raises:
        ClientGone: it is.
    """
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGone
        return task.result()
    finally:
        task.cancel()
        gone.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
