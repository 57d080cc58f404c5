"""What surrounds every request, as plain ASGI: wrappers that buffer would hide clients that go away.

Outermost first: `RequestContext` (request id, access log, last resort for errors), `BodyLimit`.
"""

import asyncio
import json
import logging
import re
import time
import uuid
from collections.abc import Mapping

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.errors import error_body
from app.logs import request_id

SANE_REQUEST_ID = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")  # safe in a header, a log line and a URL
PROBES = ("/healthz", "/readyz")  # logged at debug level only: they come every few seconds
MAX_BODY_BYTES = 2**20  # the longest text takes 50 kB when every character is escaped
UNEXPECTED = "unexpected error: the server's log says more, under this answer's x-request-id"
STOPPING = "the server stopped before the answer was complete: try again in a minute"

logger = logging.getLogger(__name__)


class RequestContext:
    """Gives each request its id, and a line in the log when it has ended."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application (ASGI)."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get("x-request-id", "")
        identifier = given if SANE_REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
        request_id.set(identifier)
        began = time.monotonic()
        status = 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["x-request-id"] = identifier
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except asyncio.CancelledError:  # requests are cancelled by a server that stops, and by nobody else
            logger.warning("cut off, since the server stops")
            if not status:
                await _send_json(send_with_id, 503, error_body(STOPPING, "server_error", "server_stopping"))
        except Exception:
            if status:  # the answer has begun: the server closes the connection, and logs the error
                raise
            logger.exception("unexpected error")
            await _send_json(send_with_id, 500, error_body(UNEXPECTED, "server_error", "internal_error"))
        finally:
            level = logging.DEBUG if scope["path"] in PROBES else logging.INFO
            elapsed_ms = 1000 * (time.monotonic() - began)
            logger.log(level, "%s %s %d in %.0f ms", scope["method"], scope["path"], status, elapsed_ms)


class BodyLimit:
    """Refuses bodies that no valid request has, before they fill the memory.

    Args:
        larger: limits in bytes of the paths that take more than the rest.
    """

    def __init__(self, app: ASGIApp, larger: Mapping[str, int]) -> None:
        self._app = app
        self._larger = larger

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application (ASGI)."""
        limit = self._larger.get(scope.get("path", ""), MAX_BODY_BYTES)
        size = 0

        async def limited() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > limit:
                raise HTTPException(413, f"the body is larger than {limit} bytes: send less")
            return message

        await self._app(scope, limited if scope["type"] == "http" else receive, send)


async def _send_json(send: Send, status: int, body: dict[str, object]) -> None:
    content = json.dumps(body).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})
