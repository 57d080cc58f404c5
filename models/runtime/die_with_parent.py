"""No engine process outlives the one that started it, even where that one was killed.

vLLM's workers watch the engine core, but the core does not watch the process of the API.
"""

import multiprocessing
import os
import threading
from functools import cache
from multiprocessing.process import BaseProcess

PARENT_DIED = 1  # exit code


@cache
def die_with_parent() -> None:
    """Start a thread that ends this process with its parent, once. Without a parent, do nothing."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_wait_and_die, args=(parent,), name="die-with-parent", daemon=True).start()


def _wait_and_die(parent: BaseProcess) -> None:
    parent.join()  # on a pipe that the parent holds: exact, at once, without polling
    os._exit(PARENT_DIED)
