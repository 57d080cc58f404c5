"""A streamed answer that ends well, or visibly badly.

After the first byte an error cannot be an HTTP status. The response then returns without its last chunk, on
which the server closes the connection: clients see an incomplete answer, never a short one that looks whole.
"""

import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from app.disconnect import ClientGone, unless_gone
from app.errors import VoxserveError

logger = logging.getLogger(__name__)


class StreamedAnswer(Response):
    """Chunks of audio, or events, as they come.

    Args:
        head: sent at once, with the status: it holds the first audio or event.
        chunks: the rest; closed when the client goes away.
        on_abort: called when the stream breaks.
    """

    def __init__(
        self,
        head: bytes,
        chunks: AsyncGenerator[bytes, None],
        on_abort: Callable[[], None],
        media_type: str,
        headers: Mapping[str, str],
    ) -> None:
        self.status_code = 200
        self.media_type = media_type
        self.background = None
        self.init_headers(headers)
        self._head = head
        self._chunks = chunks
        self._on_abort = on_abort

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 (ASGI)
        """Send the answer (ASGI)."""
        try:
            await unless_gone(self._send(send), receive)
        except ClientGone:
            logger.info("the client left during the stream")
        except VoxserveError as error:
            self._on_abort()
            logger.error("stream aborted: %s", error)
        except Exception:
            self._on_abort()
            raise

    async def _send(self, send: Send) -> None:
        async with aclosing(self._chunks) as chunks:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await send({"type": "http.response.body", "body": self._head, "more_body": True})
            async for chunk in chunks:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
