"""The body of a speech request: what is accepted, and what is refused with a reason."""

import pytest
from pydantic import ValidationError

from app.schemas import SpeechBody
from app.voices.names import OPENAI_VOICES
from models.voxcpm2 import limits

MINIMAL = {"model": "voxcpm2", "input": "Hello."}


def test_defaults_are_the_models() -> None:
    body = SpeechBody.model_validate(MINIMAL)
    assert body.response_format == "mp3"
    assert (body.cfg_value, body.inference_timesteps) == (None, limits.DEFAULT_STEPS)
    assert (body.stream, body.seed, body.voice) == (None, None, None)


@pytest.mark.parametrize(
    "extra",
    [
        {"voice": "default"},
        {"voice": {"id": "alloy"}},
        *({"voice": name} for name in OPENAI_VOICES),
        {"speed": 0.25},
        {"speed": 4},
        {"instructions": ""},
        {"instructions": "Speak (softly).\n\nSlowly."},
        {"voice_description": "an old man"},
        {"response_format": "opus", "sample_rate": 48000},
        {"stream_format": "sse"},
        {"reference_audio": "AAAA", "reference_text": "Hello."},
        {"ref_audio": "AAAA", "ref_text": "Hello.", "voice": "alloy"},
        {"max_new_tokens": 100},
        {"normalize": False},
        {"cfg_value": None},
        {"instructions": None},
        {"stream_format": "audio"},
        {"response_format": "pcm", "stream": False},
        {"seed": 0},
        {"seed": 2**63 - 1},
        {"cfg_value": 0},
        {"cfg_value": limits.MAX_CFG},
        {"inference_timesteps": limits.MIN_STEPS},
        {"max_patches": 1},
        {"temperature": 0},
    ],
)
def test_accepted(extra: dict[str, object]) -> None:
    SpeechBody.model_validate(MINIMAL | extra)


def test_voice_by_id() -> None:
    assert SpeechBody.model_validate(MINIMAL | {"voice": {"id": "nova"}}).voice == "nova"


@pytest.mark.parametrize(
    ("extra", "field", "said"),
    [
        ({"input": 5}, "input", "string"),
        ({"input": "\ud800"}, "input", "valid Unicode"),
        ({"model": None}, "model", "string"),
        ({"voice": 3}, "voice", "string"),
        ({"voice": {"name": "alloy"}}, "voice", '{"id": "name"}'),
        ({"voice": {"id": 3}}, "voice", "string"),
        ({"response_format": "midi"}, "response_format", "'wav' or 'pcm'"),
        ({"response_format": ["mp3"]}, "response_format", "'wav' or 'pcm'"),
        ({"stream_format": "events"}, "stream_format", "'audio' or 'sse'"),
        ({"speed": 4.5}, "speed", "less than or equal to 4"),
        ({"speed": 0.2}, "speed", "greater than or equal to 0.25"),
        ({"sample_rate": 24000.5}, "sample_rate", "integer"),
        ({"speed": True}, "speed", "number"),
        ({"speed": "1.0"}, "speed", "number"),
        ({"instructions": 7}, "instructions", "string"),
        ({"instructions": "x" * 4097}, "instructions", "4096"),
        ({"stream": "yes"}, "stream", "boolean"),
        ({"seed": -1}, "seed", "greater than or equal to 0"),
        ({"seed": 2**63}, "seed", "less than or equal to"),
        ({"seed": 1.5}, "seed", "integer"),
        ({"seed": "7"}, "seed", "integer"),
        ({"seed": True}, "seed", "integer"),
        ({"cfg_value": -0.1}, "cfg_value", "greater than or equal to 0"),
        ({"cfg_value": limits.MAX_CFG + 0.1}, "cfg_value", "less than or equal to"),
        ({"cfg_value": float("nan")}, "cfg_value", "finite"),
        ({"cfg_value": float("inf")}, "cfg_value", "finite"),
        ({"cfg_value": "2"}, "cfg_value", "number"),
        ({"cfg_value": False}, "cfg_value", "number"),
        ({"inference_timesteps": 1}, "inference_timesteps", "greater than or equal to 2"),
        ({"inference_timesteps": limits.MAX_STEPS + 1}, "inference_timesteps", "less than or equal to"),
        ({"max_patches": 0}, "max_patches", "greater than or equal to 1"),
        ({"max_patches": limits.MAX_PATCHES + 1}, "max_patches", "less than or equal to"),
        ({"temperature": 2.5}, "temperature", "less than or equal to 2"),
        ({"temperature": float("-inf")}, "temperature", "finite"),
        ({"sped": 1.0}, "sped", "not permitted"),
    ],
)
def test_refused(extra: dict[str, object], field: str, said: str) -> None:
    with pytest.raises(ValidationError) as caught:
        SpeechBody.model_validate(MINIMAL | extra)
    (problem,) = caught.value.errors()
    assert problem["loc"] == (field,)
    assert said in problem["msg"]


def test_bounds_on_length_agree() -> None:
    SpeechBody.model_validate(MINIMAL | {"max_patches": 1})
    with pytest.raises(ValidationError, match="min_patches is greater"):
        SpeechBody.model_validate(MINIMAL | {"min_patches": 5, "max_patches": 4})


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        ({"instructions": "a", "voice_description": "b"}, "mean the same"),
        ({"reference_text": "Hello."}, "without reference_audio"),
        ({"reference_audio": "AAAA", "voice": "Anna"}, "both give a voice"),
        ({"stream_format": "sse", "stream": False}, "is a stream"),
    ],
)
def test_fields_that_contradict_each_other(extra: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        SpeechBody.model_validate(MINIMAL | extra)


def test_a_description_is_one_line_without_parentheses() -> None:
    body = SpeechBody.model_validate(MINIMAL | {"instructions": " Speak (softly).\n\nSlowly. "})
    assert body.description == "Speak [softly]. Slowly."
