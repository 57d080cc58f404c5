"""The language engine: an asynchronous vLLM engine under vLLM's own serving classes, which render, parse
reasoning and tool calls, and lay answers out as OpenAI does. Errors become the service's own.

Handlers get an HTTP request without headers: those that vLLM would read (ranks, priorities, ids) are not for
clients to set.
"""

import asyncio
import json
from argparse import Namespace
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from starlette.datastructures import State
from starlette.requests import Request
from vllm.config import StructuredOutputsConfig
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.entrypoints.launchers.api_server.app_state import init_app_state
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.completion.protocol import CompletionRequest
from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
from vllm.entrypoints.serve.engine.protocol import ErrorResponse
from vllm.entrypoints.serve.tokenize.protocol import (
    DetokenizeRequest,
    TokenizeChatRequest,
    TokenizeCompletionRequest,
)
from vllm.platforms import current_platform
from vllm.utils.argparse_utils import FlexibleArgumentParser
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError

from app.errors import EngineDead, VoxserveError, dead_message
from app.language.errors import from_exception, from_response
from app.language.pipeline import Answer, Endpoint, JsonObject
from app.language.requests import check, parse
from app.pipeline.build import build, shared_arguments
from app.pipeline.options import LanguageOptions
from models import compat
from models.checkpoint import CONFIG_FILE, CheckpointError
from models.mimo_v2.config import MODEL_TYPES
from models.plugin import register

DEAD = dead_message("language")
PARSER = "mimo"  # of reasoning and of tool calls
THINKING = "enable_thinking"  # the chat template's switch, and the parser's, whose own default is on
SHUTDOWN_TIMEOUT_S = 20.0  # for the engine's processes to leave by themselves; then they are killed
ERROR_EVENT = 'data: {"error"'  # how an event begins by which vLLM says that a stream broke
# Events of the responses API that come before the engine has been asked.
OVERTURE = ("event: response.created\n", "event: response.in_progress\n")
WARM_UP: JsonObject = {"prompt": "Hello.", "max_tokens": 2}
WARM_UP_CHAT: JsonObject = {"messages": [{"role": "user", "content": "Hello."}]}
GRAMMARS = "xgrammar"  # vLLM's "auto" is what the first request needs, for all: later ones could break by it

Handler = Callable[[Any, Request], Awaitable[Any]]


@dataclass(frozen=True)
class _Route:
    """Where an endpoint's requests go.

    Attributes:
        request: vLLM's request class.
        handler: the method of vLLM's state that answers.
        of_messages: the request class where a body with `messages` has one of its own.
    """

    request: type[BaseModel]
    handler: Callable[[State], Handler]
    of_messages: type[BaseModel] | None = None

    def request_of(self, body: JsonObject) -> type[BaseModel]:
        """The class of a body."""
        return self.of_messages if self.of_messages and "messages" in body else self.request


ROUTES: dict[Endpoint, _Route] = {
    "chat": _Route(ChatCompletionRequest, lambda state: state.openai_serving_chat.create_chat_completion),
    "completion": _Route(CompletionRequest, lambda state: state.openai_serving_completion.create_completion),
    "response": _Route(ResponsesRequest, lambda state: state.openai_serving_responses.create_responses),
    "tokenize": _Route(
        TokenizeCompletionRequest,
        lambda state: state.serving_tokenization.create_tokenize,
        of_messages=TokenizeChatRequest,
    ),
    "detokenize": _Route(DetokenizeRequest, lambda state: state.serving_tokenization.create_detokenize),
}


