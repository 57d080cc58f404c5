"""The pipeline between our checks and vLLM's serving classes, on serving classes of our own."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel
from starlette.datastructures import State
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.entrypoints.serve.engine.protocol import ErrorInfo, ErrorResponse
from vllm.exceptions import VLLMValidationError
from vllm.utils.argparse_utils import FlexibleArgumentParser
from vllm.v1.engine.exceptions import EngineDeadError

from app.errors import EngineDead, GenerationFailed, InvalidRequest, Overloaded, VoxserveError
from app.language import engine
from app.language.engine import VllmPipeline
from app.language.pipeline import Endpoint
from app.pipeline.options import LanguageOptions
from models.checkpoint import CheckpointError

CHAT = {"messages": [{"role": "user", "content": "Hello."}]}
BODIES: dict[Endpoint, tuple[dict[str, Any], str]] = {
    "chat": (CHAT, "openai_serving_chat.create_chat_completion"),
    "completion": ({"prompt": "Hello."}, "openai_serving_completion.create_completion"),
    "response": ({"input": "Hello."}, "openai_serving_responses.create_responses"),
    "tokenize": ({"prompt": "Hello."}, "serving_tokenization.create_tokenize"),
    "detokenize": ({"tokens": [1]}, "serving_tokenization.create_detokenize"),
}


class Said(BaseModel):
    """An answer, or an event of the responses API."""

    type: str = "response.output_text.delta"
    text: str = "hi"


class Fake:
    """An engine and its serving classes, of which each method gives `answer`, or raises it."""

    def __init__(self, answer: Any) -> None:
        self.seen: list[tuple[str, Any, Any]] = []
        self.closed = False
        self.llm: Any = SimpleNamespace(
            errored=False,
            model_config=SimpleNamespace(get_vocab_size=lambda: 320),
            output_processor=SimpleNamespace(
                get_num_unfinished_requests=lambda: 4, propagate_error=self._end
            ),
            output_handler=None,
            shutdown=lambda _timeout: self._end(None),
        )
        self.ended: list[object] = []
        self._answer = answer
        serving = State()
        for _, path in BODIES.values():
            holder, method = path.split(".")
            if holder not in serving._state:
                setattr(serving, holder, SimpleNamespace())
            setattr(getattr(serving, holder), method, self._handler(path))
        self.pipeline = VllmPipeline(self.llm, serving)

    def _end(self, reason: object) -> None:
        self.ended.append(reason)

    def _handler(self, path: str) -> Any:
        async def handle(request: BaseModel, raw_request: Any) -> Any:
            self.seen.append((path, request, dict(raw_request.headers)))
            if isinstance(self._answer, Exception):
                raise self._answer
            return self._stream(self._answer) if isinstance(self._answer, list) else self._answer

        return handle

    async def _stream(self, events: list[Any]) -> AsyncIterator[Any]:
        try:
            for event in events:
                if isinstance(event, Exception):
                    self.llm.errored = isinstance(event, EngineDeadError)
                    raise event
                yield event
        finally:
            self.closed = True


def error_event(code: int) -> str:
    """As vLLM's chats and completions say it within a stream."""
    response = ErrorResponse(error=ErrorInfo(message="why", type="T", code=code))
    return f"data: {json.dumps(response.model_dump())}\n\n"


async def collect(fake: Fake, endpoint: Endpoint = "chat") -> tuple[list[bytes], VoxserveError | None]:
    """The events of a stream, and the error that ends it."""
    answer = await fake.pipeline.answer(endpoint, dict(BODIES[endpoint][0]))
    assert not isinstance(answer, bytes)
    events = []
    try:
        async for event in answer:
            events.append(event)
    except VoxserveError as error:
        return events, error
    return events, None


@pytest.mark.parametrize("endpoint", BODIES)
async def test_each_endpoint_has_its_handler(endpoint: Endpoint) -> None:
    body, path = BODIES[endpoint]
    fake = Fake(Said())
    answer = await fake.pipeline.answer(endpoint, body)
    assert json.loads(bytes(answer)) == Said().model_dump()  # type: ignore[arg-type]
    ((called, request, headers),) = fake.seen
    assert called == path
    assert type(request) is engine.ROUTES[endpoint].request
    assert headers == {}, "clients set neither ranks nor priorities by them"


