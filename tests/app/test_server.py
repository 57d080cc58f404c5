"""Exit codes of the process where no engine is needed."""

import signal
import socket
import time
from pathlib import Path

import httpx

from tests.support.server_process import ServerProcess, server_process


def test_an_unusable_checkpoint_ends_the_process_with_1(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "log", SPEECH_MODEL="/nowhere/at/all")
    try:
        assert server.exit_code(30) == 1
    finally:
        server.kill()
    assert "/nowhere/at/all is not a directory" in server.log
    assert "Traceback" not in server.log


def test_a_taken_port_ends_the_process_with_1(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = ServerProcess(tmp_path / "log", PORT=str(taken.getsockname()[1]))
        try:
            assert server.exit_code(30) == 1
        finally:
            server.kill()
    assert "change HOST or PORT" in server.log
    assert "Traceback" not in server.log


def test_it_answers_at_once_and_a_signal_during_the_start_ends_it_with_0(tmp_path: Path) -> None:
    with server_process(tmp_path / "log") as server:
        assert httpx.get(f"{server.url}/healthz").status_code == 200
        status, body = server.readiness()
        assert (status, body["status"]) == (503, "starting")
        began = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert server.exit_code(20) == 0
        assert time.monotonic() - began < 15
        assert "Traceback" not in server.log
