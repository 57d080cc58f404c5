"""Voices that are refused: each with its reason and the field to blame, and nothing is left behind."""

from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.middleware import MAX_BODY_BYTES
from app.voices import decode
from tests.app.test_errors import check
from tests.support.fake_engine import FakeEngine
from tests.support.recordings import encoded, image, video, voice, wav
from tests.support.serving import SPEECH, Service, factory, in_process
from tests.support.voices import (
    CONSENTS,
    PROMPT,
    RATE,
    SOUND,
    SPOKEN,
    VOICES,
    WAV,
    created,
    nothing_is_left,
    upload,
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("library") / "voices"


@pytest.fixture(scope="module")
async def service(place: Path) -> AsyncIterator[Service]:
    """One for all: each of these tests leaves it as it was."""
    async with in_process(factory(FakeEngine()), voices_dir=place) as running:
        yield running


@pytest.mark.parametrize(
    ("texts", "param", "said"),
    [
        ({"name": ""}, "name", "give a name of 1 to 100 characters"),
        ({"name": "x" * 101}, "name", "give a name of 1 to 100 characters"),
        ({"name": "../../etc/passwd"}, "name", "cannot have '/' in it"),
        ({"name": "..\\x"}, "name", "cannot have"),
        ({"name": ".."}, "name", "needs a letter or a digit"),
        ({"name": "a\0b"}, "name", "cannot have"),
        ({"name": "Alloy"}, "name", "a name of the model's own voice"),
        ({"name": "default"}, "name", "a name of the model's own voice"),
        ({"name": "voice_" + "0" * 24}, "name", "looks like the id"),
        ({"transcript": "..."}, "transcript", "no words"),
        ({"transcript": "x" * 2001}, "transcript", "at most 2000 characters"),
        ({"description": "calm (and slow"}, "description", "parentheses"),
        ({"description": "x" * 1001}, "description", "at most 1000 characters"),
        ({"transcript": "Hello.", "ref_text": "Hello."}, "ref_text", "not a parameter of this route"),
        ({"cfg_value": "11"}, "cfg_value", "less than or equal to 10"),
        ({"cfg_value": "nan"}, "cfg_value", "finite"),
        ({"cfg_value": "much"}, "cfg_value", "number"),
        ({"seed": "-1"}, "seed", "greater than or equal to 0"),
        ({"seed": "1.5"}, "seed", "integer"),
        ({"consent": "cons_" + "0" * 24}, "consent", "there is no consent"),
        ({"consent": "!"}, "consent", "no words"),
        ({"type": "song"}, "type", "there is no type 'song' of voice"),
        ({"prompt": "an old man"}, "prompt", "not a parameter of this route"),
        ({"speaker_embedding": "[1]"}, "speaker_embedding", "not a parameter of this route"),
        ({"type": "prompt", "prompt": "an old man"}, "audio_sample", "cannot be a file here"),
    ],
)
async def test_fields_that_are_refused(
    texts: dict[str, str], param: str, said: str, service: Service, place: Path
) -> None:
    assert said in check(await upload(service, **texts), 400, "invalid_request", param)
    assert nothing_is_left(place)


@pytest.mark.parametrize(
    ("body", "param", "said"),
    [
        ({"type": "prompt", "name": "x"}, "prompt", "prompt is required"),
        ({"type": "prompt", "prompt": "an old man"}, "name", "name is required"),
        (PROMPT | {"prompt": " "}, "prompt", "no words"),
        (PROMPT | {"name": "nova"}, "name", "a name of the model's own voice"),
        (PROMPT | {"name": 5}, "name", "string"),
        (PROMPT | {"seed": "7"}, "seed", "integer"),
        (PROMPT | {"script_hint": "Say this."}, "script_hint", "leave it out"),
        (PROMPT | {"transcript": "Hello."}, "transcript", "not a parameter of this route"),
        (PROMPT | {"consent": "x"}, "consent", "not a parameter of this route"),
        ({"name": "x"}, "type", "a recording is sent as a file, in a form"),
        ({"type": "audio_sample", "name": "x", "audio_sample": "UklGRg=="}, "type", "sent as a file"),
        ({"type": 5}, "type", "there is no type '5' of voice"),
        ([], None, "the body must be a JSON object"),
        ("x", None, "the body must be a JSON object"),
    ],
)
async def test_json_that_is_refused(body: object, param: str | None, said: str, service: Service) -> None:
    assert said in check(await service.client.post(VOICES, json=body), 400, "invalid_request", param)


async def test_a_model_that_is_not_served(service: Service) -> None:
    made = await service.client.post(VOICES, json=PROMPT | {"model": "voxcpm2"})
    assert (await service.client.delete(f"{VOICES}/{made.json()['id']}")).status_code == 200
    answer = await service.client.post(VOICES, json=PROMPT | {"name": "x", "model": "2026-10-08"})
    check(answer, 404, "model_not_found", "model")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "the file is empty"),
        (b"This is no recording. " * 99, "cannot be read"),
        (image(), "cannot be read"),
        (video(), "it has no audio track"),
        (WAV[: len(WAV) // 2], "cut off"),
        (wav(voice(0.5, RATE), RATE), "lasts 0.50 s: give between 1 and 30 s"),
        (wav(voice(31, RATE), RATE), "lasts more than 30 s"),
        (encoded("flac", np.zeros(48000 * 120, np.float32)), "lasts more than 30 s"),
        (wav(np.zeros(RATE * 2), RATE), "silent"),
        (wav(np.clip(30 * SOUND, -1, 1), RATE), "clipped"),
        (wav(np.full(RATE * 2, np.nan), RATE, "FLOAT"), "not finite"),
        (wav(voice(2, 4000), 4000), "4000 samples a second"),
    ],
    ids=[
        "empty", "text", "image", "video", "cut off", "short", "long", "bomb", "silent", "clipped", "nan",
        "slow",
    ],
)  # fmt: skip
@pytest.mark.parametrize("to", [VOICES, CONSENTS])
async def test_recordings_that_are_refused(
    to: str, data: bytes, said: str, service: Service, place: Path
) -> None:
    field = "audio_sample" if to == VOICES else "recording"
    texts = {} if to == VOICES else {"language": "en"}
    assert said in check(await upload(service, data, field, to, **texts), 400, "invalid_request", field)
    assert nothing_is_left(place)