async def test_conversations_are_tokenized_by_a_class_of_their_own() -> None:
    fake = Fake(Said())
    await fake.pipeline.answer("tokenize", CHAT)
    assert type(fake.seen[0][1]) is engine.ROUTES["tokenize"].of_messages


async def test_a_bad_body_does_not_reach_vllm() -> None:
    fake = Fake(Said())
    with pytest.raises(InvalidRequest):
        await fake.pipeline.answer("chat", {"messages": []})
    assert fake.seen == []


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (VLLMValidationError("no", parameter="stop"), InvalidRequest),
        (RuntimeError("broke"), GenerationFailed),
        (EngineDeadError(), EngineDead),
        (ErrorResponse(error=ErrorInfo(message="no", type="T", code=400)), InvalidRequest),
        (ErrorResponse(error=ErrorInfo(message="full", type="T", code=503)), Overloaded),
        (ErrorResponse(error=ErrorInfo(message="broke", type="T", code=500)), GenerationFailed),
    ],
)
async def test_errors(answer: object, expected: type[VoxserveError]) -> None:
    with pytest.raises(VoxserveError) as caught:
        await Fake(answer).pipeline.answer("chat", CHAT)
    assert type(caught.value) is expected


async def test_a_dead_engine_is_not_asked() -> None:
    fake = Fake(Said())
    fake.llm.errored = True
    assert fake.pipeline.errored
    with pytest.raises(EngineDead):
        await fake.pipeline.answer("chat", CHAT)
    assert fake.seen == []


async def test_a_stream() -> None:
    fake = Fake(["data: 1\n\n", "data: 2\n\n", "data: [DONE]\n\n"])
    assert await collect(fake) == ([b"data: 1\n\n", b"data: 2\n\n", b"data: [DONE]\n\n"], None)


async def test_a_stream_of_named_events_begins_with_the_engines_first() -> None:
    """What vLLM says before it has asked the engine is held back: errors can still be a status."""
    begin = [Said(type="response.created", text=""), Said(type="response.in_progress", text="")]
    events, error = await collect(Fake([*begin, Said(), Said(type="response.completed")]), "response")
    assert error is None
    assert len(events) == 2
    names = [line for line in b"".join(events).decode().splitlines() if line.startswith("event: ")]
    assert names == [
        f"event: response.{name}" for name in ("created", "in_progress", "output_text.delta", "completed")
    ]
    assert b"".join(events).endswith(
        b"event: response.completed\ndata: "
        + Said(type="response.completed").model_dump_json().encode()
        + b"\n\n"
    )
    for broken in (VLLMValidationError("no grammar"), EngineDeadError(), RuntimeError("broke")):
        events, error = await collect(Fake([*begin, broken]), "response")
        assert events == []
        assert isinstance(error, InvalidRequest | EngineDead | GenerationFailed)


@pytest.mark.parametrize("before", [0, 2])
@pytest.mark.parametrize(
    ("broken", "expected"),
    [
        (error_event(400), InvalidRequest),
        (error_event(500), GenerationFailed),
        (error_event(503), Overloaded),
        (RuntimeError("broke"), GenerationFailed),
        (ValueError("no"), InvalidRequest),
        (EngineDeadError(), EngineDead),
    ],
)
async def test_a_stream_that_breaks(before: int, broken: object, expected: type[VoxserveError]) -> None:
    fake = Fake([*["data: x\n\n"] * before, broken, "data: [DONE]\n\n"])
    events, error = await collect(fake)
    assert events == [b"data: x\n\n"] * before
    assert type(error) is expected
    assert fake.closed


async def test_the_engines_death_is_told_as_such_by_an_event() -> None:
    fake = Fake(["data: x\n\n", error_event(500)])
    answer = await fake.pipeline.answer("chat", CHAT)
    assert not isinstance(answer, bytes)
    await anext(answer)
    fake.llm.errored = True
    with pytest.raises(EngineDead):
        await anext(answer)


