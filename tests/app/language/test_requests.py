"""Bodies of language requests: what is let through, what is refused and by which name; and nothing, however
odd, that is neither.
"""

import json
from typing import Any

import pytest
from fastapi.exceptions import RequestValidationError
from hypothesis import HealthCheck, given
from hypothesis import settings as effort
from hypothesis import strategies as st
from pydantic import BaseModel

from app.errors import InvalidRequest
from app.language.engine import ROUTES
from app.language.pipeline import Endpoint, JsonObject
from app.language.requests import MAX_CHOICES, MAX_DEPTH, MAX_SCHEMA_VALUES, check, parse
from app.routes import language as route

VOCAB_SIZE = 320
MESSAGES = [{"role": "user", "content": "Hello."}]
TEXT = {"type": "text", "text": "Hi."}
OUTPUT_MESSAGE = {
    "type": "message",
    "id": "msg_1",
    "status": "completed",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "Yes?", "annotations": []}],
}
IMAGE = {"type": "image_url", "image_url": {"url": "http://127.0.0.1/"}}
MAX_MESSAGE_CHARS = 500
MARKER = "confidential "
PROMPT = MARKER * 50


def read(endpoint: Endpoint, body: JsonObject) -> BaseModel:
    """The way of every body."""
    check(endpoint, body, VOCAB_SIZE)
    return parse(endpoint, ROUTES[endpoint].request_of(body), body)


def refusal(endpoint: Endpoint, body: JsonObject) -> tuple[str, str]:
    """The field that is blamed, and what is said."""
    with pytest.raises((InvalidRequest, RequestValidationError)) as caught:
        read(endpoint, body)
    error = caught.value
    if isinstance(error, InvalidRequest):
        return error.param or "", str(error)
    problem = error.errors()[0]
    return ".".join(map(str, problem["loc"][1:])), problem["msg"]


def nested(depth: int) -> Any:
    value: Any = {}
    for _ in range(depth - 1):
        value = {"properties": value}
    return value


def tool(**function: object) -> list[dict[str, object]]:
    return [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}} | function}]


