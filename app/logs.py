"""Logs: one line a record, in logfmt, with the id of its request. Never the text of a request."""

import json
import logging
import os
import re
import sys
from contextvars import ContextVar
from datetime import UTC, datetime

request_id: ContextVar[str] = ContextVar("request_id", default="")

PLAIN_VALUE = re.compile(r"[^\s\"=]+")


class LineFormatter(logging.Formatter):
    """`ts=... level=info logger=app.server request_id=... msg="..."`; a traceback follows as `exc`."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line."""
        pairs = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "request_id": request_id.get(),
            "msg": record.getMessage(),
            "exc": self.formatException(record.exc_info) if record.exc_info else "",
        }
        return " ".join(f"{key}={_quoted(value)}" for key, value in pairs.items() if value)


def configure_logging(level: str) -> None:
    """Send all records of this process to standard error, at `level` (a name in lower case).

    vLLM reads its level from the environment, in this process and in the engine's. It has dozens of lines of
    information a start, so they come at our debug level only; a level that the user set for it stays.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for chatty in ("uvicorn.error", "asyncio", "httpx", "urllib3", "filelock", "huggingface_hub"):
        logging.getLogger(chatty).setLevel(
            max(logging.WARNING, logging.getLevelNamesMapping()[level.upper()])
        )
    quieter = {"debug": "DEBUG", "info": "WARNING"}.get(level, level.upper())
    logging.getLogger("vllm").setLevel(os.environ.setdefault("VLLM_LOGGING_LEVEL", quieter).upper())


def _quoted(value: str) -> str:
    return value if PLAIN_VALUE.fullmatch(value) else json.dumps(value, ensure_ascii=False)
