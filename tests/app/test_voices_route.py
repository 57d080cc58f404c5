"""Voices over HTTP: what is kept and told, to whom, and through crashes."""

import asyncio
import json
import multiprocessing
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from urllib.parse import quote

import httpx
import numpy as np
import openai
import pytest

from app.voices.library import VoiceLibrary
from app.voices.names import BUILT_IN_VOICES
from tests.app.test_errors import check
from tests.support.fake_engine import FakeEngine
from tests.support.recordings import encoded, voice, wav
from tests.support.serving import Service, factory, in_process, on_port
from tests.support.voices import (
    CONSENTS,
    PROMPT,
    RATE,
    VOICES,
    WAV,
    created,
    nothing_is_left,
    speak,
    upload,
)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "voices"


@pytest.fixture
async def service(place: Path) -> AsyncIterator[Service]:
    async with in_process(factory(FakeEngine()), voices_dir=place) as running:
        yield running


async def test_a_voice_of_a_recording(service: Service) -> None:
    made = await created(
        service, transcript="Hello there.", description="(calm)", cfg_value=1.5, seed=9, consent="paper 7"
    )
    assert made.pop("created_at") > 1_700_000_000
    identifier = made.pop("id")
    assert made == {
        "object": "audio.voice", "name": "Anna", "type": "audio_sample", "transcript": "Hello there.",
        "description": "calm", "cfg_value": 1.5, "seed": 9, "consent": "paper 7", "duration": 1.5,
        "sample_rate": RATE,
    }  # fmt: skip
    for named in (identifier, "Anna", "anna"):
        assert (await service.client.get(f"{VOICES}/{named}")).json()["id"] == identifier


async def test_what_a_voice_has_not_is_left_out(service: Service) -> None:
    made = await created(service)
    assert set(made) == {"object", "id", "name", "created_at", "type", "duration", "sample_rate"}
    assert (await upload(service, name="Berta", transcript=" ", seed="", type="")).status_code == 200


@pytest.mark.parametrize("name", ["wav", "flac", "mp3", "ogg", "m4a", "webm"])
async def test_every_format(name: str, service: Service) -> None:
    stereo = np.stack((voice(), voice(pitch=200)), axis=1)
    answer = await upload(service, encoded(name, stereo))
    assert answer.status_code == 200, answer.text
    assert answer.json()["sample_rate"] == 48000
    assert answer.json()["duration"] == pytest.approx(1.5, abs=0.06)


@pytest.mark.parametrize("as_json", [False, True])
async def test_a_voice_of_a_description(as_json: bool, service: Service) -> None:
    body = {"json": PROMPT} if as_json else {"files": {key: (None, text) for key, text in PROMPT.items()}}
    answer = await service.client.post(VOICES, **body)
    assert answer.status_code == 200, answer.text
    made = answer.json()
    assert set(made) == {"object", "id", "name", "created_at", "type", "prompt", "seed"}
    assert (made["type"], made["prompt"], made["name"]) == ("prompt", "an old man", "Narrator")
    assert made["seed"] >= 0, "drawn, so that every text has the same voice"


async def test_names_that_vllm_omni_and_others_use(service: Service) -> None:
    made = await created(service, ref_text="Hello.", speaker_description="warm narrator", consent="user_7")
    assert (made["transcript"], made["description"]) == ("Hello.", "warm narrator")
    made = await created(service, name="Berta", reference_text="Hello.", voice_description="warm")
    assert (made["transcript"], made["description"]) == ("Hello.", "warm")


async def test_one_list_for_all_clients(service: Service, place: Path) -> None:
    anna = await created(service, transcript="Hello.", description="calm", consent="mine")
    berta = await created(service, name="Berta")
    narrator = (await service.client.post(VOICES, json=PROMPT)).json()
    body = (await service.client.get(VOICES)).json()
    assert body["object"] == "list"
    assert body["data"] == [anna, berta, narrator]
    assert body["has_more"] is False
    assert {entry["id"]: entry["name"] for entry in body["voices"]} == {
        **{name: name for name in BUILT_IN_VOICES},
        anna["id"]: "Anna", berta["id"]: "Berta", narrator["id"]: "Narrator",
    }  # fmt: skip
    first, second = body["uploaded_voices"]
    assert first == {
        "name": "Anna", "consent": "mine", "created_at": anna["created_at"], "mime_type": "audio/flac",
        "file_size": (place / "voices" / str(anna["id"]) / "clip.flac").stat().st_size,
        "ref_text": "Hello.", "speaker_description": "calm",
    }  # fmt: skip
    assert set(second) == {"name", "consent", "created_at", "mime_type", "file_size"}


