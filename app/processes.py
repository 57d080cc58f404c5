"""The engine's processes as their parent sees them: deaf to Ctrl+C, and gone when they have to be."""

import multiprocessing.resource_tracker
import signal
from concurrent.futures import ThreadPoolExecutor


def starter_threads() -> ThreadPoolExecutor:
    """Threads whose child processes do not hear the Ctrl+C that a terminal sends to all: requests need them.

    Processes inherit the signal mask of the thread that starts them. The resource tracker is started first:
    starting it unblocks the signal.
    """
    return ThreadPoolExecutor(initializer=_block_sigint)


def _block_sigint() -> None:
    multiprocessing.resource_tracker.ensure_running()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})


def kill_children() -> None:
    """Kill the engine's processes that are still there; those they started end with them."""
    for child in multiprocessing.active_children():
        child.kill()
