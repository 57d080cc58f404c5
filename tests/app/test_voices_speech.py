"""Speech in the voices of the library: what of them reaches the engine."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from app.voices.names import OPENAI_VOICES
from app.voices.reference import AudioClip, to_patches
from models.voxcpm2.prompt import AUDIO_START, REFERENCE_END, REFERENCE_START
from models.voxcpm2.tokenizer import TextTokenizer
from tests.app.test_errors import check
from tests.support.fake_engine import FakeEngine
from tests.support.golden import CHECKPOINT
from tests.support.serving import SPEECH, Service, factory, in_process
from tests.support.voices import (
    PROMPT,
    RATE,
    SOUND,
    SPOKEN,
    VOICES,
    created,
    speak,
)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "voices"


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
async def service(engine: FakeEngine, place: Path) -> AsyncIterator[Service]:
    async with in_process(factory(engine), voices_dir=place) as running:
        yield running


def text_ids(text: str) -> list[int]:
    return TextTokenizer.from_checkpoint(CHECKPOINT)(text)


@pytest.mark.parametrize("by", ["id", "name", "object"])
async def test_speech_imitates_the_recording(by: str, service: Service, engine: FakeEngine) -> None:
    made = await created(service)
    named = {"id": made["id"]} if by == "object" else made[by]
    assert (await speak(service, voice=named)).status_code == 200
    (samples,) = engine.encoded
    expected = to_patches(AudioClip(SOUND, RATE), engine.config, "right")
    np.testing.assert_allclose(samples, expected, atol=1 / 32768)
    prompt, _ = engine.requests[-1]
    (span,) = prompt.spans
    assert prompt.token_ids[0] == REFERENCE_START
    assert prompt.token_ids[span.length + 1 :] == [REFERENCE_END, *text_ids("Hello world."), AUDIO_START]
    np.testing.assert_allclose(prompt.latents[:, 0, 0], samples.reshape(span.length, -1).mean(axis=1))


async def test_with_a_transcript_it_is_continued_too(service: Service, engine: FakeEngine) -> None:
    await created(service, transcript="Good morning.", description="calm")
    assert (await speak(service, voice="Anna")).status_code == 200
    prompt, _ = engine.requests[-1]
    reference, continued = prompt.spans
    ids = prompt.token_ids[reference.length + 2 : continued.start]
    assert ids == [*text_ids("(calm)Good morning.Hello world."), AUDIO_START]
    right, left = engine.encoded
    assert not right[SOUND.size :].any()
    assert not left[: left.size - SOUND.size].any()


async def test_a_described_voice(service: Service, engine: FakeEngine) -> None:
    made = (await service.client.post(VOICES, json=PROMPT | {"cfg_value": 3})).json()
    answer = await service.client.post(SPEECH, json={**SPOKEN, "voice": "narrator", "seed": None})
    assert answer.headers["x-seed"] == str(made["seed"])
    prompt, generation = engine.requests[-1]
    assert prompt.token_ids == [*text_ids("(an old man)Hello world."), AUDIO_START]
    assert (generation.seed, generation.cfg) == (made["seed"], 3.0)
    assert engine.encoded == []


async def test_the_voices_defaults_give_way_to_the_request(service: Service, engine: FakeEngine) -> None:
    await created(service, cfg_value=1.5, seed=9)
    for fields, expected in (
        ({"seed": None}, (9, 1.5)),
        ({}, (7, 1.5)),
        ({"cfg_value": 2.0}, (7, 2.0)),
        ({"cfg_value": 4}, (7, 4.0)),
    ):
        await speak(service, voice="Anna", **fields)
        _, generation = engine.requests[-1]
        assert (generation.seed, generation.cfg) == expected


@pytest.mark.parametrize("name", [*OPENAI_VOICES, "default", "Nova"])
async def test_openais_names_are_the_models_own_voice(
    name: str, service: Service, engine: FakeEngine
) -> None:
    await created(service)
    for voice_field in (name, {"id": name}):
        assert (await speak(service, voice=voice_field)).status_code == 200
        assert engine.requests[-1][0].token_ids == [*text_ids("Hello world."), AUDIO_START]


@pytest.mark.parametrize("named", ["nobody", {"id": "voice_" + "0" * 24}, "../x", ""])
async def test_unknown_voices(named: object, service: Service, engine: FakeEngine) -> None:
    message = check(await speak(service, voice=named), 400, "unsupported_voice", "voice")
    assert "GET /v1/audio/voices lists those there are" in message
    assert engine.made == 1


async def test_a_recording_is_read_and_encoded_once(
    service: Service, engine: FakeEngine, place: Path
) -> None:
    made = await created(service)
    await asyncio.gather(*(speak(service, voice="Anna") for _ in range(8)))
    assert len(engine.encoded) == 1
    path = place / "voices" / str(made["id"]) / "clip.flac"
    path.write_bytes(bytes(path.stat().st_size))
    assert (await speak(service, voice="Anna")).status_code == 200, "the latents are at hand"
    await created(service, name="Berta")  # the same recording
    assert (await speak(service, voice="Berta")).status_code == 200
    assert len(engine.encoded) == 1


async def test_a_damaged_recording(service: Service, place: Path) -> None:
    made = await created(service)
    path = place / "voices" / str(made["id"]) / "clip.flac"
    data = path.read_bytes()
    path.write_bytes(data[:100] + bytes(100) + data[200:])
    assert "is damaged: delete it" in check(await speak(service, voice="Anna"), 500, "storage_failed")
    path.write_bytes(data)
    assert (await speak(service, voice="Anna")).status_code == 200, "the failure is not kept"


async def test_a_deleted_voice_is_gone_for_speech(service: Service) -> None:
    await created(service)
    assert (await speak(service, voice="Anna")).status_code == 200
    await service.client.delete(f"{VOICES}/Anna")
    check(await speak(service, voice="Anna"), 400, "unsupported_voice", "voice")
