"""Text to speech over HTTP on a fake engine: answers, streams, refusals, and clients that leave."""

import asyncio
import io
import json
from collections.abc import AsyncIterator

import httpx
import numpy as np
import pytest
import soundfile

from app.errors import EngineDead, GenerationFailed
from app.pipeline.generation import Generation
from models.voxcpm2.prompt import AUDIO_START
from models.voxcpm2.tokenizer import TextTokenizer
from tests.app.test_errors import check
from tests.support.fake_engine import FakeEngine
from tests.support.golden import CHECKPOINT
from tests.support.serving import SPEECH, Service, factory, in_process, on_port, until

BODY = {
    "model": "voxcpm2",
    "input": "Hello world, this is a test of speech.",
    "seed": 7,
    "response_format": "wav",
    "sample_rate": 48000,
}
LONG = 100_000  # patches: more than any test waits for
PATCH_BYTES = 7680 * 2


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    async with on_port(factory(FakeEngine())) as running:
        yield running


async def test_whole_wav(service: Service) -> None:
    answer = await service.client.post(SPEECH, json=BODY)
    assert answer.status_code == 200
    headers = answer.headers
    assert headers["content-type"] == "audio/wav"
    assert (headers["x-sample-rate"], headers["x-seed"]) == ("48000", "7")
    assert headers["x-audio-duration"] == "0.960"
    assert int(headers["content-length"]) == len(answer.content) == 44 + 6 * PATCH_BYTES
    data, rate = soundfile.read(io.BytesIO(answer.content), dtype="int16")
    assert (rate, data.shape) == (48000, (6 * 7680,))


async def test_every_way_gives_the_same_samples(service: Service) -> None:
    wav = (await service.client.post(SPEECH, json=BODY)).content[44:]
    for extra in (
        {"response_format": "pcm"},
        {"response_format": "pcm", "stream": False},
        {"response_format": "wav", "stream": True},
    ):
        answer = await service.client.post(SPEECH, json=BODY | extra)
        streamed = extra.get("stream", True)
        assert ("content-length" in answer.headers) is not streamed
        assert (answer.headers.get("transfer-encoding") == "chunked") is streamed
        assert answer.headers["content-type"] == f"audio/{extra['response_format']}"
        assert answer.headers["x-seed"] == "7"
        assert answer.content[-len(wav) :] == wav
        assert len(answer.content) - len(wav) == (44 if extra["response_format"] == "wav" else 0)
    streamed_wav = (await service.client.post(SPEECH, json=BODY | {"stream": True})).content
    data, _ = soundfile.read(io.BytesIO(streamed_wav), dtype="int16")
    np.testing.assert_array_equal(data, np.frombuffer(wav, "<i2"))


async def test_a_drawn_seed_is_reported_and_gives_the_same_again(service: Service) -> None:
    body = {key: value for key, value in BODY.items() if key != "seed"}
    first, second = [await service.client.post(SPEECH, json=body) for _ in range(2)]
    assert first.headers["x-seed"] != second.headers["x-seed"]
    again = await service.client.post(SPEECH, json=body | {"seed": int(first.headers["x-seed"])})
    assert again.content == first.content != second.content


async def test_audio_is_sent_as_it_is_made() -> None:
    async with on_port(factory(FakeEngine(delay_s=0.05))) as service:
        sizes = []
        async with service.client.stream("POST", SPEECH, json=BODY | {"response_format": "pcm"}) as answer:
            async for chunk in answer.aiter_raw():
                sizes.append((len(chunk), service.speech.running))
    assert len(sizes) == 6
    assert sizes[0] == (PATCH_BYTES, 1), "the first patch came while the engine still ran"


