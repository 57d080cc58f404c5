"""The speech engine's life within the service: started while the server already answers, watched, ended.

    starting -> ready -> dead        the engine's process ended; the server is to stop
        |         `----> stopping    the server stops
        `-------> failed             it did not start; the server is to stop

`failed` is set when the server has to stop by itself; a supervisor is expected to start it anew.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Literal

from fastapi import FastAPI

from app.errors import DEAD_MESSAGE, EngineDead, EngineStarting, VoxserveError
from app.pipeline.generation import Generation
from app.pipeline.speech import SpeechPipeline, SpeechRequest
from app.pipeline.start import StartPipeline
from app.processes import kill_children
from app.settings import Settings
from models.voxcpm2.config import CheckpointError

WATCH_INTERVAL_S = 1.0
ABANDON_INTERVAL_S = 0.2
ABANDON_TIMEOUT_S = 5.0  # for a start that is in a thread, which cannot be interrupted
ENGINE_SHUTDOWN_TIMEOUT_S = 25.0  # the engine kills its own processes before

logger = logging.getLogger(__name__)

Status = Literal["starting", "ready", "failed", "dead", "stopping"]


class _StartAbandoned(Exception):
    """The server stops before the engine was ready."""


class SpeechService:
    """One speech pipeline and its state."""

    def __init__(self, settings: Settings, start: StartPipeline) -> None:
        self.failed = asyncio.Event()
        self.status: Status = "starting"
        self.stage = "starting"
        self.message = ""
        self.streams_aborted = 0
        self._settings = settings
        self._start = start
        self._began = time.monotonic()
        self._pipeline: SpeechPipeline | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def pipeline(self) -> SpeechPipeline:
        """The pipeline, once it is ready.

        Raises:
            EngineStarting: it is not yet; says which stage it is in.
            EngineDead: it is gone.
        """
        if self.status == "starting":
            raise EngineStarting(
                f"the speech engine is not ready yet ({self.stage}, {self.elapsed_s:.0f} s): try again soon"
            )
        if self.status != "ready" or self._pipeline is None:
            raise EngineDead(self.message or "the service is stopping: try again in a minute")
        if self.errored:
            raise EngineDead(DEAD_MESSAGE)
        return self._pipeline

    @property
    def running(self) -> int:
        """Requests in the engine."""
        return self._pipeline.engine.running if self._pipeline else 0

    @property
    def errored(self) -> bool:
        """Whether the engine is dead, though the watch may not have seen it yet."""
        return self._pipeline is not None and self._pipeline.engine.errored

    def count_aborted_stream(self) -> None:
        """Note a streamed answer that broke after its first byte."""
        self.streams_aborted += 1

    @property
    def elapsed_s(self) -> float:
        """Seconds since the service began."""
        return time.monotonic() - self._began

    @asynccontextmanager
    async def lifespan(self, _app: FastAPI) -> AsyncIterator[None]:
        """Run beside the application: the start in the background, the end awaited."""
        self._task = asyncio.create_task(self._run(), name="speech-service")
        yield
        await self.stop()

    async def stop(self) -> None:
        """End the engine, whatever state it is in. Idempotent."""
        if self.status in ("starting", "ready"):
            self.status = "stopping"
        task, self._task = self._task, None
        if task is None:
            return
        if self._pipeline is None:
            await self._abandon(task)
        task.cancel()
        await asyncio.wait({task}, timeout=ABANDON_TIMEOUT_S)
        if self._pipeline is not None:
            try:
                await asyncio.wait_for(self._pipeline.engine.shutdown(), ENGINE_SHUTDOWN_TIMEOUT_S)
            except TimeoutError:
                logger.error("the engine did not shut down within %g s", ENGINE_SHUTDOWN_TIMEOUT_S)
        kill_children()

    async def _run(self) -> None:
        try:
            pipeline = await self._start(self._settings, self._report)
            self._pipeline = pipeline
            self._report("warming up")
            await _warm_up(pipeline)
        except _StartAbandoned:
            return
        except (CheckpointError, VoxserveError, ImportError, OSError) as error:
            self._fail("failed", str(error))
            return
        except Exception:
            logger.exception("unexpected error while starting")
            self._fail("failed", "unexpected error while starting: see the log")
            return
        self.status = self.stage = "ready"
        logger.info("ready after %.0f s", self.elapsed_s)
        while not pipeline.engine.errored:  # noqa: ASYNC110 (vLLM has no event for it)
            await asyncio.sleep(WATCH_INTERVAL_S)
        self._fail("dead", DEAD_MESSAGE)

    def _report(self, stage: str) -> None:
        if self.status == "stopping":
            raise _StartAbandoned
        self.stage = stage
        logger.info("%s", stage)

    def _fail(self, status: Status, message: str) -> None:
        if self.status == "stopping":
            return
        self.status, self.message = status, message
        logger.error("%s", message)
        self.failed.set()

    async def _abandon(self, start: asyncio.Task[None]) -> None:
        """End a start in progress: it fails once the processes that it waits for are gone."""
        deadline = time.monotonic() + ABANDON_TIMEOUT_S
        while not start.done() and time.monotonic() < deadline:
            kill_children()
            await asyncio.wait({start}, timeout=ABANDON_INTERVAL_S)


async def _warm_up(pipeline: SpeechPipeline) -> None:
    """Speak one patch by the way that requests take."""
    request = SpeechRequest("Hello.", Generation(seed=0, max_patches=1))
    prompt = await pipeline.prepare(request)
    async with aclosing(pipeline.speak(prompt, request.generation)) as patches:
        async for _ in patches:
            pass
