"""The body of a speech request: what is accepted, and what is refused with a reason."""

import pytest
from pydantic import ValidationError

from app.schemas import SpeechBody
from app.voices.names import OPENAI_VOICES
from models.voxcpm2 import limits

MINIMAL = {"model": "voxcpm2", "input": "Hello."}


def test_defaults_are_the_models() -> None:
    body = SpeechBody.model_validate(MINIMAL)
    assert body.response_format == "wav"
    assert (body.cfg_value, body.inference_timesteps) == (limits.DEFAULT_CFG, limits.DEFAULT_STEPS)
    assert (body.stream, body.seed, body.voice) == (None, None, None)


@pytest.mark.parametrize(
    "extra",
    [
        {"voice": "default"},
        {"voice": {"id": "alloy"}},
        *({"voice": name} for name in OPENAI_VOICES),
        {"speed": 1},
        {"speed": 1.0},
        {"instructions": ""},
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
        ({"response_format": "mp3"}, "response_format", "wav or pcm"),
        ({"response_format": "midi"}, "response_format", "'wav' or 'pcm'"),
        ({"response_format": ["mp3"]}, "response_format", "'wav' or 'pcm'"),
        ({"stream_format": "sse"}, "stream_format", "not served"),
        ({"speed": 1.5}, "speed", "no control of speed"),
        ({"speed": True}, "speed", "number"),
        ({"speed": "1.0"}, "speed", "number"),
        ({"instructions": "whisper"}, "instructions", "not served"),
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
        ({"cfg_value": None}, "cfg_value", "number"),
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
