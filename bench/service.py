"""A voxserve process to measure: the real service, by HTTP."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

COMMAND = (str(Path(sys.executable).with_name("voxserve")), "serve", "--port", "0")
LISTENING = re.compile(r"listening on (http://[^\s\"]+)")
START_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 60.0
POLL_S = 0.2


@contextmanager
def service(log: Path, **settings: str) -> Iterator[str]:
    """The address of a service under these settings, once it is ready. It ends with the block.

    Raises:
        RuntimeError: it does not become ready; with its log.
    """
    with log.open("wb") as stream:
        process = subprocess.Popen(
            COMMAND, env=os.environ | settings, stdout=stream, stderr=stream, start_new_session=True
        )
    try:
        yield _ready(process, log)
    finally:
        process.terminate()
        process.wait(STOP_TIMEOUT_S)


def _ready(process: "subprocess.Popen[bytes]", log: Path) -> str:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        found = LISTENING.search(log.read_text(encoding="utf-8"))
        if found and _is_ready(found[1]):
            return found[1]
        time.sleep(POLL_S)
    raise RuntimeError(f"the service did not become ready:\n{log.read_text(encoding='utf-8')}")


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz", timeout=30).status_code == httpx.codes.OK
    except httpx.TransportError:  # it ends
        return False
