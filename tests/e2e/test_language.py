"""Both engines in one service, and the language engine alone, spoken to by OpenAI's client.

A random model writes nonsense, so where an answer has to mean something its text is dictated:
`structured_outputs` says which, `logit_bias` makes it use the tokens of tags rather than their letters.

The tests of the first part share one server, in this order; the last of them ends it.
"""

import asyncio
import json
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from models.mimo_v2.make_tokenizer import TAGS, make_tokenizer
from tests.support.readme import blocks, run_block
from tests.support.server_process import ServerProcess, server_process

pytestmark = pytest.mark.engine

MODEL = "mimo-v2"
MAX_REQUESTS = 4
MESSAGES: Any = [{"role": "user", "content": "Hello world"}]
SPEECH = {"model": "voxcpm2", "input": "Good morning.", "seed": 5, "min_patches": 8, "max_patches": 8}
TOKENIZER = make_tokenizer()
TAG_IDS = {tag: str(TOKENIZER.token_to_id(tag)) for tag in TAGS}
CALL_TAGS = {TAG_IDS["<tool_call>"]: 100, TAG_IDS["</tool_call>"]: 100}
SPACES = {str(TOKENIZER.encode(space).ids[0]): -100 for space in " \t\r\n"}
CALL = (
    "<tool_call>\n<function=get_weather>\n<parameter=city>Oslo</parameter>\n"
    "<parameter=days>3</parameter>\n</function>\n</tool_call>"
)
TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Weather of the next days.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
                "required": ["city", "days"],
            },
        },
    }
]
SCHEMA: Any = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}, "count": {"enum": [1, 2, 3]}},
    "required": ["ok", "count"],
    "additionalProperties": False,
}
ENDLESS = {"max_tokens": 4000, "extra_body": {"ignore_eos": True}}  # longer than any test waits
CANCEL_TIMEOUT_S = 5.0
DEATH_TIMEOUT_S = 40.0
START_RETRIES = 60  # the server asks for 5 s between them


def language(checkpoint: Path, **settings: str) -> dict[str, str]:
    return {"LLM_MODEL": str(checkpoint), "LLM_DTYPE": "float32", "LLM_KV_CACHE_BYTES": "256MiB"} | settings


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, flash: Path) -> Iterator[ServerProcess]:
    settings = language(flash, LLM_MAX_REQUESTS=str(MAX_REQUESTS))
    with server_process(tmp_path_factory.mktemp("both") / "log", **settings) as started:
        yield started


@pytest.fixture(scope="module")
def client(server: ServerProcess) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def chat(client: openai.OpenAI, **options: Any) -> Any:
    return client.chat.completions.create(
        **{"model": MODEL, "messages": MESSAGES, "max_tokens": 12, "seed": 3} | options
    )


def dictated(text: str, **more: object) -> dict[str, object]:
    return {"structured_outputs": {"choice": [text]}} | more


def test_a_client_waits_for_the_engines(server: ServerProcess, client: openai.OpenAI) -> None:
    status, body = server.readiness()
    assert (status, body["status"]) == (503, "starting")
    assert {"speech", "language"} <= set(body)
    with pytest.raises(openai.InternalServerError) as caught:
        chat(client)
    assert caught.value.code == "engine_starting"
    assert int(caught.value.response.headers["retry-after"]) > 0
    patient = client.with_options(max_retries=START_RETRIES)
    assert chat(patient).choices[0].finish_reason == "length"
    server.wait_until_ready()
    server.children()


def test_a_chat_whole(client: openai.OpenAI) -> None:
    answer = chat(client)
    assert answer.object == "chat.completion"
    assert answer.model == MODEL
    (choice,) = answer.choices
    assert choice.message.role == "assistant"
    assert choice.message.content
    assert answer.usage.completion_tokens == 12
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 12


def test_a_chat_streamed_is_the_whole_one(client: openai.OpenAI) -> None:
    *chunks, last = chat(client, stream=True, stream_options={"include_usage": True})
    assert len(chunks) > 3
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text == chat(client).choices[0].message.content
    assert [chunk.choices[0].finish_reason for chunk in chunks[-2:]] == [None, "length"]
    assert last.choices == []
    assert last.usage.completion_tokens == 12