@pytest.mark.parametrize(
    ("extra", "status", "code", "param"),
    [
        ({"input": ""}, 400, "invalid_request", "input"),
        ({"input": " \n\t"}, 400, "invalid_request", "input"),
        ({"input": "x" * 4097}, 400, "invalid_request", "input"),
        ({"model": "tts-1"}, 404, "model_not_found", "model"),
        ({"voice": "grandma"}, 400, "unsupported_voice", "voice"),
        ({"voice": {"id": "voice_1"}}, 400, "unsupported_voice", "voice"),
        ({"cfg_value": 11}, 400, "invalid_request", "cfg_value"),
        ({"inference_timesteps": 1}, 400, "invalid_request", "inference_timesteps"),
        ({"response_format": "midi"}, 400, "invalid_request", "response_format"),
        ({"response_format": "opus", "sample_rate": 44100}, 400, "invalid_request", "sample_rate"),
        ({"speed": 5}, 400, "invalid_request", "speed"),
        ({"reference_audio": "x"}, 400, "invalid_request", "reference_audio"),
        ({"reference_audio": "https://example.com/a.wav"}, 400, "invalid_request", "reference_audio"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_refused(extra: dict[str, object], status: int, code: str, param: str, stream: bool) -> None:
    engine = FakeEngine()
    async with in_process(factory(engine)) as service:
        answer = await service.client.post(SPEECH, json=BODY | {"stream": stream} | extra)
        check(answer, status, code, param)
    assert engine.made == 1, "only the warm-up reached the engine"


async def test_a_text_beyond_the_context_is_spoken_in_parts() -> None:
    engine = FakeEngine(patches=30)
    async with in_process(factory(engine)) as service:
        answer = await service.client.post(SPEECH, json=BODY | {"input": "The fox runs. " * 250})
    assert answer.status_code == 200
    spoken = engine.requests[1:]  # the first is the warm-up's
    assert len(spoken) > 10
    assert all(len(prompt.token_ids) < engine.max_model_len for prompt, _ in spoken)
    assert [generation.seed for _, generation in spoken] == list(range(7, 7 + len(spoken)))


async def test_every_parameter_reaches_the_engine() -> None:
    engine = FakeEngine()
    parameters = {
        "seed": 2**63 - 1,
        "cfg_value": 3.5,
        "inference_timesteps": 17,
        "temperature": 0.25,
        "min_patches": 1,
        "max_patches": 3,
    }
    async with in_process(factory(engine)) as service:
        answer = await service.client.post(SPEECH, json=BODY | parameters)
    assert answer.headers["x-audio-duration"] == "0.480"
    prompt, generation = engine.requests[-1]
    assert prompt.token_ids == [*TextTokenizer.from_checkpoint(CHECKPOINT)(BODY["input"]), AUDIO_START]
    assert generation == Generation(
        seed=2**63 - 1, cfg=3.5, steps=17, temperature=0.25, min_patches=1, max_patches=3, context_patches=3
    )


async def test_what_a_request_leaves_out_is_the_references_default() -> None:
    engine = FakeEngine()
    async with in_process(factory(engine)) as service:
        await service.client.post(SPEECH, json=BODY)
    _, generation = engine.requests[-1]
    assert generation == Generation(
        seed=7, cfg=2.0, steps=10, temperature=1.0, min_patches=2, max_patches=2000, context_patches=3
    )


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("error", "status"), [(GenerationFailed("broke"), 500), (EngineDead("dead"), 503)])
async def test_an_error_before_the_first_byte_is_a_status(
    stream: bool, error: Exception, status: int
) -> None:
    async with on_port(factory(FakeEngine())) as service:
        service.speech.pipeline.engine = FakeEngine(fail_at=0, error=error)
        answer = await service.client.post(SPEECH, json=BODY | {"stream": stream})
        assert answer.status_code == status
        assert answer.json()["error"]["message"] == str(error)


@pytest.mark.parametrize("error", [GenerationFailed("broke"), RuntimeError("unforeseen")])
@pytest.mark.parametrize("response_format", ["pcm", "wav"])
async def test_an_error_in_mid_stream_breaks_the_connection(error: Exception, response_format: str) -> None:
    async with on_port(factory(FakeEngine())) as service:
        service.speech.pipeline.engine = FakeEngine(fail_at=3, error=error)
        body = BODY | {"response_format": response_format, "stream": True}
        received = 0
        with pytest.raises(httpx.RemoteProtocolError, match="incomplete chunked read"):  # noqa: PT012
            async with service.client.stream("POST", SPEECH, json=body) as answer:
                assert answer.status_code == 200
                async for chunk in answer.aiter_raw():
                    received += len(chunk)
        assert received == 3 * PATCH_BYTES + (44 if response_format == "wav" else 0)
        assert service.speech.streams_aborted == 1
        assert service.speech.running == 0


async def test_an_error_in_mid_answer_is_a_status_where_it_comes_whole() -> None:
    async with on_port(factory(FakeEngine())) as service:
        service.speech.pipeline.engine = FakeEngine(fail_at=3, error=GenerationFailed("broke"))
        assert (await service.client.post(SPEECH, json=BODY)).status_code == 500
        assert service.speech.streams_aborted == 0


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("delay_s", [0.02, 30.0])  # in the midst of patches, and waiting for the first
async def test_a_client_that_leaves_frees_its_slot(stream: bool, delay_s: float) -> None:
    async with on_port(factory(FakeEngine())) as service:
        engine = FakeEngine(patches=LONG, delay_s=delay_s)
        service.speech.pipeline.engine = engine
        body = BODY | {"stream": stream, "input": BODY["input"] * 20}
        writer = await _post(service.port, body)
        await until(lambda: engine.running == 1)
        await asyncio.sleep(0.1)
        writer.close()
        await writer.wait_closed()
        await until(lambda: engine.running == 0)
        made = engine.made
        await asyncio.sleep(0.1)
        assert engine.made == made
        assert service.speech.streams_aborted == 0


async def test_one_client_leaving_disturbs_no_other() -> None:
    async with on_port(factory(FakeEngine(delay_s=0.02))) as service:
        expected = (await service.client.post(SPEECH, json=BODY)).content
        staying = [asyncio.create_task(service.client.post(SPEECH, json=BODY)) for _ in range(4)]
        leaving = await _post(service.port, BODY | {"seed": 8})
        await until(lambda: service.speech.running == 5)
        leaving.close()
        await leaving.wait_closed()
        for task in staying:
            assert (await task).content == expected


async def test_a_server_that_stops_says_so() -> None:
    async with on_port(factory(FakeEngine())) as service:
        engine = FakeEngine(patches=LONG, delay_s=0.01)
        service.speech.pipeline.engine = engine
        body = BODY | {"input": BODY["input"] * 20}
        answer = asyncio.create_task(service.client.post(SPEECH, json=body))
        await until(lambda: engine.running == 1)
        service.server.should_exit = True
        check(await answer, 503, "server_stopping")
        assert engine.running == 0


async def test_the_schema_tells_the_truth(service: Service) -> None:
    operation = (await service.client.get("/openapi.json")).json()["paths"][SPEECH]["post"]
    assert set(operation["responses"]) == {"200", "4XX", "5XX"}
    assert set(operation["responses"]["200"]["content"]) == {
        "audio/mpeg", "audio/ogg", "audio/aac", "audio/flac", "audio/wav", "audio/pcm", "text/event-stream",
    }  # fmt: skip


async def _post(port: int, body: dict[str, object]) -> asyncio.StreamWriter:
    content = json.dumps(body).encode()
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(
        b"POST %s HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s"
        % (SPEECH.encode(), len(content), content)
    )
    await writer.drain()
    return writer


async def test_fields_that_contradict_each_other() -> None:
    async with in_process(factory(FakeEngine())) as service:
        answer = await service.client.post(SPEECH, json=BODY | {"min_patches": 5, "max_patches": 3})
    assert answer.status_code == 400
    assert answer.json()["error"]["message"] == "min_patches is greater than max_patches: lower it"
