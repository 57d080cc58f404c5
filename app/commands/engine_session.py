"""An engine for as long as one command runs, ended cleanly by SIGINT and SIGTERM at any moment.

vLLM's processes do not see a terminal's Ctrl+C, so that it is this process alone that ends them.
"""

import asyncio
import importlib
import os
import signal
import sys
import warnings
from collections.abc import Awaitable, Callable

from app.pipeline.speech import SpeechPipeline
from app.pipeline.start import start_speech
from app.processes import kill_children, starter_threads
from app.settings import Settings

KILL_INTERVAL_S = 0.1
SIGNAL_EXIT = 128  # plus the signal's number, as shells report it

Work = Callable[[SpeechPipeline], Awaitable[int]]


def run_with_engine(settings: Settings, work: Work, *, verbose: bool) -> int:
    """Start an engine, let `work` use it, end it. Returns the exit code: that of `work`, or the signal's.

    Raises:
        CheckpointError: the checkpoint is unusable.
        EngineDead: the engine did not start.
    """
    _quieten(verbose)
    importlib.import_module("app.pipeline.engine")  # here, where Ctrl+C can interrupt it
    return asyncio.run(_Session(settings, work).run())


class _Session:
    def __init__(self, settings: Settings, work: Work) -> None:
        self._settings = settings
        self._work = work
        self._signal: int | None = None

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(starter_threads())
        task = asyncio.current_task()
        assert task is not None
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._interrupt, number, task)
        try:
            return await self._use(await self._start())
        except asyncio.CancelledError:
            if self._signal is None:
                raise
            return SIGNAL_EXIT + self._signal
        finally:
            kill_children()

    def _interrupt(self, number: int, task: asyncio.Task[int]) -> None:
        self._signal = self._signal or number
        task.cancel()

    async def _start(self) -> SpeechPipeline:
        start = asyncio.create_task(start_speech(self._settings, _ignore))
        try:
            return await asyncio.shield(start)
        except asyncio.CancelledError:
            # The start is in a thread, which ends once the processes that it waits for are gone.
            while not start.done():
                kill_children()
                await asyncio.wait({start}, timeout=KILL_INTERVAL_S)
            if not start.cancelled() and start.exception() is None:
                await start.result().engine.shutdown()
            raise

    async def _use(self, pipeline: SpeechPipeline) -> int:
        try:
            return await self._work(pipeline)
        finally:
            # Nothing is left to finish, and what vLLM does to end takes ten seconds.
            end = asyncio.create_task(pipeline.engine.shutdown())
            await asyncio.sleep(0)  # it notes that the end is wanted
            kill_children()
            await end


def _quieten(verbose: bool) -> None:
    """Keep vLLM and Python quiet, here and in the engine's processes. What the user set stays."""
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "INFO" if verbose else "WARNING")
    os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")
    if not verbose and not sys.warnoptions:
        os.environ.setdefault("PYTHONWARNINGS", "ignore")
        warnings.simplefilter("ignore")


def _ignore(_stage: str) -> None:
    """Hear of a stage of the start, and say nothing: it is the command that knows what to say."""
