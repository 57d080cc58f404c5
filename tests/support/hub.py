"""A Hugging Face hub on loopback: the calls that a snapshot download makes, with two revisions."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

REPOSITORY = "someone/voice"
COMMITS = {"main": "1" * 40, "v1": "2" * 40}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    files: Path
    requests: list[str]

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def log_message(self, *_: object) -> None:
        self.requests.append(self.path)

    def _answer(self, with_body: bool) -> None:
        parts = self.path.split("?")[0].strip("/").split("/")
        if parts[:2] == ["api", "models"] and "/".join(parts[2:4]) == REPOSITORY and "tree" in parts:
            entries = [
                {"type": "file", "path": path.name, "size": path.stat().st_size, "oid": "0" * 40}
                for path in sorted(self.files.iterdir())
            ]
            self._send(200, json.dumps(entries).encode(), {"Content-Type": "application/json"}, with_body)
        elif parts[:2] == ["api", "models"] and "/".join(parts[2:4]) == REPOSITORY:
            revision = parts[5] if len(parts) > 5 else "main"
            commit = COMMITS.get(revision)
            if commit is None:
                self._send(404, b"", {"X-Error-Code": "RevisionNotFound"}, with_body)
                return
            names = [{"rfilename": path.name} for path in sorted(self.files.iterdir())]
            body = {"id": REPOSITORY, "modelId": REPOSITORY, "sha": commit, "siblings": names}
            self._send(200, json.dumps(body).encode(), {"Content-Type": "application/json"}, with_body)
        elif "/".join(parts[:2]) == REPOSITORY and parts[2] == "resolve":
            content = (self.files / parts[4]).read_bytes()
            etag = hashlib.sha256(content).hexdigest()
            self._send(200, content, {"ETag": f'"{etag}"', "X-Repo-Commit": parts[3]}, with_body)
        else:
            self._send(404, b"", {"X-Error-Code": "RepoNotFound"}, with_body)

    def _send(self, status: int, body: bytes, headers: dict[str, str], with_body: bool) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if with_body:
            self.wfile.write(body)


@contextmanager
def serve_hub(files: Path) -> Iterator[tuple[str, list[str]]]:
    """A hub that has one repository with the files of a directory; yields its address and a request log."""
    requests: list[str] = []
    handler = type("Handler", (_Handler,), {"files": files, "requests": requests})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", requests
        finally:
            server.shutdown()
            thread.join()
