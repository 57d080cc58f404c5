"""A voxserve process of its own, with its log, its readiness and the processes it started."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil

from tests.support.golden import CHECKPOINT

ROOT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-c", "from app.cli import main; main()", "serve")
LISTENING = re.compile(r"listening on (http://[^\s\"]+)")
START_TIMEOUT_S = 240.0
POLL_S = 0.1


class ServerProcess:
    """One process, listening or about to."""

    def __init__(self, log: Path, **settings: str) -> None:
        self._log = log
        self._seen: dict[int, psutil.Process] = {}
        variables = {"HOST": "127.0.0.1", "PORT": "0", "SPEECH_MODEL": str(CHECKPOINT)}
        variables |= {"SPEECH_KV_CACHE_BYTES": "256MiB"} | settings
        with log.open("wb") as stream:
            self.process = subprocess.Popen(
                COMMAND,
                cwd=ROOT,
                env=os.environ | variables,
                stderr=stream,
                stdout=stream,
                start_new_session=True,
            )
        self.url = ""

    @property
    def log(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    def wait_until_listening(self) -> None:
        def listening() -> bool:
            assert self.process.poll() is None, self.log
            found = LISTENING.search(self.log)
            self.url = found.group(1) if found else ""
            return bool(found)

        wait_for(listening, 60, lambda: self.log)

    def readiness(self) -> tuple[int, dict[str, object]]:
        answer = httpx.get(f"{self.url}/readyz", timeout=30)
        return answer.status_code, answer.json()

    def wait_until_ready(self) -> None:
        def ready() -> bool:
            assert self.process.poll() is None, self.log
            return self.readiness()[0] == 200

        wait_for(ready, START_TIMEOUT_S, lambda: self.log)

    def report(self, engine: str = "speech") -> dict[str, object]:
        """What `/readyz` says of one engine."""
        report = self.readiness()[1][engine]
        assert isinstance(report, dict)
        return report

    def wait_until_running(self, count: int, timeout_s: float = 10, engine: str = "speech") -> None:
        wait_for(lambda: self.report(engine).get("running") == count, timeout_s, lambda: self.log)

    def children(self) -> list[psutil.Process]:
        """All processes below, now; remembered, since they have no parent once this one is gone."""
        for process in psutil.Process(self.process.pid).children(recursive=True):
            self._seen[process.pid] = process
        return list(self._seen.values())

    def engine_processes(self) -> list[psutil.Process]:
        return [process for process in self.children() if _name(process).startswith("VLLM::")]

    def exit_code(self, timeout_s: float) -> int:
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {timeout_s} s:\n{self.log}") from None

    def orphans(self, timeout_s: float = 10) -> list[psutil.Process]:
        """Processes seen below this one that are still there after a while."""
        _, alive = psutil.wait_procs(list(self._seen.values()), timeout_s)
        return alive

    def kill(self) -> None:
        alive = [] if self.process.poll() is not None else self.children()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        for process in [*alive, *self._seen.values()]:
            if process.is_running():
                process.kill()


def _name(process: psutil.Process) -> str:
    """What it calls itself; helpers of vLLM's start may be gone already."""
    try:
        return process.name()
    except psutil.NoSuchProcess:
        return ""


@contextmanager
def server_process(log: Path, **settings: str) -> Iterator[ServerProcess]:
    """A server that is listening; nothing of it is left afterwards."""
    server = ServerProcess(log, **settings)
    try:
        server.wait_until_listening()
        yield server
    finally:
        server.kill()


def wait_for(condition: Callable[[], bool], timeout_s: float, explain: Callable[[], str]) -> None:
    """Poll until `condition` holds."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, explain()
        time.sleep(POLL_S)