async def test_an_empty_list(service: Service) -> None:
    body = (await service.client.get(VOICES)).json()
    assert (body["data"], body["uploaded_voices"]) == ([], [])
    assert [entry["id"] for entry in body["voices"]] == list(BUILT_IN_VOICES)


@pytest.mark.parametrize("key", ["id", "name"])
async def test_delete(key: str, service: Service, place: Path) -> None:
    made = await created(service)
    answer = await service.client.delete(f"{VOICES}/{made[key]}")
    assert answer.json() == {"object": "audio.voice.deleted", "id": made["id"], "deleted": True}
    check(await service.client.delete(f"{VOICES}/{made[key]}"), 404, "not_found", "voice")
    check(await service.client.get(f"{VOICES}/{made[key]}"), 404, "not_found", "voice")
    assert nothing_is_left(place)


@pytest.mark.parametrize("name", ["Dr. Müller (calm)", "50 %", "..%2f..", "小明", "a?b#c&d=e"])
async def test_names_as_parts_of_addresses(name: str, service: Service) -> None:
    made = await created(service, name=name)
    where = f"{VOICES}/{quote(name, safe='')}"
    assert (await service.client.get(where)).json()["name"] == name == made["name"]
    assert (await service.client.delete(where)).json()["id"] == made["id"]


@pytest.mark.parametrize("name", ["nobody", "default", "alloy", "..", "%2e%2e", "voice_" + "0" * 24])
@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_voices_that_are_not_in_the_library(method: str, name: str, service: Service) -> None:
    answer = await service.client.request(method, f"{VOICES}/{name}")
    assert answer.status_code == 404 or (answer.status_code == 405 and name == "..")


# -- several servers, clients, crashes ---


async def test_two_servers_share_a_library(service: Service, place: Path) -> None:
    async with in_process(factory(FakeEngine()), voices_dir=place) as other:
        made = await created(service)
        assert (await other.client.get(f"{VOICES}/Anna")).json() == made
        assert (await speak(other, voice="Anna")).status_code == 200
        check(await upload(other), 400, "invalid_request", "name")
        await other.client.delete(f"{VOICES}/Anna")
        check(await service.client.get(f"{VOICES}/Anna"), 404, "not_found", "voice")


async def test_many_uploads_of_one_name_at_once(service: Service) -> None:
    answers = await asyncio.gather(*(upload(service) for _ in range(12)))
    assert sorted(answer.status_code for answer in answers) == [200] + [400] * 11
    assert len((await service.client.get(VOICES)).json()["data"]) == 1


async def test_openais_client(place: Path) -> None:
    async with (
        on_port(factory(FakeEngine()), voices_dir=place) as service,
        openai.AsyncOpenAI(
            base_url=f"http://127.0.0.1:{service.port}/v1", api_key="none", max_retries=0
        ) as client,
    ):
        given = await client.audio.voice_consents.create(
            name="Anna's", language="en-US", recording=("a.wav", WAV, "audio/wav")
        )
        made = await client.audio.voices.create(
            name="Anna", audio_sample=("a.wav", WAV, "audio/wav"), consent=given.id
        )
        assert (made.object, made.type, made.name, made.prompt) == (
            "audio.voice",
            "audio_sample",
            "Anna",
            None,
        )
        designed = await client.audio.voices.create(name="Narrator", type="prompt", prompt="an old man")
        assert (designed.type, designed.prompt) == ("prompt", "an old man")
        spoken = await client.audio.speech.create(
            model="voxcpm2", input="Hello.", voice={"id": made.id}, response_format="wav"
        )
        assert spoken.content[:4] == b"RIFF"
        for n in range(3):
            await client.audio.voice_consents.create(
                name=f"c{n}", language="de", recording=("a.flac", encoded("flac", voice()), "audio/flac")
            )
        assert [one.name async for one in client.audio.voice_consents.list(limit=2)] == [
            "c2",
            "c1",
            "c0",
            "Anna's",
        ]
        assert (await client.audio.voice_consents.update(given.id, name="Hers")).name == "Hers"
        with pytest.raises(openai.BadRequestError, match="delete the voice first"):
            await client.audio.voice_consents.delete(given.id)
        assert (await client.audio.voices.delete(made.id)).deleted
        assert (await client.audio.voice_consents.retrieve(given.id)).id == given.id, "the consent is kept"
        assert (await client.audio.voice_consents.delete(given.id)).deleted
        with pytest.raises(openai.NotFoundError):
            await client.audio.voices.delete(made.id)
        with pytest.raises(openai.BadRequestError) as caught:
            await client.audio.voices.create(name="x", audio_sample=("a.wav", b"text"), consent="mine")
        assert caught.value.param == "audio_sample"


