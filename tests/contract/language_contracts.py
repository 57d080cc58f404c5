"""What the language endpoints rely on in vLLM: its server's arguments and state, its requests and errors."""

import inspect
import json
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.reasoning import ReasoningParserManager
from vllm.tool_parsers import ToolParserManager
from vllm.utils.argparse_utils import FlexibleArgumentParser

from tests.support.contracts import Contract, Symbol, accepts, all_of, annotated, exists, parameters
from tests.support.vllm_uses import (
    ASYNC_LLM,
    CHATS,
    COMPLETIONS,
    ERROR_INFO,
    ERROR_RESPONSE,
    OPENAI,
    RESPONSES,
    TOKENIZATION,
    VALIDATION_ERROR,
)

TOKENIZE = "vllm.entrypoints.serve.tokenize.protocol"
# What `_arguments` sets beside what every engine shares.
ARGUMENTS = {
    "model",
    "served_model_name",
    "dtype",
    "pipeline_parallel_size",
    "enable_expert_parallel",
    "speculative_config",
    "enforce_eager",
    "use_tqdm_on_load",
    "enable_auto_tool_choice",
    "tool_call_parser",
    "reasoning_parser",
    "default_chat_template_kwargs",
    "structured_outputs_config",
}


def fills_the_state(symbol: Symbol) -> None:
    from vllm.entrypoints.generate.api_router import init_generate_state

    parameters("engine_client", "state", "args", "supported_tasks")(symbol)
    source = symbol.source + inspect.getsource(init_generate_state)
    for name in (
        "serving_tokenization = ServingTokenization(",
        "openai_serving_chat = (\n        OpenAIServingChat(",
        "openai_serving_completion = (\n        OpenAIServingCompletion(",
        "openai_serving_responses = (\n        OpenAIServingResponses(",
    ):
        assert f"state.{name}" in source, f"it sets no {name.partition(' ')[0]}"


def has_our_arguments(symbol: Symbol) -> None:
    """Parsing nothing gives the defaults of vLLM's server, of which we know the names that we change."""
    arguments = vars(symbol.value(FlexibleArgumentParser()).parse_args([]))
    missing = ARGUMENTS - set(arguments)
    assert not missing, f"there are no arguments {missing}"
    assert arguments["enable_log_requests"] is False, "texts of requests are logged by default"
    assert "mimo" in ToolParserManager.list_registered(), "there is no tool parser mimo"
    assert "mimo" in ReasoningParserManager.list_registered(), "there is no reasoning parser mimo"


def keeps_what_was_set(symbol: Symbol) -> None:
    arguments = make_arg_parser(FlexibleArgumentParser()).parse_args([])
    vars(arguments).update(model="somewhere", device_ids=[1], served_model_name=["a", "b"])
    made = symbol.value(arguments)
    found = made.model, made.device_ids, made.served_model_name
    assert found == ("somewhere", [1], ["a", "b"]), f"it made {found}"


def answers(symbol: Symbol, kinds: tuple[str, ...]) -> None:
    parameters("request", "raw_request")(symbol)
    assert inspect.iscoroutinefunction(symbol.value), "it is no coroutine"
    hint = str(inspect.signature(symbol.value).return_annotation)
    missing = [kind for kind in (*kinds, "ErrorResponse") if kind not in hint]
    assert not missing, f"it returns {hint}"


def streams(symbol: Symbol) -> None:
    """Texts that are events already; an error is one by its first characters."""
    from app.language.engine import ERROR_EVENT

    answers(symbol, ("AsyncGenerator[str, None]",))
    serving: Any = symbol.owner
    made = serving.create_streaming_error_response(
        object.__new__(serving), "why", status_code=HTTPStatus.BAD_REQUEST
    )
    assert f"data: {made}".startswith(ERROR_EVENT), f"errors in streams begin with {made[:20]}"
    source = inspect.getsource(inspect.getmodule(serving))  # type: ignore[arg-type]
    assert "self.create_streaming_error_response(e)" in source, "errors are other events"


def streams_named_events(symbol: Symbol) -> None:
    """Models with a `type`, the first two before the engine is asked."""
    from app.language.engine import OVERTURE

    answers(symbol, ("AsyncGenerator", "ResponseCreatedEvent"))
    source = inspect.getsource(symbol.owner.responses_stream_generator)
    names = [event.removeprefix("event: ").strip() for event in OVERTURE]
    places = [source.find(f'type="{name}"') for name in names]
    assert -1 not in places, f"it has no events {names}"
    assert max(places) < source.find("async for event_data in processor("), "they come later"


def answers_whole(symbol: Symbol) -> None:
    answers(symbol, ())