def test_what_is_sent_is_server_sent_events(server: ServerProcess) -> None:
    body = {"model": MODEL, "messages": MESSAGES, "max_tokens": 3, "stream": True}
    answer = httpx.post(f"{server.url}/v1/chat/completions", json=body)
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["cache-control"] == "no-cache"
    events = answer.text.removesuffix("\n\n").split("\n\n")
    assert all(event.startswith("data: {") for event in events[:-1])
    assert events[-1] == "data: [DONE]"


def test_seeds_choices_and_stops(client: openai.OpenAI) -> None:
    first, second = chat(client, n=2).choices
    assert (first.index, second.index) == (0, 1)
    assert first.message.content != second.message.content
    assert chat(client, n=2).choices[1].message.content == second.message.content
    stopped = chat(client, extra_body=dictated("one two three"), stop=[" three"])
    assert stopped.choices[0].message.content == "one two"
    assert stopped.choices[0].finish_reason == "stop"


def test_log_probabilities(client: openai.OpenAI) -> None:
    answer = chat(client, temperature=0, logprobs=True, top_logprobs=3)
    tokens = answer.choices[0].logprobs.content
    assert len(tokens) == 12
    for token in tokens:
        assert len(token.top_logprobs) == 3
        assert token.logprob == max(top.logprob for top in token.top_logprobs) < 0


def test_a_tool_is_called(client: openai.OpenAI) -> None:
    options = {"tools": TOOLS, "max_tokens": 200, "logit_bias": CALL_TAGS, "extra_body": dictated(CALL)}
    (choice,) = chat(client, **options).choices
    assert choice.finish_reason == "tool_calls"
    (call,) = choice.message.tool_calls
    assert call.function.name == "get_weather"
    assert json.loads(call.function.arguments) == {"city": "Oslo", "days": 3}
    assert not choice.message.content

    deltas = [chunk.choices[0].delta for chunk in chat(client, stream=True, **options)]
    parts = [part for delta in deltas for part in delta.tool_calls or ()]
    assert parts[0].function.name == "get_weather"
    arguments = "".join(part.function.arguments or "" for part in parts)
    assert json.loads(arguments) == {"city": "Oslo", "days": 3}
    assert not any(delta.content for delta in deltas)


def test_a_tools_answer_goes_back(client: openai.OpenAI) -> None:
    call = {
        "id": "call-1",
        "type": "function",
        "function": {"name": "get_weather", "arguments": '{"days": 3}'},
    }
    history = [
        *MESSAGES,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call-1", "content": "rain"},
    ]
    answer = chat(client, messages=history, tools=TOOLS)
    assert answer.usage.prompt_tokens > chat(client, tools=TOOLS).usage.prompt_tokens + 30


def test_a_tool_can_be_required(client: openai.OpenAI) -> None:
    closing = {str(TOKENIZER.token_to_id("<")): 40}  # so that nonsense within the call ends
    for choice in ("required", {"type": "function", "function": {"name": "get_weather"}}):
        answer = chat(client, tools=TOOLS, tool_choice=choice, logit_bias=CALL_TAGS | closing, max_tokens=150)
        assert answer.choices[0].message.tool_calls[0].function.name == "get_weather"
        assert not answer.choices[0].message.content


def test_reasoning_is_off_unless_asked_for(client: openai.OpenAI) -> None:
    assert chat(client).choices[0].message.reasoning is None
    ending = {"max_tokens": 300, "logit_bias": {TAG_IDS["</think>"]: 5}}
    thinking = {"chat_template_kwargs": {"enable_thinking": True}}
    (choice,) = chat(client, **ending, extra_body=dictated("yes", **thinking)).choices
    assert choice.message.reasoning
    assert "</think>" not in choice.message.reasoning
    assert choice.message.content == "yes"
    deltas = [
        chunk.choices[0].delta
        for chunk in chat(client, **ending, extra_body=dictated("yes", **thinking), stream=True)
    ]
    reasoning = "".join(getattr(delta, "reasoning", None) or "" for delta in deltas)
    assert reasoning == choice.message.reasoning
    assert "".join(delta.content or "" for delta in deltas) == "yes"
    by_effort = chat(client, **ending, reasoning_effort="low", extra_body=dictated("yes"))
    assert by_effort.choices[0].message.reasoning == choice.message.reasoning


