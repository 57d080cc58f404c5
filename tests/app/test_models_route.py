"""The list of models."""

from tests.app.test_errors import check
from tests.support.fake_engine import FakeEngine
from tests.support.serving import SPEECH, factory, in_process


async def test_list_and_retrieve() -> None:
    async with in_process(factory(FakeEngine())) as service:
        listed = (await service.client.get("/v1/models")).json()
        assert listed["object"] == "list"
        (model,) = listed["data"]
        assert set(model) == {"id", "object", "created", "owned_by"}
        assert (model["id"], model["object"]) == ("voxcpm2", "model")
        assert (await service.client.get("/v1/models/voxcpm2")).json() == model


async def test_unknown_models() -> None:
    async with in_process(factory(FakeEngine())) as service:
        for name in ("tts-1", "a/b", ""):
            answer = await service.client.get(f"/v1/models/{name}")
            assert "'voxcpm2'" in check(answer, 404, "model_not_found", "model")


async def test_the_checkpoints_name_works_too() -> None:
    hub = "openbmb/VoxCPM2"
    async with in_process(factory(FakeEngine()), speech_model=hub, speech_model_name="voice") as service:
        assert (await service.client.get(f"/v1/models/{hub}")).json()["id"] == hub
        assert (await service.client.get("/v1/models/openbmb%2FVoxCPM2")).json()["id"] == hub
        for name, status in ((hub, 200), ("voice", 200), ("voxcpm2", 404)):
            answer = await service.client.post(SPEECH, json={"model": name, "input": "Hello."})
            assert answer.status_code == status