async def test_closing_a_stream_closes_vllms() -> None:
    fake = Fake(["data: 1\n\n", "data: 2\n\n"])
    answer = await fake.pipeline.answer("chat", CHAT)
    assert not isinstance(answer, bytes)
    await anext(answer)
    assert not fake.closed
    await answer.aclose()
    assert fake.closed


async def test_life() -> None:
    fake = Fake(Said())
    pipeline = fake.pipeline
    assert (pipeline.errored, pipeline.running) == (False, 4)
    await pipeline.warm_up()
    assert [seen[0] for seen in fake.seen] == [BODIES["completion"][1], BODIES["tokenize"][1]]
    await asyncio.gather(pipeline.shutdown(), pipeline.shutdown())
    assert [type(reason) for reason in fake.ended] == [EngineDeadError, type(None)]
    assert (pipeline.errored, pipeline.running) == (True, 0)
    with pytest.raises(EngineDead):
        await pipeline.answer("chat", CHAT)


# What vLLM's engine is made with


def arguments(checkpoint: Path, options: LanguageOptions) -> AsyncEngineArgs:
    parsed = make_arg_parser(FlexibleArgumentParser()).parse_args([])
    vars(parsed).update(engine._arguments(checkpoint, ("a", "b"), options))
    return AsyncEngineArgs.from_cli_args(parsed)


MIMO_V2 = {"model_type": "mimo_v2_flash"}


@pytest.mark.parametrize(
    ("config", "wanted", "expected"),
    [
        ({"dtype": "float32"}, "auto", "float32"),
        ({"torch_dtype": "float32"}, "auto", "float32"),
        ({"dtype": "bfloat16"}, "auto", "bfloat16"),
        ({}, "auto", "auto"),
        ({"dtype": "float32"}, "bfloat16", "bfloat16"),
    ],
)
def test_the_checkpoints_own_dtype(
    config: dict[str, str], wanted: str, expected: str, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(MIMO_V2 | config))
    assert arguments(tmp_path, LanguageOptions(dtype=wanted)).dtype == expected


@pytest.mark.parametrize("config", [{}, {"model_type": "voxcpm2"}])
def test_another_models_checkpoint_is_refused(config: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="not MiMoV2"):
        arguments(tmp_path, LanguageOptions())


@pytest.mark.parametrize(
    ("options", "setting"),
    [
        (LanguageOptions(expert_parallel=True), "LLM_EXPERT_PARALLEL"),
        (LanguageOptions(own_classes=False), "LLM_CLASSES"),
    ],
)
async def test_what_a_cpu_cannot_do(
    options: LanguageOptions, setting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine.current_platform, "is_cpu", lambda: True)
    with pytest.raises(EngineDead, match=setting):
        await VllmPipeline.start(tmp_path, ("a",), options)


@pytest.mark.parametrize("content", ["{", "[]", None])
def test_a_checkpoint_without_a_configuration(content: str | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(CheckpointError, match="cannot be read"):
        arguments(tmp_path, LanguageOptions())


def test_options_reach_vllm(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(MIMO_V2))
    made = arguments(
        tmp_path,
        LanguageOptions(
            max_num_seqs=3,
            max_model_len=128,
            tensor_parallel_size=2,
            pipeline_parallel_size=3,
            expert_parallel=True,
            draft_tokens=2,
            prefix_caching=False,
        ),
    )
    assert (made.model, made.served_model_name) == (str(tmp_path), ["a", "b"])
    assert (made.max_num_seqs, made.max_model_len) == (3, 128)
    assert (made.tensor_parallel_size, made.pipeline_parallel_size) == (2, 3)
    assert (made.enable_expert_parallel, made.enable_prefix_caching) == (True, False)
    assert made.speculative_config == {"method": "mtp", "num_speculative_tokens": 2}
    assert made.reasoning_parser == "mimo"
    assert not made.enforce_eager, "a pipeline's stages get their buffers by the warm-up"
    assert not made.enable_log_requests, "the log has no text of requests"
    assert arguments(tmp_path, LanguageOptions()).speculative_config is None
