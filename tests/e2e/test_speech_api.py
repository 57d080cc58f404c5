"""The speech API on a real engine, by clients that are not ours: `openai` and `websockets`."""

import asyncio
import base64
import io
import json
from collections.abc import Iterator
from typing import Any

import av
import httpx
import numpy as np
import openai
import pytest
import soundfile
from websockets.asyncio.client import connect

from tests.support.golden import FIXTURES
from tests.support.server_process import ServerProcess, server_process

pytestmark = pytest.mark.engine

TEXT = "Good morning. How are you?"
PATCHES = {"min_patches": 10, "max_patches": 10}
SECONDS = 1.6
OPTIONS: dict[str, Any] = {"seed": 11, "response_format": "pcm", "sample_rate": 48000, **PATCHES}
FORMATS = ("mp3", "opus", "aac", "flac", "wav", "pcm")
FRAME_S = 0.1  # the longest of a codec, flac's


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    directory = tmp_path_factory.mktemp("speech-api")
    with server_process(directory / "log", VOICES_DIR=str(directory / "voices")) as started:
        started.wait_until_ready()
        yield started


@pytest.fixture(scope="module")
def client(server: ServerProcess) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def seconds(data: bytes, name: str) -> float:
    if name == "pcm":
        return len(data) / 2 / 24000
    with av.open(io.BytesIO(data)) as container:
        return sum(frame.samples / frame.sample_rate for frame in container.decode(audio=0))


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_streamed_and_whole(client: openai.OpenAI, name: Any) -> None:
    for extra in ({"stream": True}, {"stream": False}):
        answer = client.audio.speech.create(
            model="voxcpm2", voice="alloy", input=TEXT, response_format=name, extra_body=PATCHES | extra
        )
        assert seconds(answer.content, name) == pytest.approx(SECONDS, abs=FRAME_S)


def test_openai_client_reads_events(client: openai.OpenAI, server: ServerProcess) -> None:
    with client.audio.speech.with_streaming_response.create(
        model="voxcpm2", voice="nova", input=TEXT, stream_format="sse", extra_body=OPTIONS
    ) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        events = [
            json.loads(line.removeprefix("data: ")) for line in answer.iter_lines() if line[:4] == "data"
        ]
    audio = b"".join(base64.b64decode(event["audio"]) for event in events[:-1])
    assert events[-1]["usage"]["output_tokens"] == PATCHES["max_patches"]
    assert audio == speak(server)


def test_tempo(client: openai.OpenAI) -> None:
    answer = client.audio.speech.create(
        model="voxcpm2", voice="alloy", input=TEXT, response_format="wav", speed=2.0, extra_body=PATCHES
    )
    assert seconds(answer.content, "wav") == pytest.approx(SECONDS / 2, abs=0.1)


def test_a_voice_from_its_recording_to_its_end(client: openai.OpenAI, server: ServerProcess) -> None:
    samples, rate = soundfile.read(FIXTURES / "voice_a.wav", dtype="float32")
    file = io.BytesIO()
    soundfile.write(file, np.tile(samples, 3), rate, format="WAV")
    recording = file.getvalue()
    form = {"name": "Anna", "transcript": "The quick brown fox."}
    made = httpx.post(
        f"{server.url}/v1/audio/voices", data=form, files={"audio_sample": ("a.wav", recording, "audio/wav")}
    )
    assert made.status_code == 200, made.text
    plain, cloned, again = speak(server), speak(server, voice="Anna"), speak(server, voice="Anna")
    assert cloned != plain
    assert cloned == again
    by_id = speak(server, voice={"id": made.json()["id"]})
    assert by_id == cloned
    inline = base64.b64encode(recording).decode()
    assert speak(server, ref_audio=inline) not in (plain, cloned)
    assert httpx.delete(f"{server.url}/v1/audio/voices/{made.json()['id']}").status_code == 200
    with pytest.raises(openai.BadRequestError) as caught:
        client.audio.speech.create(model="voxcpm2", voice="Anna", input=TEXT)
    assert caught.value.code == "unsupported_voice"


def speak(server: ServerProcess, **more: object) -> bytes:
    body = {"model": "voxcpm2", "input": TEXT, **OPTIONS, **more}
    answer = httpx.post(f"{server.url}/v1/audio/speech", json=body, timeout=120)
    assert answer.status_code == 200, answer.text
    return answer.content


def test_a_long_text_is_spoken_in_parts(server: ServerProcess) -> None:
    text = " ".join(f"This is sentence number {word} of a text." for word in ("one", "two", "six") * 8)
    audio = speak(server, input=text, min_patches=2, max_patches=60)
    assert len(audio) / 2 / 48000 > 2


async def session(server: ServerProcess, seed: int) -> bytes:
    """One utterance over a socket of its own, word by word."""
    address = server.url.replace("http", "ws") + "/v1/audio/speech/stream"
    async with connect(address, max_size=None) as socket:
        await socket.send(json.dumps({"type": "session.start", **OPTIONS, "seed": seed}))
        for word in TEXT.split(" "):
            await socket.send(json.dumps({"type": "input.text", "text": f"{word} "}))
        await socket.send(json.dumps({"type": "input.done"}))
        audio = b""
        async for frame in socket:
            if isinstance(frame, bytes):
                audio += frame
            elif json.loads(frame)["type"] == "session.done":
                break
        return audio


async def rest(client: httpx.AsyncClient, seed: int, form: str) -> bytes:
    body = {"model": "voxcpm2", "input": TEXT, **OPTIONS, "seed": seed, "stream_format": form}
    answer = await client.post("/v1/audio/speech", json=body)
    if form == "audio":
        return answer.content
    events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]
    return b"".join(base64.b64decode(event["audio"]) for event in events[:-1])


async def test_twenty_at_once_over_every_transport_answer_as_alone(server: ServerProcess) -> None:
    """To a step or two of 16 bits: another batch sums in another order."""
    async with httpx.AsyncClient(base_url=server.url, timeout=300) as client:

        async def ask(number: int) -> bytes:
            way, seed = number % 3, 100 + number
            return await (session(server, seed) if way == 2 else rest(client, seed, ("audio", "sse")[way]))

        together = await asyncio.gather(*map(ask, range(20)))
        for number in range(20):
            alone = np.frombuffer(await ask(number), "<i2").astype(np.int32)
            other = np.frombuffer(together[number], "<i2")
            assert alone.size == other.size > 0
            assert np.abs(alone - other).max() <= 2
    server.wait_until_running(0)


async def test_a_session_cancelled_frees_its_slot(server: ServerProcess) -> None:
    address = server.url.replace("http", "ws") + "/v1/audio/speech/stream"
    async with connect(address, max_size=None) as socket:
        await socket.send(json.dumps({"type": "session.start", "min_patches": 400, "max_patches": 400}))
        await socket.send(json.dumps({"type": "input.text", "text": TEXT * 10}))
        while isinstance(await socket.recv(), str):
            pass
        await socket.send(json.dumps({"type": "input.cancel"}))
        while True:
            frame = await socket.recv()
            if isinstance(frame, str) and json.loads(frame)["type"] == "input.cancelled":
                break
        await asyncio.to_thread(server.wait_until_running, 0, 5)
        await socket.send(json.dumps({"type": "ping"}))
        assert json.loads(await socket.recv()) == {"type": "pong"}