CHAT_TOOL = tool()
RESPONSE_TOOL = {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": False}


@pytest.mark.parametrize(
    ("endpoint", "body"),
    [
        ("chat", route.EXAMPLE_CHAT),
        (
            "chat",
            {"messages": [{"role": role, "content": "Hi."} for role in ("system", "developer", "user")]},
        ),
        ("chat", {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi."}]}]}),
        (
            "chat",
            {
                "messages": [
                    *MESSAGES,
                    {
                        "role": "assistant",
                        "tool_calls": [
                            {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
                        ],
                    },
                    {"role": "tool", "tool_call_id": "1", "content": "done"},
                ]
            },
        ),
        ("chat", {"messages": MESSAGES, "tools": CHAT_TOOL, "tool_choice": "required"}),
        ("chat", {"messages": MESSAGES, "tools": tool(parameters=None)}),
        ("chat", {"messages": MESSAGES, "n": MAX_CHOICES}),
        ("chat", {"messages": MESSAGES, "chat_template": None, "stop": None, "seed": None}),
        ("chat", {"messages": MESSAGES, "temperature": 0, "stop": ["a", "b"], "seed": -1}),
        ("chat", {"messages": MESSAGES, "reasoning_effort": "high"}),
        ("chat", {"messages": MESSAGES, "chat_template_kwargs": {"enable_thinking": True}}),
        ("chat", {"messages": MESSAGES, "response_format": {"type": "json_object"}}),
        (
            "chat",
            {
                "messages": MESSAGES,
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "s", "schema": {"$schema": "elsewhere", "type": "object"}},
                },
            },
        ),
        ("chat", {"messages": MESSAGES, "stream": True, "stream_options": {"include_usage": True}}),
        ("chat", {"messages": MESSAGES, "metadata": {"any": "thing"}, "store": True}),
        ("completion", route.EXAMPLE_TEXT),
        ("completion", {"prompt": ["a", "b"], "logprobs": 2, "echo": True}),
        ("completion", {"prompt": [0, VOCAB_SIZE - 1]}),
        ("completion", {"prompt": [[1], [2, 3]]}),
        ("response", route.EXAMPLE_RESPONSE),
        (
            "response",
            {
                "input": [
                    {"role": "user", "content": [{"type": "input_text", "text": "Hi."}]},
                    OUTPUT_MESSAGE,
                    {"type": "function_call_output", "call_id": "1", "output": "done"},
                ]
            },
        ),
        ("response", {"input": MESSAGES, "reasoning": {"effort": "low"}, "tools": [RESPONSE_TOOL]}),
        (
            "response",
            {
                "input": "Hi.",
                "text": {"format": {"type": "json_schema", "name": "s", "schema": {"type": "object"}}},
            },
        ),
        ("tokenize", {"prompt": ""}),
        ("tokenize", {"messages": MESSAGES, "tools": CHAT_TOOL}),
        ("detokenize", {"tokens": []}),
        ("detokenize", route.EXAMPLE_TOKENS),
    ],
)
def test_accepted(endpoint: Endpoint, body: JsonObject) -> None:
    # As it comes from the wire, and with the model's name or without.
    for name in ({}, {"model": None}, {"model": "mimo-v2"}):
        whole = json.loads(json.dumps(body | name))
        assert isinstance(read(endpoint, whole), ROUTES[endpoint].request_of(body))


CHAT_REFUSED: list[tuple[dict[str, object], str, str]] = [
    ({"model": 5}, "model", "valid string"),
    ({"messages": []}, "messages", "is empty"),
    ({"messages": None}, "messages", "valid list"),
    ({"messages": 5}, "messages", "valid list"),
    ({"messages": "Hello."}, "messages", "valid list"),
    ({"messages": ["Hello."]}, "messages.0.role", "is missing: use one of system"),
    ({"messages": [{"content": "Hello."}]}, "messages.0.role", "is missing"),
    ({"messages": [*MESSAGES, {"role": "wizard", "content": ""}]}, "messages.1.role", "'wizard': use one of"),
    ({"messages": [{"role": ["user"], "content": ""}]}, "messages.0.role", "['user']"),
    ({"messages": [{"role": "user"}]}, "messages.0.content", "is missing: give a text"),
    ({"messages": [{"role": "user", "content": None}]}, "messages.0.content", "is missing"),
    ({"messages": [{"role": "user", "content": 7}]}, "messages.0.content", "is 7"),
    ({"messages": [{"role": "assistant", "content": {}}]}, "messages.0.content", "is {}"),
    ({"messages": [{"role": "user", "content": [5]}]}, "messages.0.content.0", "is of type missing"),
    ({"messages": [{"role": "user", "content": ["a"]}]}, "messages.0.content.0", "reads texts alone"),
    ({"messages": [{"role": "user", "content": [{"text": "a"}]}]}, "messages.0.content.0", "type missing"),
    ({"messages": [{"role": "user", "content": [{"type": ["text"]}]}]}, "messages.0.content.0", "['text']"),
    (
        {"messages": [{"role": "user", "content": [TEXT, {"type": "text"}]}]},
        "messages.0.content.1.text",
        "must",
    ),
    (
        {"messages": [{"role": "tool", "content": [TEXT | {"text": 5}]}]},
        "messages.0.content.0.text",
        "a text",
    ),
    ({"messages": [{"role": "user", "content": [TEXT, IMAGE]}]}, "messages.0.content.1", "texts alone"),
    ({"messages": [{"role": "user", "content": "\ud800"}]}, "messages", "half of a surrogate pair"),
    ({"chat_template_kwargs": {"\udfff": 1}}, "chat_template_kwargs", "half of a surrogate pair"),
    ({"\ud800": 1}, "\ud800", "half of a surrogate pair"),
    ({"temperature": float("nan")}, "temperature", "has nan: give a finite number"),
    ({"top_p": float("inf")}, "top_p", "has inf"),
    ({"logit_bias": {"5": float("-inf")}}, "logit_bias", "has -inf"),
    ({"temperature": "hot"}, "temperature", "valid number"),
    ({"seed": 2**63}, "seed", "a number of over 64 bits"),
    ({"top_k": 2**64}, "top_k", "a number of over 64 bits"),
    ({"thinking_token_budget": -(2**70)}, "thinking_token_budget", "a number of over 64 bits"),
    ({"logit_bias": {"5": 10**30}}, "logit_bias", "a number of over 64 bits"),
    ({"functions": [{"name": "f"}]}, "functions", "give `tools`"),
    ({"guided_json": {"type": "object"}}, "guided_json", "give `structured_outputs`"),
    ({"chat_template": ""}, "chat_template", "not taken from requests"),
    ({"structured_outputs": {"json": {"type": 5}}}, "structured_outputs.json", "is not a JSON schema"),
    ({"structured_outputs": {"choice": ["x" * 15000] * 2}}, "structured_outputs.choice", "30000 characters"),
    ({"structured_outputs": {"regex": "x" * 20001}}, "structured_outputs.regex", "the limit is 20000"),
    ({"seed": 1.5}, "seed", "valid integer"),
    ({"n": 129}, "n", "ask for at most 128 choices"),
    ({"n": 10**3000}, "n", "a number of over 64 bits"),
    ({"n": "two"}, "n", "valid integer"),
    ({"stop": 5}, "stop", "none of the forms"),
    ({"stop": [5]}, "stop", "none of the forms"),
    ({"top_logprobs": 3}, "top_logprobs", "logprobs"),
    ({"top_logprobs": "3", "logprobs": True}, "top_logprobs", "must be an integer"),
    ({"stream_options": {"include_usage": True}}, "stream_options", "stream=True"),
    ({"chat_template": "{{ messages }}"}, "chat_template", "not taken from requests"),
    ({"max_tokens": "many"}, "max_tokens", "valid integer"),
    ({"reasoning_effort": "extreme"}, "reasoning_effort", "'low'"),
    ({"chat_template_kwargs": "x"}, "chat_template_kwargs", "valid dictionary"),
    ({"logit_bias": {"a": "b"}}, "logit_bias.a", "valid number"),
    ({"response_format": "json"}, "response_format", "none of the forms"),
    ({"response_format": {"type": "json_schema"}}, "response_format", "must be provided"),
    ({"response_format": {"type": "structural_tag"}}, "response_format", "structural_tag"),
    ({"structured_outputs": "x"}, "structured_outputs", ""),
    ({"structured_outputs": {}}, "", "none are specified"),
    ({"structured_outputs": {"json": {}, "regex": "a"}}, "", "only use one kind"),
    ({"messages": None, "structured_outputs": {}}, "", "none are specified"),
    ({"tool_choice": "auto"}, "tool_choice", "tools"),
    ({"tools": []}, "tools", "empty"),
    ({"tools": 5}, "tools", "valid list"),
    ({"tools": ["f"], "tool_choice": {"type": "function", "function": {"name": "f"}}}, "tools.0", ""),
    ({"tools": [{"type": "function"}]}, "tools.0.function", "required"),
    ({"tools": tool(name="a b")}, "tools.0.function.name", "letters, digits"),
    ({"tools": tool(name="f" * 65)}, "tools.0.function.name", "up to 64"),
    ({"tools": tool(name=5)}, "tools.0.function.name", "valid string"),
    ({"tools": tool(), "tool_choice": {"function": {"name": "g"}}}, "tool_choice", "does not match"),
]
BAD_SCHEMAS: list[tuple[object, str]] = [
    ([], "must be a JSON schema, hence an object"),
    ({"type": "text"}, ".type, 'text' is not valid"),
    ({"type": ["x" * 5000]}, "is not a JSON schema: at"),
    ({"properties": {"a": {"type": 5}}}, ".properties.a.type"),
    ({"properties": {"a" * 5000: {"type": 5}}}, ".properties.aaa"),
    ({"$schema": {}}, "must be the address of a metaschema"),
    ({"$schema": "http://["}, "is not a JSON schema"),
    ({"pattern": "("}, "is not a"),
    ({"pattern": "a{99999999999999999999}"}, "is not a JSON schema"),
    ({"enum": ["a"] * MAX_SCHEMA_VALUES}, "has more than 8000 keys and values"),
    ({"properties": {f"p{index}": {} for index in range(MAX_SCHEMA_VALUES // 2)}}, "shorten it"),
    (nested(MAX_DEPTH * 2), "nested more than 64 levels deep"),
    (nested(900), "nested more than 64 levels deep"),
]


@pytest.mark.parametrize(("extra", "param", "said"), CHAT_REFUSED)
def test_refused_chats(extra: dict[str, object], param: str, said: str) -> None:
    field, message = refusal("chat", {"messages": MESSAGES} | extra)
    assert field == param
    assert said in message
    assert len(message) < MAX_MESSAGE_CHARS


@pytest.mark.parametrize(("schema", "said"), BAD_SCHEMAS, ids=range(len(BAD_SCHEMAS)))
@pytest.mark.parametrize(
    ("endpoint", "field"),
    [
        ("chat", "tools.0.function.parameters"),
        ("chat", "response_format.json_schema.schema"),
        ("completion", "response_format.json_schema.schema"),
        ("response", "tools.0.parameters"),
        ("response", "text.format.schema"),
        ("tokenize", "tools.0.function.parameters"),
    ],
)
def test_bad_schemas(endpoint: Endpoint, field: str, schema: object, said: str) -> None:
    answer = {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}
    bodies: dict[str, JsonObject] = {
        "tools.0.function.parameters": {"tools": tool(parameters=schema)},
        "response_format.json_schema.schema": {"response_format": answer},
        "tools.0.parameters": {"tools": [RESPONSE_TOOL | {"parameters": schema}]},
        "text.format.schema": {"text": {"format": {"type": "json_schema", "name": "s", "schema": schema}}},
    }
    prompts: dict[str, JsonObject] = {"completion": {"prompt": "Hi."}, "response": {"input": "Hi."}}
    blamed, message = refusal(endpoint, prompts.get(endpoint, {"messages": MESSAGES}) | bodies[field])
    assert said in message
    whole = any(word in said for word in ("nested", "has more", "shorten"))  # of many, or of the whole body
    assert blamed.startswith(field.partition(".")[0] if whole else field)
    assert len(message) < MAX_MESSAGE_CHARS + 400


@pytest.mark.parametrize(
    ("endpoint", "body", "param", "said"),
    [
        ("completion", {}, "prompt", "must be provided"),
        ("completion", {"prompt": ""}, "prompt", "non-empty"),
        ("completion", {"prompt": {"a": 1}}, "prompt", "none of the forms"),
        ("completion", {"prompt": [VOCAB_SIZE]}, "prompt.0", "the vocabulary has 320 tokens"),
        ("completion", {"prompt": [[1], [2, -1]]}, "prompt.1.1", "is -1"),
        ("completion", {"prompt": "a", "n": 129}, "n", "at most 128"),
        ("completion", {"prompt": "a", "echo": "loud"}, "echo", "valid boolean"),
        ("completion", {"prompt": "a", "logprobs": -2}, "logprobs", "positive"),
        ("completion", {"prompt": "a", "stream_options": {}, "stream": 5}, "stream", "valid boolean"),
        ("response", {}, "input", "required"),
        ("response", {"input": 5}, "input", "none of the forms"),
        ("response", {"input": [5]}, "input", "none of the forms"),
        ("response", {"input": [{"type": "function_call"}]}, "input", "none of the forms"),
        (
            "response",
            {
                "input": [
                    {"role": "user", "content": [{"type": "input_image", "image_url": "http://127.0.0.1/"}]}
                ]
            },
            "input.0.content.0",
            "texts alone",
        ),
        (
            "response",
            {"input": [{"type": "function_call_output", "call_id": "1", "output": [{"type": "input_file"}]}]},
            "input.0.output.0",
            "'input_file'",
        ),
        (
            "tokenize",
            {"messages": [{"role": "user", "content": [IMAGE]}]},
            "messages.0.content.0",
            "texts alone",
        ),
        ("response", {"input": "a", "tools": 5}, "tools", "valid list"),
        ("response", {"input": "a", "previous_response_id": "resp_1"}, "previous_response_id", "not stored"),
        ("response", {"input": "a", "tool_choice": "required"}, "tool_choice", "tools"),
        ("response", {"input": "a", "tools": [{"name": "a b"}]}, "tools.0.name", "up to 64"),
        ("response", {"input": "a", "top_p": "b"}, "top_p", "valid number"),
        ("tokenize", {}, "prompt", "required"),
        ("tokenize", {"prompt": 5}, "prompt", "valid string"),
        ("tokenize", {"messages": []}, "messages", "is empty"),
        ("tokenize", {"messages": MESSAGES, "chat_template": "x"}, "chat_template", "not taken"),
        (
            "tokenize",
            {"messages": MESSAGES, "continue_final_message": True, "add_generation_prompt": True},
            "",
            "Cannot set both",
        ),
        ("detokenize", {}, "tokens", "required"),
        ("detokenize", {"tokens": "a"}, "tokens", "valid list"),
        ("detokenize", {"tokens": ["a"]}, "tokens.0", "valid integer"),
        ("detokenize", {"tokens": [1, VOCAB_SIZE]}, "tokens.1", "is 320: the vocabulary has 320 tokens"),
        ("detokenize", {"tokens": [-1]}, "tokens.0", "is -1"),
        ("detokenize", {"tokens": [10**18]}, "tokens.0", "the vocabulary has 320 tokens"),
        ("detokenize", {"tokens": [10**3000]}, "tokens", "a number of over 64 bits"),
    ],
)
def test_refused(endpoint: Endpoint, body: JsonObject, param: str, said: str) -> None:
    field, message = refusal(endpoint, body)
    assert field == param
    assert said in message
    assert len(message) < MAX_MESSAGE_CHARS


def test_the_schemas_of_all_tools_count() -> None:
    schema = {"type": "object", "properties": {f"p{index}": {"type": "string"} for index in range(100)}}
    tools = [tool(name=f"f{index}", parameters=schema)[0] for index in range(60)]
    check("chat", {"messages": MESSAGES, "tools": tools[:18]}, VOCAB_SIZE)
    with pytest.raises(InvalidRequest, match="tools has more than 8000 keys and values"):
        check("chat", {"messages": MESSAGES, "tools": tools}, VOCAB_SIZE)


def test_depth_is_counted_over_lists_and_objects() -> None:
    for whole in ([], {}):
        value: Any = whole
        for level in range(MAX_DEPTH - 1):
            value = [value] if level % 2 else {"a": value}
        check("chat", {"messages": MESSAGES, "metadata": value}, VOCAB_SIZE)
        with pytest.raises(InvalidRequest, match="metadata is nested"):
            check("chat", {"messages": MESSAGES, "metadata": [[value]]}, VOCAB_SIZE)


def test_a_body_is_left_as_it_is() -> None:
    """The warm-up's is a constant."""
    body: JsonObject = {"messages": MESSAGES, "tools": CHAT_TOOL, "kv_transfer_params": {"a": 1}}
    before = json.dumps(body)
    read("chat", body)
    assert json.dumps(body) == before


# Bodies of any kind

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 400),
    st.sampled_from([2**63, -(2**63) - 1, 10**400]),
    st.floats(),
    st.text(st.characters(), max_size=8),
    st.sampled_from(["auto", "none", "required", "function", "json_schema", "user", "text", PROMPT]),
)
NAMES = (
    *(
        "type",
        "name",
        "role",
        "content",
        "text",
        "function",
        "parameters",
        "schema",
        "json_schema",
        "$schema",
    ),
    *("properties", "pattern", "format", "json", "regex", "id", "arguments", "tool_calls", "effort", "$ref"),
)
KEYS = st.sampled_from(NAMES) | st.text(st.characters(), max_size=4)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
PARTS = VALUES | st.fixed_dictionaries({"type": st.just("text"), "text": st.just(PROMPT)})
MESSAGE = st.fixed_dictionaries(
    {},
    optional={
        "role": st.sampled_from(["user", "assistant", "tool", "system", "developer", "x"]) | SCALARS,
        "content": st.just(PROMPT) | st.lists(PARTS, max_size=2) | SCALARS,
        "tool_calls": VALUES,
        "tool_call_id": SCALARS,
        "name": SCALARS,
    },
)
PROMPTS: dict[Endpoint, dict[str, st.SearchStrategy[Any]]] = {
    "chat": {"messages": st.lists(MESSAGE, max_size=3) | VALUES},
    "completion": {"prompt": st.just(PROMPT) | st.lists(st.integers(-1, 400), max_size=3) | VALUES},
    "response": {"input": st.just(PROMPT) | st.lists(MESSAGE, max_size=3) | VALUES},
    "tokenize": {"prompt": st.just(PROMPT) | VALUES, "messages": st.lists(MESSAGE, max_size=2)},
    "detokenize": {"tokens": st.lists(st.integers(-1, 400), max_size=3) | VALUES},
}


def bodies(endpoint: Endpoint) -> st.SearchStrategy[JsonObject]:
    """A prompt that may be right, and a few of the endpoint's other fields with any values."""
    fields = list(ROUTES[endpoint].request.model_fields)
    others = st.dictionaries(st.sampled_from([*fields, "unknown"]), VALUES, max_size=3)
    prompts = st.fixed_dictionaries({}, optional=PROMPTS[endpoint])
    return st.builds(lambda other, prompt: other | prompt, others, prompts)


@pytest.mark.parametrize("endpoint", ROUTES)
def test_any_body_is_read_or_refused_with_a_short_reason(endpoint: Endpoint) -> None:
    @effort(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(bodies(endpoint))
    def read_any(body: JsonObject) -> None:
        try:
            read(endpoint, body)
        except InvalidRequest as error:
            said = [str(error), error.param or ""]
        except RequestValidationError as error:
            said = [problem["msg"] for problem in error.errors()]
        else:
            return
        assert all(len(text) < 2 * MAX_MESSAGE_CHARS for text in said), said
        assert all(text.count(MARKER) < 30 for text in said), "it repeats the prompt"

    read_any()