async def test_a_name_that_is_taken_costs_no_decoding(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await created(service)
    monkeypatch.setattr(decode, "decode", None)
    assert "there is a voice 'ANNA' already" in check(
        await upload(service, name="ANNA"), 400, "invalid_request", "name"
    )
    await service.client.delete(f"{VOICES}/{made['id']}")


@pytest.mark.parametrize("size", [2**20 + 1, 2**20 + MAX_BODY_BYTES + 2**16])
async def test_files_that_are_too_large(size: int, place: Path) -> None:
    async with in_process(factory(FakeEngine()), voices_dir=place, voices_max_upload_mib=1) as service:
        answer = await upload(service, WAV + b"\0" * (size - len(WAV)))
        if size > 2**20 + MAX_BODY_BYTES:
            check(answer, 413, "request_too_large")
        else:
            check(answer, 400, "invalid_request", "audio_sample")
        assert nothing_is_left(place)
        big = {"name": "x" * (MAX_BODY_BYTES + 1)}
        check(await service.client.post(f"{CONSENTS}/cons_0", json=big), 413, "request_too_large")


async def test_limits_can_be_set(tmp_path: Path) -> None:
    async with in_process(
        factory(FakeEngine()), voices_dir=tmp_path, voices_max_seconds=2, voices_max_count=1
    ) as service:
        message = check(
            await upload(service, wav(voice(2.5, RATE), RATE)), 400, "invalid_request", "audio_sample"
        )
        assert message == "the audio lasts more than 2 s: give between 1 and 2 s"
        await created(service)
        assert "no more than that" in check(await upload(service, name="Berta"), 400, "invalid_request")


@pytest.mark.parametrize(
    ("content", "content_type", "status", "code", "param"),
    [
        (b"{", "application/json", 400, "invalid_request", None),
        (b"\xff", "application/json", 400, "invalid_request", None),
        (b"[" * 100_000, "application/json", 400, "invalid_request", None),
        (b'{"type": "prompt", "name": "\\ud800"}', "application/json", 400, "invalid_request", None),
        (b"", "application/json", 400, "invalid_request", None),
        (b"name=x", "application/x-www-form-urlencoded", 415, "unsupported_media_type", None),
        (b"x", "text/plain", 415, "unsupported_media_type", None),
        (b"x", "", 415, "unsupported_media_type", None),
        (b"x", "multipart/form-data", 400, "invalid_request", None),
        (b"x", "multipart/form-data; boundary=b", 400, "invalid_request", None),
        (b"--b\r\n\r\nx\r\n--b--\r\n", "multipart/form-data; boundary=b", 400, "invalid_request", None),
        (b"--b--\r\n", "multipart/form-data; boundary=b", 400, "invalid_request", "name"),
        (
            b'--b\r\nContent-Disposition: form-data; name="name"\r\n\r\nxyz\r\n--b--\r\n',
            "multipart/form-data; boundary=b; charset=undefined", 400, "invalid_request", None,
        ),
        (
            b'--b\r\nContent-Disposition: form-data; name="name"\r\n\r\n\\ud800\r\n--b--\r\n',
            "multipart/form-data; boundary=b; charset=unicode_escape", 400, "invalid_request", "name",
        ),
    ],
)  # fmt: skip
async def test_bodies_that_cannot_be_read(
    content: bytes, content_type: str, status: int, code: str, param: str | None, service: Service
) -> None:
    answer = await service.client.post(VOICES, content=content, headers={"content-type": content_type})
    check(answer, status, code, param)


@pytest.mark.parametrize(
    ("files", "param", "said"),
    [
        ([("name", (None, "x"))], "audio_sample", "audio_sample is required"),
        ([("name", (None, "x")), ("audio_sample", (None, "text"))], "audio_sample", "is a text, not a file"),
        ([("name", ("f", b"x")), ("audio_sample", ("f", WAV))], "name", "name is required"),
        (
            [("name", (None, "x")), ("other", ("f", b"x")), ("audio_sample", ("f", WAV))],
            "other",
            "cannot be a file",
        ),
        ([("name", (None, "x")), ("name", (None, "y")), ("audio_sample", ("f", WAV))], "name", "given twice"),
        ([("name", (None, "x")), *[("audio_sample", ("f", WAV))] * 2], "audio_sample", "given twice"),
        ([("name", (None, "x")), *[("audio_sample", ("f", WAV))] * 3], None, "Too many files"),
        ([(f"f{n}", (None, "x")) for n in range(40)], None, "Too many fields"),
        ([("name", (None, "x" * 70_000)), ("audio_sample", ("f", WAV))], None, "maximum size"),
    ],
)
async def test_forms_that_are_refused(
    files: list[tuple[str, tuple[str | None, object]]], param: str | None, said: str, service: Service
) -> None:
    assert said in check(await service.client.post(VOICES, files=files), 400, "invalid_request", param)


async def test_storage_that_fails(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    async with in_process(factory(FakeEngine()), voices_dir=tmp_path / "file" / "voices") as service:
        assert "see the server's log" in check(await upload(service), 500, "storage_failed")
        assert (await service.client.post(SPEECH, json=SPOKEN)).status_code == 200


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40)
@given(name=st.text(max_size=40))
async def test_any_name_is_refused_or_kept(name: str, service: Service, place: Path) -> None:
    made = await service.client.post(VOICES, json=PROMPT | {"name": name}, headers={})
    if made.status_code != 200:
        assert check(made, 400, "invalid_request", made.json()["error"]["param"])
        return
    kept = made.json()
    assert {path.name for path in (place / "voices").iterdir()} == {kept["id"]}
    for named in (kept["id"], kept["name"]):
        answer = await service.client.post(SPEECH, json=SPOKEN | {"voice": named})
        assert answer.status_code == 200
    assert (await service.client.delete(f"{VOICES}/{kept['id']}")).status_code == 200