def test_answers_by_schema(client: openai.OpenAI) -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True}}
    answer = chat(client, response_format=wanted, max_tokens=60, logit_bias=SPACES)
    content = json.loads(answer.choices[0].message.content)
    assert set(content) == {"ok", "count"}
    assert isinstance(content["ok"], bool)
    assert content["count"] in (1, 2, 3)


def test_what_one_client_asks_for_breaks_no_others_structure(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="grammar"):
        chat(client, extra_body={"structured_outputs": {"regex": r"\p{L}+"}})
    options = {"tools": TOOLS, "tool_choice": "required", "logit_bias": CALL_TAGS, "max_tokens": 20}
    assert chat(client, **options).choices[0].message.tool_calls


def test_completions(client: openai.OpenAI) -> None:
    options: Any = {"model": MODEL, "prompt": ["Once upon", "a time"], "max_tokens": 6, "seed": 1, "n": 2}
    answer = client.completions.create(**options, echo=True)
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    begins = ["Once upon"] * 2 + ["a time"] * 2
    assert all(choice.text.startswith(begin) for choice, begin in zip(answer.choices, begins, strict=True))
    assert answer.usage.completion_tokens == 24
    whole = client.completions.create(**options)
    texts = [""] * 4
    for chunk in client.completions.create(**options, stream=True):
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert texts == [choice.text for choice in whole.choices]


def test_responses(client: openai.OpenAI) -> None:
    options: Any = {"model": MODEL, "input": "Hello", "max_output_tokens": 6, "temperature": 0}
    whole = client.responses.create(**options)
    assert whole.status == "incomplete"
    assert whole.usage.output_tokens == 6
    events = list(client.responses.create(**options, stream=True))
    assert events[0].type == "response.created"
    assert events[-1].type in ("response.completed", "response.incomplete")
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == whole.output_text


def test_token_ids_there_and_back(server: ServerProcess) -> None:
    text = "Hello, wörld 你好"
    tokens = httpx.post(f"{server.url}/tokenize", json={"model": MODEL, "prompt": text}).json()
    assert tokens["tokens"] == TOKENIZER.encode(text).ids
    assert tokens["count"] == len(tokens["tokens"])
    back = httpx.post(f"{server.url}/detokenize", json={"tokens": tokens["tokens"]}).json()
    assert back["prompt"] == text
    conversation = httpx.post(f"{server.url}/tokenize", json={"messages": MESSAGES}).json()["tokens"]
    assert TOKENIZER.decode(conversation, skip_special_tokens=False).startswith(
        "<|im_start|>user\nHello world"
    )


@pytest.mark.parametrize(("kind", "block"), blocks("llm"))
def test_the_readme_runs(server: ServerProcess, tmp_path: Path, kind: str, block: str) -> None:
    assert run_block(server, tmp_path, kind, block).strip()


def test_models_are_listed(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list().data] == ["voxcpm2", MODEL]
    assert client.models.retrieve(MODEL).id == MODEL


