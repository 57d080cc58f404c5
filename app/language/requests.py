"""From a body to vLLM's request class, checked for what the class lets through and the engine or a chat
template would stumble over, or pass over in silence.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from itertools import takewhile
from typing import Any

from fastapi.exceptions import RequestValidationError
from jsonschema.exceptions import SchemaError
from jsonschema.validators import Draft202012Validator, validator_for
from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from vllm.exceptions import VLLMError

from app.errors import InvalidRequest
from app.language.errors import from_exception, shortened
from app.language.pipeline import Endpoint, JsonObject

ROLES = ("system", "developer", "user", "assistant", "tool")
MAY_BE_SILENT = "assistant"  # the role whose messages may have tool calls in place of content
# What messages may be made of, and where its text is. Others would have vLLM fetch what they name.
TEXT_PARTS = {
    "text": "text",
    "refusal": "refusal",
    "thinking": "thinking",
    "input_text": "text",
    "output_text": "text",
    "summary_text": "text",
    "reasoning_text": "text",
}
TOOL_NAME = re.compile("[A-Za-z0-9_-]{1,64}")  # OpenAI's rule
MAX_CHOICES = 128  # OpenAI's limit of `n`
MAX_DEPTH = 64  # of lists in objects in lists: readers of bodies recurse, some with many frames a level
# Keys and values of a schema, or of all tools. A grammar of as many takes a second to compile, in which other
# requests for structure wait; the time grows with the square.
MAX_SCHEMA_VALUES = 8_000
MAX_GRAMMAR_CHARS = 20_000  # of a regular expression, a grammar, or all choices, for the same reason
INTEGER_BITS = 64  # what travels to the engine
# What would change the answer, and has another name or none here.
ELSEWHERE = {
    "functions": "give `tools`",
    "function_call": "give `tool_choice`",
    "guided_json": "give `structured_outputs`",
    "guided_regex": "give `structured_outputs`",
    "guided_choice": "give `structured_outputs`",
    "guided_grammar": "give `structured_outputs`",
    "audio": "ask `/v1/audio/speech`",
    "web_search_options": "leave it out",
    "prompt_embeds": "give `prompt`",
    "mm_processor_kwargs": "leave it out",
    "media_io_kwargs": "leave it out",
    "background": "leave it out, and wait for the answer",
}
MAX_SHOWN_CHARS = 64  # of a value
FIELD = re.compile("[a-z][a-z0-9_]*")
NO_FIT = "the fields do not go together: see OpenAI's reference"
NO_FORM = "has none of the forms that it may have: see OpenAI's reference"
TYPES = ("str", "int", "float", "bool", "list", "dict")  # pydantic names the branches of a union so


def parse(endpoint: Endpoint, cls: type[BaseModel], body: JsonObject) -> BaseModel:
    """Validate a body that `check` has passed.

    Raises:
        RequestValidationError: a field is wrong. What is wrong in each branch of a union is told as one
            problem of the whole field: the branches are vLLM's affair.
        InvalidRequest: fields do not go together.
    """
    try:
        return cls.model_validate(dict(body))  # a copy, since vLLM writes defaults into it
    except ValidationError as error:
        raise _as_problems(error) from error
    except VLLMError as error:
        raise from_exception(error, endpoint) from error
    except Exception as error:  # vLLM's checks come before the types', and stumble over wrong ones
        raise _mistyped(endpoint, cls, body) from error


def _as_problems(error: ValidationError) -> RequestValidationError:
    problems: dict[tuple[int | str, ...], Mapping[str, Any]] = {}
    for problem in error.errors(include_url=False, include_context=False):
        field = tuple(takewhile(_is_of_a_field, problem["loc"]))
        whole = field == problem["loc"]
        kind, message = (problem["type"], shortened(problem["msg"])) if whole else ("union", NO_FORM)
        problems.setdefault(field, {"type": kind, "msg": message, "loc": ("body", *field)})
    return RequestValidationError(list(problems.values()))


def _mistyped(endpoint: Endpoint, cls: type[BaseModel], body: JsonObject) -> Exception:
    """Which fields have a wrong type."""
    try:
        _fields_alone(cls).model_validate(body)
    except ValidationError as error:
        return _as_problems(error)
    except VLLMError as error:
        return from_exception(error, endpoint)
    except Exception:  # noqa: BLE001 (checks of parts stumble as well)
        return InvalidRequest(NO_FIT)
    return InvalidRequest(NO_FIT)


@cache
def _fields_alone(cls: type[BaseModel]) -> type[BaseModel]:
    """A request class without the checks of its own."""
    fields: dict[str, Any] = {name: (field.annotation, field) for name, field in cls.model_fields.items()}
    return create_model(cls.__name__, __config__=ConfigDict(protected_namespaces=()), **fields)


def _is_of_a_field(part: int | str) -> bool:
    return isinstance(part, int) or (FIELD.fullmatch(part) is not None and part not in TYPES)


def check(endpoint: Endpoint, body: JsonObject, vocab_size: int) -> None:
    """Check a body before it is parsed.

    Raises:
        InvalidRequest: names the field.
    """
    for name, value in body.items():
        _check_value(name, value)
    for look in CHECKS[endpoint]:
        look(body)
    for field in ("prompt", "tokens"):
        _check_tokens(body.get(field), field, vocab_size)


def _check_value(name: str, value: object) -> None:
    """Refuse what JSON has not, and what is nested too deeply to be read."""
    field = name[:MAX_SHOWN_CHARS]
    level, depth = [name, value], 0
    while level:
        if depth > MAX_DEPTH:
            raise InvalidRequest(f"{field} is nested more than {MAX_DEPTH} levels deep: flatten it", field)
        for part in level:
            if isinstance(part, float) and not math.isfinite(part):
                raise InvalidRequest(f"{field} has {part}: give a finite number", field)
            if isinstance(part, int) and part.bit_length() >= INTEGER_BITS:
                raise InvalidRequest(f"{field} has a number of over {INTEGER_BITS} bits: lower it", field)
            if isinstance(part, str) and not _is_unicode(part):
                raise InvalidRequest(f"{field} has half of a surrogate pair: send valid Unicode", field)
        level, depth = [part for whole in level for part in _parts(whole)], depth + 1


def _parts(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return (*value, *value.values())
    return value if isinstance(value, list) else ()


def _check_size(value: object, field: str) -> None:
    level, size = [value], 0
    while level:
        size += len(level)
        level = [part for whole in level for part in _parts(whole)]
    if size > MAX_SCHEMA_VALUES:
        raise InvalidRequest(f"{field} has more than {MAX_SCHEMA_VALUES} keys and values: shorten it", field)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


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
    _check_parts(content, f"{field}.content")


def _check_input(body: JsonObject) -> None:
    """The messages of a response, and what tools returned."""
    items = body.get("input")
    for index, item in enumerate(items if isinstance(items, list) else ()):
        for name in ("content", "output"):
            if isinstance(item, Mapping):
                _check_parts(item.get(name), f"input.{index}.{name}")


def _check_parts(parts: object, field: str) -> None:
    for index, part in enumerate(parts if isinstance(parts, list) else ()):
        kind = part.get("type") if isinstance(part, Mapping) else None
        key = TEXT_PARTS.get(kind) if isinstance(kind, str) else None
        if key is None:
            raise InvalidRequest(
                f"{field}.{index} is of type {_shown(kind)}: the model reads texts alone", f"{field}.{index}"
            )
        if not isinstance(part.get(key), str):
            raise InvalidRequest(f"{field}.{index}.{key} must be a text", f"{field}.{index}.{key}")


def _check_tools(body: JsonObject) -> None:
    tools = body.get("tools")
    _check_size(tools, "tools")
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


def _check_text_schema(body: JsonObject) -> None:
    text = body.get("text")
    wanted = text.get("format") if isinstance(text, Mapping) else None
    if isinstance(wanted, Mapping) and wanted.get("schema") is not None:
        _check_schema(wanted["schema"], "text.format.schema")


def _check_schema(schema: Any, field: str) -> None:
    if not isinstance(schema, Mapping):
        raise InvalidRequest(f"{field} must be a JSON schema, hence an object", field)
    if not isinstance(schema.get("$schema", ""), str):
        raise InvalidRequest(f"{field}.$schema must be the address of a metaschema", field)
    _check_size(schema, field)
    try:
        validator_for(schema, default=Draft202012Validator).check_schema(schema)
    except SchemaError as error:
        where = shortened("".join(f".{part}" for part in error.absolute_path))
        raise InvalidRequest(
            f"{field} is not a JSON schema: at {field}{where}, {shortened(error.message)}", field
        ) from error
    except (ValueError, ArithmeticError) as error:  # of addresses and patterns that Python cannot read
        raise InvalidRequest(f"{field} is not a JSON schema: {shortened(str(error))}", field) from error


def _check_structure(body: JsonObject) -> None:
    """vLLM's own field for structured output."""
    wanted = body.get("structured_outputs")
    if not isinstance(wanted, Mapping):
        return
    if isinstance(wanted.get("json"), Mapping):
        _check_schema(wanted["json"], "structured_outputs.json")
    for name, text in wanted.items():
        choices = text if isinstance(text, list) else [text]
        size = sum(len(choice) for choice in choices if isinstance(choice, str))
        if size > MAX_GRAMMAR_CHARS:
            field = f"structured_outputs.{name}"[:MAX_SHOWN_CHARS]
            raise InvalidRequest(
                f"{field} has {size} characters, the limit is {MAX_GRAMMAR_CHARS}: shorten it", field
            )


def _check_elsewhere(body: JsonObject) -> None:
    for name, advice in ELSEWHERE.items():
        if body.get(name):
            raise InvalidRequest(f"{name} is not served here: {advice}", name)


def _check_choices(body: JsonObject) -> None:
    count = body.get("n")
    if isinstance(count, int) and count > MAX_CHOICES:
        raise InvalidRequest(f"n is {_shown(count)}: ask for at most {MAX_CHOICES} choices", "n")


def _check_template(body: JsonObject) -> None:
    if body.get("chat_template") is not None:
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
    return "missing" if value is None else repr(value)[:MAX_SHOWN_CHARS]


CHECKS: dict[Endpoint, tuple[Callable[[JsonObject], None], ...]] = {
    "chat": (
        _check_elsewhere,
        _check_messages,
        _check_tools,
        _check_answer_schema,
        _check_structure,
        _check_choices,
        _check_template,
    ),
    "completion": (_check_elsewhere, _check_answer_schema, _check_structure, _check_choices),
    "response": (_check_elsewhere, _check_input, _check_tools, _check_text_schema, _check_history),
    "tokenize": (_check_messages, _check_tools, _check_template),
    "detokenize": (),
}
