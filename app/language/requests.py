"""From a body to vLLM's request class, checked for what the class lets through and the engine or a chat
template would stumble over, or pass over in silence.
"""

import re
from collections.abc import Callable, Mapping
from itertools import takewhile
from typing import Any

from fastapi.exceptions import RequestValidationError
from jsonschema.exceptions import SchemaError
from jsonschema.validators import Draft202012Validator, validator_for
from pydantic import BaseModel, ValidationError

from app.errors import InvalidRequest
from app.language.pipeline import Endpoint, JsonObject

ROLES = ("system", "developer", "user", "assistant", "tool")
MAY_BE_SILENT = "assistant"  # the role whose messages may have tool calls in place of content
TOOL_NAME = re.compile("[A-Za-z0-9_-]{1,64}")  # OpenAI's rule
MAX_CHOICES = 128  # OpenAI's limit of `n`
FIELD = re.compile("[a-z][a-z0-9_]*")
NO_FORM = "has none of the forms that it may have: see OpenAI's reference"
TYPES = ("str", "int", "float", "bool", "list", "dict")  # pydantic names the branches of a union so


def parse(cls: type[BaseModel], body: JsonObject) -> BaseModel:
    """Validate a body.

    Raises:
        RequestValidationError: a field is wrong. What is wrong in each branch of a union is told as one
            problem of the whole field: the branches are vLLM's affair.
    """
    try:
        return cls.model_validate(body)
    except ValidationError as error:
        problems: dict[tuple[int | str, ...], Mapping[str, Any]] = {}
        for problem in error.errors():
            field = tuple(takewhile(_is_of_a_field, problem["loc"]))
            whole: Mapping[str, Any] = (
                problem if field == problem["loc"] else {"type": "union", "msg": NO_FORM}
            )
            problems.setdefault(field, {**whole, "loc": ("body", *field)})
        raise RequestValidationError(list(problems.values())) from error


def _is_of_a_field(part: int | str) -> bool:
    return isinstance(part, int) or (FIELD.fullmatch(part) is not None and part not in TYPES)


def check(endpoint: Endpoint, body: JsonObject, vocab_size: int) -> None:
    """Check a body before it is parsed.

    Raises:
        InvalidRequest: names the field.
    """
    for look in CHECKS[endpoint]:
        look(body)
    for field in ("prompt", "tokens"):
        _check_tokens(body.get(field), field, vocab_size)


def _check_messages(body: JsonObject) -> None:
    messages = body.get("messages")
    if not isinstance(messages, list):
        return  # the request class says so
    if not messages:
        raise InvalidRequest("messages is empty: give at least one message", "messages")
    for index, message in enumerate(messages):
        _check_message(message, f"messages.{index}")


def _check_message(message: object, field: str) -> None:
    role = message.get("role") if isinstance(message, Mapping) else None
    if not isinstance(message, Mapping) or role not in ROLES:
        raise InvalidRequest(
            f"{field}.role is {_shown(role)}: use one of {', '.join(ROLES)}", f"{field}.role"
        )
    content = message.get("content")
    if not isinstance(content, str | list) and not (role == MAY_BE_SILENT and content is None):
        raise InvalidRequest(
            f"{field}.content is {_shown(content)}: give a text, or a list of parts", f"{field}.content"
        )


def _check_tools(body: JsonObject) -> None:
    tools = body.get("tools")
    for index, tool in enumerate(tools if isinstance(tools, list) else ()):
        if not isinstance(tool, Mapping):
            continue
        nested = isinstance(tool.get("function"), Mapping)  # chat nests it, responses do not
        function = tool["function"] if nested else tool
        field = f"tools.{index}.function" if nested else f"tools.{index}"
        name = function.get("name")
        if isinstance(name, str) and not TOOL_NAME.fullmatch(name):
            raise InvalidRequest(
                f"{field}.name is {_shown(name)}: use up to 64 letters, digits, _ and -", f"{field}.name"
            )
        if function.get("parameters") is not None:
            _check_schema(function["parameters"], f"{field}.parameters")


def _check_answer_schema(body: JsonObject) -> None:
    wanted = body.get("response_format")
    described = wanted.get("json_schema") if isinstance(wanted, Mapping) else None
    if isinstance(described, Mapping) and described.get("schema") is not None:
        _check_schema(described["schema"], "response_format.json_schema.schema")


def _check_schema(schema: Any, field: str) -> None:
    if not isinstance(schema, Mapping):
        raise InvalidRequest(f"{field} must be a JSON schema, hence an object", field)
    try:
        validator_for(schema, default=Draft202012Validator).check_schema(schema)
    except SchemaError as error:
        where = "".join(f".{part}" for part in error.absolute_path)
        raise InvalidRequest(
            f"{field} is not a JSON schema: at {field}{where}, {error.message}", field
        ) from error


def _check_choices(body: JsonObject) -> None:
    count = body.get("n")
    if isinstance(count, int) and count > MAX_CHOICES:
        raise InvalidRequest(f"n is {count}: ask for at most {MAX_CHOICES} choices", "n")


def _check_template(body: JsonObject) -> None:
    if body.get("chat_template"):
        raise InvalidRequest("chat_template is not taken from requests: leave it out", "chat_template")


def _check_history(body: JsonObject) -> None:
    if body.get("previous_response_id"):
        raise InvalidRequest(
            "responses are not stored here: send the whole conversation as input", "previous_response_id"
        )


def _check_tokens(tokens: object, field: str, vocab_size: int) -> None:
    """Check the token ids of a list, or of the lists in it."""
    for index, token in enumerate(tokens if isinstance(tokens, list) else ()):
        within = enumerate(token) if isinstance(token, list) else ((None, token),)
        for place, one in within:
            if isinstance(one, int) and not 0 <= one < vocab_size:
                where = f"{field}.{index}" if place is None else f"{field}.{index}.{place}"
                raise InvalidRequest(
                    f"{where} is {_shown(one)}: the vocabulary has {vocab_size} tokens", where
                )


def _shown(value: object) -> str:
    return "missing" if value is None else repr(value)[:64]


CHECKS: dict[Endpoint, tuple[Callable[[JsonObject], None], ...]] = {
    "chat": (_check_messages, _check_tools, _check_answer_schema, _check_choices, _check_template),
    "completion": (_check_answer_schema, _check_choices),
    "response": (_check_tools, _check_history),
    "tokenize": (_check_messages, _check_tools, _check_template),
    "detokenize": (),
}
