"""What speech sounds like over HTTP, by format, rate, tempo and transport, on a fake engine."""

import asyncio
import base64
import contextlib
import io
import json
from collections.abc import AsyncIterator
from typing import Any

import av
import httpx
import numpy as np
import pytest
import soundfile

from app.audio.encode import to_s16
from app.audio.formats import FORMATS
from app.errors import GenerationFailed
from app.pipeline.generation import Floats
from tests.support.fake_engine import FakeEngine
from tests.support.serving import SPEECH, Service, factory, on_port

PATCHES = 6
SECONDS = PATCHES * 0.16
FRAME_S = 0.1  # the longest of a codec, flac's
BODY: dict[str, Any] = {"model": "voxcpm2", "input": "Hello world.", "seed": 7}
MEDIA_TYPES = {
    "mp3": "audio/mpeg",
    "opus": "audio/ogg",
    "aac": "audio/aac",
    "flac": "audio/flac",
    "wav": "audio/wav",
    "pcm": "audio/pcm",
}


@pytest.fixture
async def engine() -> FakeEngine:
    return FakeEngine(patches=PATCHES)


@pytest.fixture
async def service(engine: FakeEngine) -> AsyncIterator[Service]:
    async with on_port(factory(engine)) as running:
        yield running


def heard(data: bytes, name: str, rate: int) -> Floats:
    if name == "pcm":
        return np.frombuffer(data, "<i2").astype(np.float32) / 32768
    with av.open(io.BytesIO(data)) as container:
        resampler = av.AudioResampler("flt", "mono", rate)
        frames = [piece for frame in container.decode(audio=0) for piece in resampler.resample(frame)]
        frames += resampler.resample(None)
    return np.concatenate([frame.to_ndarray().reshape(-1) for frame in frames])


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", FORMATS)
async def test_every_format(service: Service, name: str, stream: bool) -> None:
    answer = await service.client.post(SPEECH, json=BODY | {"response_format": name, "stream": stream})
    assert answer.status_code == 200
    assert answer.headers["content-type"] == MEDIA_TYPES[name]
    rate = int(answer.headers["x-sample-rate"])
    assert rate == (24000 if name == "pcm" else 48000)
    assert heard(answer.content, name, rate).size / rate == pytest.approx(SECONDS, abs=FRAME_S)
    assert ("x-audio-duration" in answer.headers) is not stream
    assert answer.headers["server-timing"].startswith("first-audio;dur=")


async def test_mp3_is_the_default(service: Service) -> None:
    answer = await service.client.post(SPEECH, json=BODY)
    assert answer.headers["content-type"] == "audio/mpeg"
    assert "content-length" not in answer.headers


@pytest.mark.parametrize("rate", [8000, 16000, 44100, 48000])
async def test_a_rate_can_be_asked_for(service: Service, rate: int) -> None:
    body = BODY | {"response_format": "pcm", "sample_rate": rate}
    answer = await service.client.post(SPEECH, json=body)
    assert answer.headers["x-sample-rate"] == str(rate)
    assert abs(len(answer.content) / 2 - SECONDS * rate) <= 1


async def test_flac_has_the_samples_of_wav(service: Service) -> None:
    answers = [await service.client.post(SPEECH, json=BODY | {"response_format": n}) for n in ("wav", "flac")]
    wav, flac = (soundfile.read(io.BytesIO(answer.content), dtype="int16")[0] for answer in answers)
    np.testing.assert_array_equal(wav, flac)


@pytest.mark.parametrize("speed", [0.5, 2.0])
async def test_tempo(service: Service, speed: float) -> None:
    whole = await service.client.post(SPEECH, json=BODY | {"response_format": "wav", "speed": speed})
    seconds = soundfile.info(io.BytesIO(whole.content)).duration
    assert seconds == pytest.approx(SECONDS / speed, rel=0.05, abs=0.06)
    assert float(whole.headers["x-audio-duration"]) == pytest.approx(seconds, abs=0.06)


def events(text: str) -> list[dict[str, Any]]:
    parsed = []
    for event in text.removesuffix("\n\n").split("\n\n"):
        name, data = event.split("\n")
        parsed.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {parsed[-1]['type']}"
    return parsed


async def test_events(service: Service, engine: FakeEngine) -> None:
    body = BODY | {"response_format": "pcm", "sample_rate": 48000, "stream_format": "sse"}
    answer = await service.client.post(SPEECH, json=body)
    assert answer.headers["content-type"].startswith("text/event-stream")
    *deltas, done = events(answer.text)
    assert {event["type"] for event in deltas} == {"speech.audio.delta"}
    audio = b"".join(base64.b64decode(event["audio"]) for event in deltas)
    assert audio == b"".join(to_s16(engine._patch(7, index).pcm).tobytes() for index in range(PATCHES))
    prompt, _ = engine.requests[-1]
    tokens = len(prompt.token_ids)
    usage = {"input_tokens": tokens, "output_tokens": PATCHES, "total_tokens": tokens + PATCHES}
    assert done == {"type": "speech.audio.done", "usage": usage}


async def test_an_error_in_mid_stream_is_an_event() -> None:
    async with on_port(factory(FakeEngine())) as service:
        service.speech.pipeline.engine = FakeEngine(fail_at=2, error=GenerationFailed("broke"))
        said = b""
        body = BODY | {"response_format": "pcm", "stream_format": "sse"}
        async with service.client.stream("POST", SPEECH, json=body) as answer:
            with contextlib.suppress(httpx.RemoteProtocolError):  # it breaks after the event
                async for chunk in answer.aiter_raw():
                    said += chunk
    last = events(said.decode())[-1]
    assert last["type"] == "speech.audio.error"
    assert last["error"]["code"] == "generation_failed"


async def test_instructions_describe_the_voice(service: Service, engine: FakeEngine) -> None:
    plain = await service.client.post(SPEECH, json=BODY)
    assert plain.status_code == 200
    alone = len(engine.requests[-1][0].token_ids)
    await service.client.post(SPEECH, json=BODY | {"instructions": "a calm old man"})
    assert len(engine.requests[-1][0].token_ids) > alone


@pytest.mark.parametrize("prefix", ["", "data:audio/wav;base64,"])
async def test_a_recording_within_the_request(service: Service, engine: FakeEngine, prefix: str) -> None:
    file = io.BytesIO()
    tone = 0.3 * np.sin(np.arange(32000) / 20)
    soundfile.write(file, tone, 16000, format="WAV")
    recording = prefix + base64.b64encode(file.getvalue()).decode()
    answer = await service.client.post(SPEECH, json=BODY | {"reference_audio": recording})
    assert answer.status_code == 200
    assert len(engine.requests[-1][0].spans) == 1
    await service.client.post(SPEECH, json=BODY | {"ref_audio": recording, "ref_text": "A tone."})
    assert len(engine.requests[-1][0].spans) == 2


async def test_twenty_at_once_over_every_transport_answer_as_alone(service: Service) -> None:
    ways = [("mp3", "audio"), ("wav", "audio"), ("pcm", "sse"), ("opus", "sse")]
    bodies = [
        BODY | {"seed": seed, "response_format": ways[seed % 4][0], "stream_format": ways[seed % 4][1]}
        for seed in range(20)
    ]
    alone = [(await service.client.post(SPEECH, json=body)).content for body in bodies]
    together = await asyncio.gather(*(service.client.post(SPEECH, json=body) for body in bodies))
    for body, first, second in zip(bodies, alone, together, strict=True):
        if body["response_format"] != "opus":  # an Ogg stream has a random serial number
            assert first == second.content
        else:
            assert len(first) == len(second.content)