async def test_a_client_that_leaves_in_mid_upload(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with on_port(factory(FakeEngine()), voices_dir=place) as service:
        _, writer = await asyncio.open_connection("127.0.0.1", service.port)
        head = f"POST {VOICES} HTTP/1.1\r\nhost: x\r\ncontent-length: 999999\r\n"
        writer.write(head.encode() + b"content-type: multipart/form-data; boundary=b\r\n\r\n")
        writer.write(
            b'--b\r\nContent-Disposition: form-data; name="audio_sample"; filename="f"\r\n\r\n' + WAV
        )
        await writer.drain()
        await asyncio.sleep(0.1)
        writer.close()
        await writer.wait_closed()
        await asyncio.sleep(0.1)
        assert (await service.client.get(VOICES)).json()["data"] == []
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def _serve_until_killed(place: Path, temporary: Path, send: Callable[[int], None]) -> None:
    """In a process of its own: the application on a port, with a clip that is never written whole."""
    import app.voices.shelf as module

    def half(path: Path, data: bytes) -> None:
        path.write_bytes(data if path.name == "record.json" else data[: len(data) // 2])
        if path.name == "clip.flac" and (place / "die").exists():
            os.kill(os.getpid(), signal.SIGKILL)
        path.write_bytes(data)

    module.write_synced = half
    tempfile.tempdir = str(temporary)

    async def main() -> None:
        async with on_port(factory(FakeEngine()), voices_dir=place) as service:
            send(service.port)
            await asyncio.sleep(3600)

    asyncio.run(main())


async def test_kill_9_in_mid_upload_leaves_a_loadable_library(place: Path, tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    receiving, sending = context.Pipe(duplex=False)
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    process = context.Process(target=_serve_until_killed, args=(place, temporary, sending.send))
    process.start()
    try:
        port = await asyncio.to_thread(receiving.recv)
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            answered = await upload(Service(client, None, None), name="Before")  # type: ignore[arg-type]
            assert answered.status_code == 200
            (place / "die").write_bytes(b"")
            with pytest.raises(httpx.TransportError):
                await upload(Service(client, None, None), wav(voice(20, 48000)))  # type: ignore[arg-type]
        process.join(60)
        assert process.exitcode == -signal.SIGKILL
    finally:
        process.kill()
        process.join()
        sending.close()
        receiving.close()
    assert len(list((place / "incoming").iterdir())) == 1
    assert list(temporary.iterdir()) == [], "no upload is left in a temporary directory"
    async with in_process(factory(FakeEngine()), voices_dir=place) as service:
        (kept,) = (await service.client.get(VOICES)).json()["data"]
        assert kept["name"] == "Before"
        assert (await speak(service, voice="Before")).status_code == 200
        await created(service)
    library = VoiceLibrary(place, 100)
    assert [record.name for record in library.voices()] == ["Before", "Anna"]


# -- the document ---


async def test_the_document_has_examples_and_errors_for_every_route(service: Service) -> None:
    document = (await service.client.get("/openapi.json")).json()
    seen = 0
    for path, operations in document["paths"].items():
        for operation in operations.values():
            if path.startswith((VOICES, CONSENTS)):
                seen += 1
                assert set(operation["responses"]) == {"200", "4XX", "5XX"}
                assert operation["responses"]["200"]["content"]["application/json"]["example"]
                assert operation["description"] or operation["summary"]
    assert seen == 9
    bodies = document["paths"][VOICES]["post"]["requestBody"]["content"]
    assert set(bodies) == {"multipart/form-data", "application/json"}
    sample, prompt = bodies["multipart/form-data"]["schema"]["oneOf"]
    assert set(sample["required"]) == {"name", "audio_sample"}
    assert set(prompt["required"]) == {"type", "name", "prompt"}
    assert "$ref" not in json.dumps(bodies)


async def test_the_documents_examples_are_what_is_answered(service: Service) -> None:
    document = (await service.client.get("/openapi.json")).json()
    example = document["paths"][VOICES]["post"]["requestBody"]["content"]["application/json"]["example"]
    assert (await service.client.post(VOICES, json=example)).status_code == 200
    made = await created(service, transcript="Hello.")
    told = document["paths"][f"{VOICES}/{{voice_id}}"]["get"]["responses"]["200"]["content"][
        "application/json"
    ]
    assert set(told["example"]) == set(made)
    listed = document["paths"][VOICES]["get"]["responses"]["200"]["content"]["application/json"]["example"]
    assert set(listed) == set((await service.client.get(VOICES)).json())
