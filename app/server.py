"""The process around the application: listening, signals, exit codes.

| Exit code | Meaning |
|---|---|
| 0 | stopped by SIGTERM or SIGINT, running requests finished or timed out |
| 1 | it cannot listen, an engine did not start, or an engine died: a supervisor should start it anew |
| 2 | the settings cannot be used: they must be changed first |
| 130 | a second SIGINT cut the shutdown short |
"""

import asyncio
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Mapping

import uvicorn

from app.engines import Engines
from app.logs import configure_logging
from app.main import create_app
from app.processes import kill_children, starter_threads
from app.settings import Settings, SettingsError, load_settings

OK, FAILED, BAD_SETTINGS, INTERRUPTED = 0, 1, 2, 130
DEAD_ENGINE_TIMEOUT_S = 5  # for running requests to answer that the engine is dead
DEAD_GRACE_S = 2  # in which `/readyz` says 503, so that a balancer's probe learns why
EXIT_TIMEOUT_S = 5.0  # for threads that cannot be interrupted, such as a download

logger = logging.getLogger(__name__)


def run(overrides: Mapping[str, object] | None = None) -> int:
    """Serve under the settings of the environment; returns the exit code."""
    try:
        settings = load_settings(overrides)
    except SettingsError as error:
        sys.stderr.write(f"voxserve cannot start with these settings:\n{error}\n")
        return BAD_SETTINGS
    return serve(settings)


def serve(settings: Settings) -> int:
    """Serve until a signal, or until the engine fails; returns the exit code."""
    configure_logging(settings.log_level)
    try:
        listener = _listen(settings.host, settings.port)
    except OSError as error:
        logger.error("cannot listen on %s:%d (%s): change HOST or PORT", settings.host, settings.port, error)
        return FAILED
    with listener:
        host, port = listener.getsockname()[:2]
        logger.info("listening on http://%s:%d", f"[{host}]" if ":" in host else host, port)
        return asyncio.run(_serve(settings, listener))


def _listen(host: str, port: int) -> socket.socket:
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    return socket.create_server(address[:2], family=family, backlog=2048)


async def _serve(settings: Settings, listener: socket.socket) -> int:
    asyncio.get_running_loop().set_default_executor(starter_threads())
    app = create_app(settings)
    engines: Engines = app.state.engines
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            access_log=False,
            log_config=None,
            lifespan="on",
            timeout_graceful_shutdown=settings.shutdown_timeout_s,
        )
    )
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(
            number, _ignore
        )  # uvicorn handles them while it serves, and raises them again afterwards
    watch = asyncio.create_task(_stop_on_failure(engines, server))
    try:
        await server.serve([listener])
    finally:
        watch.cancel()
        kill_children()
    if server.force_exit:
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # it would trace all that is cut off
    code = INTERRUPTED if server.force_exit else FAILED if engines.failed.is_set() else OK
    _exit_at_last(code)
    logger.info("stopped, exit code %d", code)
    return code


async def _stop_on_failure(engines: Engines, server: uvicorn.Server) -> None:
    await engines.failed.wait()
    await asyncio.sleep(DEAD_GRACE_S)
    server.config.timeout_graceful_shutdown = DEAD_ENGINE_TIMEOUT_S
    server.should_exit = True


def _ignore(_number: int, _frame: object) -> None:
    """Handle a signal by doing nothing."""


def _exit_at_last(code: int) -> None:
    """End the process even if a thread does not end."""

    def exit_now() -> None:
        kill_children()
        os._exit(code)

    timer = threading.Timer(EXIT_TIMEOUT_S, exit_now)
    timer.daemon = True
    timer.start()
