"""The tiny checkpoints: the same bytes, the released layout, a template that vLLM's parsers understand."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from transformers import AutoTokenizer
from vllm.reasoning import ReasoningParserManager
from vllm.tool_parsers import ToolParserManager

from models.checkpoint import CheckpointError
from models.mimo_v2.make_checkpoint import KINDS, Kind, make_checkpoint
from tests.support.mimo_v2 import read

TEXT = "hello the world, 世界 🎈\n\n<think>\nwhy</think>\n"
QUESTION = [{"role": "user", "content": "hi"}]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}


@pytest.mark.parametrize("kind", KINDS)
def test_same_seed_same_bytes(kind: Kind, tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        make_checkpoint(tmp_path / name, kind, seed)
    first, second, other = (
        {file.name: file.read_bytes() for file in (tmp_path / name).iterdir()} for name in ("a", "b", "c")
    )
    assert first == second
    assert first["model.safetensors"] != other["model.safetensors"]
    assert 1e6 < sum(tensor.numel() for tensor in read(tmp_path / "a").values()) < 3e6


def test_nothing_is_overwritten(flash: Path) -> None:
    with pytest.raises(CheckpointError, match="--force"):
        make_checkpoint(flash)
    with pytest.raises(CheckpointError, match="kind"):
        make_checkpoint(flash, "large")  # type: ignore[arg-type]


def test_a_pro_checkpoint_is_fused_and_fp8(pro: Path) -> None:
    tensors = read(pro)
    assert not [name for name in tensors if ".q_proj." in name]
    fused = tensors["model.layers.1.self_attn.qkv_proj.weight"]
    assert fused.itemsize == 1
    # Two groups of 512 rows, quantised by themselves.
    assert tensors["model.layers.1.self_attn.qkv_proj.weight_scale_inv"].shape == (8, 1)
    assert tensors["model.layers.0.self_attn.qkv_proj.weight_scale_inv"].shape == (6, 1)
    assert tensors["model.layers.1.self_attn.o_proj.weight"].itemsize == 2


def test_text_survives(flash: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(flash)
    ids = tokenizer(TEXT)["input_ids"]
    assert tokenizer.decode(ids) == TEXT
    assert len(ids) < len(TEXT.encode())
    assert len(tokenizer("<think>")["input_ids"]) == 1


def render(tokenizer: Any, messages: list[dict[str, Any]], **options: Any) -> str:
    return tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **options)


def test_thinking_is_off_unless_asked_for(flash: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(flash)
    off, on = render(tokenizer, QUESTION), render(tokenizer, QUESTION, enable_thinking=True)
    assert off.endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert on.endswith("<|im_start|>assistant\n<think>\n")
    assert render(tokenizer, QUESTION, enable_thinking=False) == off


def test_the_template_renders_calls_as_the_tool_parser_reads_them(flash: Path) -> None:
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

    tokenizer = AutoTokenizer.from_pretrained(flash)
    call = {"type": "function", "function": {"name": "f", "arguments": {"city": "Paris", "count": 2}}}
    answer = {"role": "assistant", "content": "", "tool_calls": [call]}
    text = render(tokenizer, [*QUESTION, answer], tools=[TOOL])
    spoken = text.rpartition("<|im_start|>assistant\n")[0].rpartition("<|im_start|>assistant\n")[2]
    parser = ToolParserManager.get_tool_parser("mimo")(tokenizer)
    request = ChatCompletionRequest(model="m", messages=QUESTION, tools=[TOOL])
    found = parser.extract_tool_calls(spoken.removesuffix("<|im_end|>\n"), request)
    assert found.tools_called
    assert found.tool_calls[0].function.name == "f"
    assert found.tool_calls[0].function.arguments == '{"city": "Paris", "count": "2"}'


@pytest.mark.parametrize(
    ("thinking", "output", "expected"),
    [
        (True, "because\n</think>\n\nyes", ("because", "yes")),
        (False, "yes", (None, "yes")),
    ],
)
def test_the_reasoning_parser_reads_answers(
    flash: Path, thinking: bool, output: str, expected: tuple[str | None, str]
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(flash)
    parser = ReasoningParserManager.get_reasoning_parser("mimo")(
        tokenizer, chat_template_kwargs={"enable_thinking": thinking}
    )
    request: Any = SimpleNamespace(tools=None, tool_choice=None)
    reasoning, content = parser.extract_reasoning(output, request)
    assert ((reasoning or "").strip() or None, (content or "").strip()) == expected