class VllmPipeline:
    """A `LanguagePipeline` on one checkpoint."""

    def __init__(self, llm: AsyncLLM, serving: State) -> None:
        self._llm: AsyncLLM | None = llm
        self._serving = serving
        self._vocab_size: int = llm.model_config.get_vocab_size()

    @classmethod
    async def start(cls, checkpoint: Path, names: Sequence[str], options: LanguageOptions) -> "VllmPipeline":
        """Load `checkpoint` into a new engine and wait until it takes requests.

        Args:
            checkpoint: directory of a MiMoV2 model.
            names: what requests may call it; answers give the first.
            options: how the engine is laid out.

        Raises:
            CheckpointError: there is no configuration that can be read.
            EngineDead: the engine's process ended before it was ready, or this device cannot do that.
        """
        if current_platform.is_cpu():
            _require_what_cpus_can(options)
        arguments = make_arg_parser(FlexibleArgumentParser()).parse_args([])
        vars(arguments).update(_arguments(checkpoint, names, options))
        try:
            llm = await asyncio.to_thread(_build, arguments, options)
        except Exception as error:
            raise EngineDead(f"the language engine did not start: {error}") from error
        serving = State()
        await init_app_state(llm, serving, arguments, await llm.get_supported_tasks())
        return cls(llm, serving)

    @property
    def errored(self) -> bool:
        """Whether the engine is dead."""
        return self._llm is None or self._llm.errored

    @property
    def running(self) -> int:
        """Requests in the engine, as the API process sees it."""
        return compat.count_requests(self._llm) if self._llm else 0

    async def warm_up(self) -> None:
        """Continue a text, and render a chat."""
        await self.answer("completion", WARM_UP)
        await self.answer("tokenize", WARM_UP_CHAT)

    async def shutdown(self) -> None:
        """End the engine's processes. Running answers end with an error. Idempotent."""
        if self._llm is None:
            return
        llm, self._llm = self._llm, None
        compat.stop_outputs(llm, EngineDeadError())
        await asyncio.to_thread(llm.shutdown, SHUTDOWN_TIMEOUT_S)

    async def answer(self, endpoint: Endpoint, body: JsonObject) -> Answer:
        """See `LanguagePipeline`."""
        if self.errored:
            raise EngineDead(DEAD)
        await asyncio.to_thread(check, endpoint, body, self._vocab_size)  # a long schema takes a second
        route = ROUTES[endpoint]
        request = parse(endpoint, route.request_of(body), body)
        try:
            answer = await route.handler(self._serving)(request, Request({"type": "http", "headers": []}))
        except Exception as error:
            raise _translated(error, endpoint) from error
        if isinstance(answer, ErrorResponse):
            raise from_response(answer, endpoint)
        if isinstance(answer, BaseModel):
            return answer.model_dump_json(by_alias=True).encode()
        return self._events(answer, endpoint)

    async def _events(
        self, stream: AsyncGenerator[Any, None], endpoint: Endpoint
    ) -> AsyncGenerator[bytes, None]:
        """Server-sent events; none comes before the engine has let the request in."""
        overture = b""
        try:
            async with aclosing(stream) as items:
                async for item in items:
                    event = item if isinstance(item, str) else _named_event(item)
                    if error := self._error_in(event, endpoint):
                        raise error
                    if event.startswith(OVERTURE):
                        overture += event.encode()
                    else:
                        yield overture + event.encode()
                        overture = b""
        except VoxserveError:
            raise
        except Exception as error:
            raise _translated(error, endpoint) from error

    def _error_in(self, event: str, endpoint: Endpoint) -> VoxserveError | None:
        if not event.startswith(ERROR_EVENT):
            return None
        if self.errored:
            return EngineDead(DEAD)
        return from_response(ErrorResponse.model_validate_json(event.removeprefix("data:")), endpoint)


def _translated(error: Exception, endpoint: Endpoint) -> VoxserveError:
    return EngineDead(DEAD) if isinstance(error, EngineDeadError) else from_exception(error, endpoint)


def _named_event(item: BaseModel) -> str:
    """An event of the responses API."""
    return f"event: {item.type}\ndata: {item.model_dump_json(by_alias=True)}\n\n"  # type: ignore[attr-defined]


def _arguments(checkpoint: Path, names: Sequence[str], options: LanguageOptions) -> JsonObject:
    """What differs from the defaults of vLLM's server."""
    own_dtype = _own_dtype(checkpoint)
    draft = {"method": "mtp", "num_speculative_tokens": options.draft_tokens}
    return {
        "model": str(checkpoint),
        "served_model_name": list(names),
        "dtype": own_dtype if options.dtype == "auto" else options.dtype,
        "pipeline_parallel_size": options.pipeline_parallel_size,
        "enable_expert_parallel": options.expert_parallel,
        "speculative_config": draft if options.draft_tokens else None,
        # On a CPU compiling takes minutes; but a pipeline's later stages get their buffers by its warm-up.
        "enforce_eager": current_platform.is_cpu() and options.pipeline_parallel_size == 1,
        "use_tqdm_on_load": False,
        "enable_auto_tool_choice": True,
        "tool_call_parser": PARSER,
        "reasoning_parser": PARSER,
        "structured_outputs_config": StructuredOutputsConfig(backend=GRAMMARS),
        "default_chat_template_kwargs": {THINKING: False},
        **shared_arguments(options),
    }


def _own_dtype(checkpoint: Path) -> str:
    """What the checkpoint names; vLLM's "auto" would round float32 to bfloat16.

    Raises:
        CheckpointError: it is none, or not of MiMoV2.
    """
    path = checkpoint / CONFIG_FILE
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        kind = config.get("model_type")
    except (OSError, ValueError, AttributeError) as error:
        raise CheckpointError(f"{path} cannot be read ({error}): is LLM_MODEL a checkpoint?") from error
    if kind not in MODEL_TYPES:
        raise CheckpointError(f"{checkpoint} is of model_type {kind!r}, not MiMoV2: change LLM_MODEL")
    return str(config.get("dtype") or config.get("torch_dtype") or "auto")


def _require_what_cpus_can(options: LanguageOptions) -> None:
    if options.expert_parallel:
        raise EngineDead(
            "LLM_EXPERT_PARALLEL needs GPUs: vLLM's kernel for CPUs crashes on a part of the experts"
        )
    if not options.own_classes:
        raise EngineDead("LLM_CLASSES=vllm needs a GPU: vLLM's own MiMoV2 needs Triton")


def _build(arguments: Namespace, options: LanguageOptions) -> AsyncLLM:
    register()
    return build(AsyncEngineArgs.from_cli_args(arguments), options, ranks=options.pipeline_parallel_size)