def test_embeddings_are_refused(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        client.embeddings.create(model=MODEL, input="Hello")
    assert caught.value.code == "model_not_found"


@pytest.mark.parametrize(
    ("path", "body", "status", "param"),
    [
        ("chat/completions", {}, 400, "messages"),
        ("chat/completions", {"messages": []}, 400, "messages"),
        ("chat/completions", {"messages": [{"role": "king", "content": "x"}]}, 400, "messages.0.role"),
        ("chat/completions", {"messages": MESSAGES, "model": "gpt-4"}, 404, "model"),
        ("chat/completions", {"messages": MESSAGES, "temperature": -1}, 400, "temperature"),
        ("chat/completions", {"messages": MESSAGES, "max_tokens": 10**6}, 400, "max_tokens"),
        ("chat/completions", {"messages": MESSAGES, "max_tokens": "many"}, 400, "max_tokens"),
        ("chat/completions", {"messages": MESSAGES, "n": 10**6}, 400, "n"),
        ("chat/completions", {"messages": [{"role": "user", "content": "x " * 9000}]}, 400, "messages"),
        ("completions", {"prompt": [10**9]}, 400, "prompt.0"),
        ("completions", {"prompt": [[1, 2], [3, -1]]}, 400, "prompt.1.1"),
        ("completions", {"prompt": 7}, 400, "prompt"),
        ("responses", {"input": "x", "previous_response_id": "resp_1"}, 400, "previous_response_id"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("stream", [False, True])
def test_bad_input(
    server: ServerProcess, path: str, body: dict[str, object], status: int, param: str, stream: bool
) -> None:
    answer = httpx.post(f"{server.url}/v1/{path}", json=body | {"stream": stream})
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["param"] == param
    assert len(error["message"]) < 400


def test_both_engines_at_once_answer_as_each_alone(server: ServerProcess, client: openai.OpenAI) -> None:
    text = chat(client, max_tokens=60).choices[0].message.content
    audio = httpx.post(f"{server.url}/v1/audio/speech", json=SPEECH, timeout=60).content
    with ThreadPoolExecutor(MAX_REQUESTS * 2) as pool:
        said = [pool.submit(chat, client, max_tokens=60) for _ in range(MAX_REQUESTS - 1)]
        spoken = [
            pool.submit(httpx.post, f"{server.url}/v1/audio/speech", json=SPEECH, timeout=60)
            for _ in range(2)
        ]
        assert {future.result().choices[0].message.content for future in said} == {text}
        assert all(len(future.result().content) == len(audio) for future in spoken)


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_frees_its_slot(
    server: ServerProcess, client: openai.OpenAI, stream: bool
) -> None:
    server.wait_until_running(0, engine="language")
    if stream:
        with chat(client, stream=True, **ENDLESS) as chunks:
            next(iter(chunks))
            server.wait_until_running(1, engine="language")
    else:
        with pytest.raises(openai.APITimeoutError):
            chat(client, timeout=1.0, **ENDLESS)
    server.wait_until_running(0, CANCEL_TIMEOUT_S, engine="language")


def test_more_than_it_is_to_hold_is_told_to_come_again(server: ServerProcess, client: openai.OpenAI) -> None:
    server.wait_until_running(0, engine="language")
    streams = [chat(client, stream=True, **ENDLESS) for _ in range(MAX_REQUESTS)]
    server.wait_until_running(MAX_REQUESTS, engine="language")
    with pytest.raises(openai.RateLimitError) as caught:
        chat(client)
    assert caught.value.code == "engine_overloaded"
    assert int(caught.value.response.headers["retry-after"]) > 0
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(chat, client.with_options(max_retries=20))
        time.sleep(0.5)
        assert not waiting.done()
        for stream in streams:
            stream.close()
        assert waiting.result().usage.completion_tokens == 12


def test_an_end_lets_a_running_answer_finish(server: ServerProcess, client: openai.OpenAI) -> None:
    stream = chat(client, stream=True, max_tokens=100, extra_body={"ignore_eos": True})
    next(iter(stream))
    server.process.send_signal(signal.SIGTERM)
    assert list(stream)[-1].choices[0].finish_reason == "length"
    assert server.exit_code(DEATH_TIMEOUT_S) == 0
    assert server.orphans() == []
    assert "Traceback" not in server.log


def test_alone_until_its_worker_is_killed(tmp_path: Path, flash: Path) -> None:
    settings = language(flash, SPEECH_MODEL="none", LLM_MODEL_NAME="mine")
    with server_process(tmp_path / "log", **settings) as server:
        server.wait_until_ready()
        assert "speech" not in server.readiness()[1]
        refused = httpx.post(f"{server.url}/v1/audio/speech", json=SPEECH | {"voice": "alloy"})
        assert refused.status_code == 404
        assert "SPEECH_MODEL" in refused.json()["error"]["message"]
        asyncio.run(_kill_in_mid_stream(server))
        assert server.exit_code(DEATH_TIMEOUT_S) == 1
        assert server.orphans() == []
        assert "the language engine died" in server.log


async def _kill_in_mid_stream(server: ServerProcess) -> None:
    """The stream breaks with an error that the client raises."""
    async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        stream: Any = await client.chat.completions.create(
            model="mine",
            messages=MESSAGES,
            stream=True,
            **ENDLESS,  # type: ignore[call-overload]
        )
        await anext(stream)
        server.engine_processes()[-1].kill()
        with pytest.raises((openai.APIError, httpx.RemoteProtocolError)):
            async for _ in stream:
                pass