def reads(**body: object) -> Contract:
    """A request class that takes a body without a model, and fills the rest in."""

    def check(symbol: Symbol) -> None:
        assert issubclass(symbol.value, BaseModel), "it is no model of pydantic's"
        made = symbol.value.model_validate(body)
        assert made.model is None, f"its model is {made.model}"
        assert body.keys() <= made.model_fields_set

    return check


def keeps_value_out_of_args(symbol: Symbol) -> None:
    raised = symbol.owner("why", parameter="stop", value="the whole prompt")
    assert raised.args == ("why",), f"its args are {raised.args}"


def says_field_and_code(symbol: Symbol) -> None:
    from vllm.exceptions import VLLMValidationError

    made = symbol.value(VLLMValidationError("why", parameter="stop"))
    assert (made.error.code, made.error.param) == (HTTPStatus.BAD_REQUEST, "stop"), f"it made {made}"
    assert symbol.value(RuntimeError("why")).error.code == HTTPStatus.INTERNAL_SERVER_ERROR
    assert symbol.value(NotImplementedError("why")).error.code == HTTPStatus.NOT_IMPLEMENTED


def reads_what_streams_say(symbol: Symbol) -> None:
    error = {"message": "why", "type": "T", "param": None, "code": 400}
    made = symbol.value(json.dumps({"error": error}) + "\n\n")
    assert made.error.model_dump() == error, f"it made {made}"


def is_above_client_errors(symbol: Symbol) -> None:
    from vllm.exceptions import GracefulHTTPError, VLLMValidationError

    assert issubclass(VLLMValidationError, symbol.value)
    assert issubclass(GracefulHTTPError, symbol.value)
    assert not issubclass(symbol.value, ValueError), "pydantic would take it for a wrong field"


def counts_the_vocabulary(symbol: Symbol) -> None:
    parameters()(symbol)
    assert inspect.signature(symbol.value).return_annotation in (int, "int")


MESSAGES = [{"role": "user", "content": "Hello."}]


def pins_a_backend(symbol: Symbol) -> None:
    assert symbol.value(backend="xgrammar").backend == "xgrammar"


LANGUAGE_CONTRACTS: dict[str, Contract] = {
    "vllm.config.StructuredOutputsConfig": pins_a_backend,
    # its server's arguments and state
    "vllm.engine.arg_utils.AsyncEngineArgs.from_cli_args": keeps_what_was_set,
    "vllm.entrypoints.launchers.api_server.app_state.init_app_state": fills_the_state,
    "vllm.entrypoints.launchers.cli_args.make_arg_parser": all_of(parameters("parser"), has_our_arguments),
    "vllm.utils.argparse_utils.FlexibleArgumentParser": exists,
    f"{ASYNC_LLM}.get_supported_tasks": parameters(),
    "vllm.config.ModelConfig.get_vocab_size": counts_the_vocabulary,
    # who answers
    f"{CHATS}.create_chat_completion": streams,
    f"{COMPLETIONS}.create_completion": streams,
    f"{RESPONSES}.create_responses": streams_named_events,
    f"{TOKENIZATION}.create_tokenize": answers_whole,
    f"{TOKENIZATION}.create_detokenize": answers_whole,
    # what is asked
    f"{OPENAI}.chat_completion.protocol.ChatCompletionRequest": reads(messages=MESSAGES),
    f"{OPENAI}.completion.protocol.CompletionRequest": reads(prompt="Hello."),
    f"{OPENAI}.responses.protocol.ResponsesRequest": reads(input="Hello."),
    f"{TOKENIZE}.TokenizeChatRequest": reads(messages=MESSAGES),
    f"{TOKENIZE}.TokenizeCompletionRequest": reads(prompt="Hello."),
    f"{TOKENIZE}.DetokenizeRequest": reads(tokens=[1]),
    # what goes wrong
    ERROR_RESPONSE: exists,
    f"{ERROR_RESPONSE}.error": annotated("ErrorInfo"),
    f"{ERROR_RESPONSE}.model_validate_json": reads_what_streams_say,
    f"{ERROR_INFO}.message": annotated("str"),
    f"{ERROR_INFO}.code": annotated("int"),
    f"{ERROR_INFO}.param": annotated("str | None"),
    "vllm.entrypoints.serve.exception_handling.error_response.create_error_response": all_of(
        accepts("message"), says_field_and_code
    ),
    "vllm.exceptions.VLLMError": is_above_client_errors,
    VALIDATION_ERROR: accepts("message", "parameter", "value"),
    f"{VALIDATION_ERROR}.args": keeps_value_out_of_args,
}
