"""An engine's life within the service: started while the server already answers, watched, ended.

    starting -> ready -> dead        the engine's process ended; the server is to stop
        |         `----> stopping    the server stops
        `-------> failed             it did not start; the server is to stop

`failed` is set when the server has to stop by itself; a supervisor is expected to start it anew.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Generic, Literal, Protocol, TypeVar

from app.errors import EngineDead, EngineStarting, Overloaded, VoxserveError, dead_message
from app.processes import kill_children
from models.checkpoint import CheckpointError

WATCH_INTERVAL_S = 1.0
ABANDON_INTERVAL_S = 0.2
ABANDON_TIMEOUT_S = 5.0  # for a start that is in a thread, which cannot be interrupted
ENGINE_SHUTDOWN_TIMEOUT_S = 25.0  # the engine kills its own processes before

logger = logging.getLogger(__name__)

Status = Literal["starting", "ready", "failed", "dead", "stopping"]
Report = Callable[[str], None]


class Pipeline(Protocol):
    """What answers requests, and the engine in it."""

    @property
    def errored(self) -> bool:
        """Whether the engine is dead."""
        ...

    @property
    def running(self) -> int:
        """Requests in the engine."""
        ...

    async def warm_up(self) -> None:
        """Answer a request by the way that requests take."""
        ...

    async def shutdown(self) -> None:
        """End the engine."""
        ...


P = TypeVar("P", bound=Pipeline)


class _StartAbandoned(Exception):
    """The server stops before the engine was ready."""


class EngineService(Generic[P]):
    """One pipeline and its state.

    Args:
        name: of the engine, in messages.
        start: makes the pipeline.
        max_requests: answered at the same time.
        failed: set when the server has to stop.
    """

    def __init__(
        self, name: str, start: Callable[[Report], Awaitable[P]], max_requests: int, failed: asyncio.Event
    ) -> None:
        self.name = name
        self.status: Status = "starting"
        self.stage = "starting"
        self.message = ""
        self.streams_aborted = 0
        self._start = start
        self._max_requests = max_requests
        self._requests = 0  # counted here: the engine knows of a request only once it has been laid out
        self.failed = failed
        self._began = time.monotonic()
        self._pipeline: P | None = None
        self._task: asyncio.Task[None] | None = None

    @contextmanager
    def request(self) -> Iterator[None]:
        """One more request is there, until its answer has been sent."""
        self._requests += 1
        try:
            yield
        finally:
            self._requests -= 1

    @property
    def pipeline(self) -> P:
        """The pipeline, for a request that `request` has counted.

        Raises:
            EngineStarting: it is not ready yet; says which stage it is in.
            EngineDead: it is gone.
            Overloaded: there are more requests than are answered at the same time.
        """
        if self.status == "starting":
            raise EngineStarting(
                f"the {self.name} engine is not ready yet ({self.stage}, {self.elapsed_s:.0f} s): "
                "try again soon"
            )
        if self.status != "ready" or self._pipeline is None:
            raise EngineDead(self.message or "the service is stopping: try again in a minute")
        if self.errored:
            raise EngineDead(dead_message(self.name))
        if self._requests > self._max_requests:
            raise Overloaded(
                f"the {self.name} engine has {self._max_requests} requests already: try again soon"
            )
        return self._pipeline

    @property
    def running(self) -> int:
        """Requests in the engine."""
        return self._pipeline.running if self._pipeline else 0

    @property
    def errored(self) -> bool:
        """Whether the engine is dead, though the watch may not have seen it yet."""
        return self._pipeline is not None and self._pipeline.errored

    def count_aborted_stream(self) -> None:
        """Note a streamed answer that broke after its first byte."""
        self.streams_aborted += 1

    @property
    def elapsed_s(self) -> float:
        """Seconds since the service began."""
        return time.monotonic() - self._began

    def begin(self) -> None:
        """Start the engine in the background, and watch it."""
        self._task = asyncio.create_task(self._run(), name=f"{self.name}-service")

    @property
    def started(self) -> bool:
        """Whether there is an engine, ready or not."""
        return self._pipeline is not None

    def announce_stop(self) -> None:
        """Let no request in any more, and let a start in progress end at its next stage."""
        if self.status in ("starting", "ready"):
            self.status = "stopping"

    async def stop(self) -> None:
        """End the engine, whatever state it is in. Idempotent."""
        self.announce_stop()
        task, self._task = self._task, None
        if task is None:
            return
        if self._pipeline is None:
            await _abandon(task)
        task.cancel()
        await asyncio.wait({task}, timeout=ABANDON_TIMEOUT_S)
        if self._pipeline is not None:
            try:
                await asyncio.wait_for(self._pipeline.shutdown(), ENGINE_SHUTDOWN_TIMEOUT_S)
            except TimeoutError:
                logger.error(
                    "the %s engine did not shut down within %g s", self.name, ENGINE_SHUTDOWN_TIMEOUT_S
                )

    async def _run(self) -> None:
        try:
            pipeline = await self._start(self._report)
            self._pipeline = pipeline
            self._report("warming up")
            await pipeline.warm_up()
        except _StartAbandoned:
            return
        except (CheckpointError, VoxserveError, ImportError, OSError) as error:
            self._fail("failed", str(error))
            return
        except Exception:
            logger.exception("unexpected error while starting")
            self._fail("failed", "unexpected error while starting: see the log")
            return
        if self.status == "stopping":
            return
        self.status = self.stage = "ready"
        logger.info("%s is ready after %.0f s", self.name, self.elapsed_s)
        while not pipeline.errored:  # noqa: ASYNC110 (vLLM has no event for it)
            await asyncio.sleep(WATCH_INTERVAL_S)
        self._fail("dead", dead_message(self.name))

    def _report(self, stage: str) -> None:
        if self.status == "stopping":
            raise _StartAbandoned
        self.stage = stage
        logger.info("%s: %s", self.name, stage)

    def _fail(self, status: Status, message: str) -> None:
        if self.status == "stopping":
            return
        self.status, self.message = status, message
        logger.error("%s: %s", self.name, message)
        self.failed.set()


async def _abandon(start: asyncio.Task[None]) -> None:
    """End a start in progress: it fails once the processes that it waits for are gone."""
    deadline = time.monotonic() + ABANDON_TIMEOUT_S
    while not start.done() and time.monotonic() < deadline:
        kill_children()
        await asyncio.wait({start}, timeout=ABANDON_INTERVAL_S)
