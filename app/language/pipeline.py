"""What the language routes need of an engine. Free of vLLM: the server listens before it loads."""

from collections.abc import AsyncGenerator
from typing import Any, Literal, Protocol

from app.lifecycle import Pipeline

Endpoint = Literal["chat", "completion", "response", "tokenize", "detokenize"]
JsonObject = dict[str, Any]
Answer = bytes | AsyncGenerator[bytes, None]  # a JSON document, or server-sent events


class LanguagePipeline(Pipeline, Protocol):
    """Text from one language model."""

    async def answer(self, endpoint: Endpoint, body: JsonObject) -> Answer:
        """Answer one request. Cancelling the call, or closing the stream, aborts it in the engine.

        A stream's first event says that the engine has let the request in; streams raise the same errors.

        Raises:
            RequestValidationError: a field is wrong.
            InvalidRequest: the request cannot be served as it stands.
            EngineDead: the engine died.
            GenerationFailed: this request broke.
        """
        ...
