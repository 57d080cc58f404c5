"""Consents over HTTP: kept, listed in pages, renamed, and deleted unless a voice rests on them."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.app.test_errors import check
from tests.support.fake_engine import FakeEngine
from tests.support.serving import Service, factory, in_process
from tests.support.voices import CONSENTS, PROMPT, VOICES, consent, created, upload


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "voices"


@pytest.fixture
async def service(place: Path) -> AsyncIterator[Service]:
    async with in_process(factory(FakeEngine()), voices_dir=place) as running:
        yield running


async def test_consents(service: Service) -> None:
    made = (await consent(service)).json()
    assert made["created_at"] > 1_700_000_000
    assert {key: made[key] for key in ("object", "name", "language")} == {
        "object": "audio.voice_consent", "name": "Anna's consent", "language": "en-US",
    }  # fmt: skip
    where = f"{CONSENTS}/{made['id']}"
    assert (await service.client.get(where)).json() == made
    renamed = (await service.client.post(where, json={"name": "Another"})).json()
    assert renamed == made | {"name": "Another"} == (await service.client.get(where)).json()
    deleted = await service.client.delete(where)
    assert deleted.json() == {"object": "audio.voice_consent", "id": made["id"], "deleted": True}
    for answer in (
        await service.client.get(where),
        await service.client.delete(where),
        await service.client.post(where, json={"name": "x"}),
    ):
        check(answer, 404, "not_found", "consent")


async def test_pages_of_consents(service: Service) -> None:
    made = [(await consent(service, f"c{n}")).json()["id"] for n in range(5)][::-1]
    whole = (await service.client.get(CONSENTS)).json()
    assert [entry["id"] for entry in whole["data"]] == made
    assert (whole["first_id"], whole["last_id"], whole["has_more"]) == (made[0], made[-1], False)
    first = (await service.client.get(CONSENTS, params={"limit": 2})).json()
    assert ([entry["id"] for entry in first["data"]], first["has_more"]) == (made[:2], True)
    last = (await service.client.get(CONSENTS, params={"limit": 3, "after": made[1]})).json()
    assert ([entry["id"] for entry in last["data"]], last["has_more"]) == (made[2:], False)
    for params, param in (
        ({"limit": 0}, "limit"),
        ({"limit": 101}, "limit"),
        ({"limit": "x"}, "limit"),
        ({"after": "x"}, "after"),
    ):
        check(await service.client.get(CONSENTS, params=params), 400, "invalid_request", param)


@pytest.mark.parametrize(
    ("texts", "param"),
    [
        ({"name": ""}, "name"),
        ({"language": ""}, "language"),
        ({"language": "en_US"}, "language"),
        ({"x": "y"}, "x"),
    ],
)
async def test_consents_that_are_refused(texts: dict[str, str], param: str, service: Service) -> None:
    fields = {"name": "x", "language": "en"} | texts
    answer = await upload(service, field="recording", to=CONSENTS, **fields)
    check(answer, 400, "invalid_request", param)
    check(await service.client.post(CONSENTS, json=fields), 415, "unsupported_media_type")


async def test_where_consents_are_required(place: Path) -> None:
    async with in_process(factory(FakeEngine()), voices_dir=place, voices_consent_required=True) as service:
        assert "record one with POST" in check(await upload(service), 400, "invalid_request", "consent")
        check(await upload(service, consent="my own"), 400, "invalid_request", "consent")
        given = (await consent(service)).json()["id"]
        assert (await created(service, consent=given))["consent"] == given
        refused = await service.client.delete(f"{CONSENTS}/{given}")
        assert "delete the voice first" in check(refused, 400, "invalid_request", "consent")
        assert (await service.client.post(VOICES, json=PROMPT)).status_code == 200
