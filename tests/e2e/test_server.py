"""The whole service: a real process with a real engine, spoken to by clients that are not ours.

The tests of the first part share one server, in this order; the last of them ends it.
"""

import http.client
import io
import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import numpy as np
import openai
import psutil
import pytest
import soundfile
from safetensors.numpy import load_file, save_file

from tests.support.golden import CHECKPOINT
from tests.support.readme import blocks, run_block
from tests.support.server_process import START_TIMEOUT_S, ServerProcess, server_process, wait_for

pytestmark = pytest.mark.engine

TEXT = "The quick brown fox jumps over the lazy dog and runs into the forest."
BODY: dict[str, object] = {
    "model": "voxcpm2",
    "input": TEXT,
    "seed": 11,
    "response_format": "wav",
    "sample_rate": 48000,
    "min_patches": 12,
    "max_patches": 12,
}
LONG_BODY = BODY | {
    "input": TEXT * 5,
    "min_patches": 400,
    "max_patches": 400,
}  # far longer than any test waits
CANCEL_TIMEOUT_S = 3.0
DEATH_TIMEOUT_S = 30.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with server_process(tmp_path_factory.mktemp("server") / "log") as started:
        yield started


@pytest.fixture(scope="module")
def client(server: ServerProcess) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def post(server: ServerProcess, **body: object) -> httpx.Response:
    answer = httpx.post(f"{server.url}/v1/audio/speech", json=BODY | body, timeout=120)
    assert answer.status_code == 200, answer.text
    return answer


def test_it_answers_while_the_engine_starts(server: ServerProcess, client: openai.OpenAI) -> None:
    assert httpx.get(f"{server.url}/healthz").json() == {"status": "ok"}
    status, body = server.readiness()
    assert (status, body["status"]) == (503, "starting")
    with pytest.raises(openai.InternalServerError) as caught:
        client.audio.speech.create(model="voxcpm2", voice="alloy", input=TEXT)
    assert caught.value.status_code == 503
    assert caught.value.code == "engine_starting"
    assert int(caught.value.response.headers["retry-after"]) > 0
    server.wait_until_ready()
    assert server.report()["running"] == 0
    server.children()


def test_openai_client_whole(client: openai.OpenAI) -> None:
    answer = client.audio.speech.create(
        model="voxcpm2",
        voice="alloy",
        input=TEXT,
        response_format="wav",
        extra_body={"min_patches": 12, "max_patches": 12},
    )
    with soundfile.SoundFile(io.BytesIO(answer.content)) as file:
        assert (file.samplerate, file.channels, file.subtype) == (48000, 1, "PCM_16")
        assert file.frames == 12 * 7680
        assert file.read().any()


def test_openai_client_streaming(client: openai.OpenAI, server: ServerProcess) -> None:
    with client.audio.speech.with_streaming_response.create(
        model="voxcpm2",
        voice="nova",
        input=TEXT,
        response_format="pcm",
        extra_body={"seed": 11, "min_patches": 12, "max_patches": 12, "sample_rate": 48000},
    ) as answer:
        chunks = list(answer.iter_bytes())
        assert answer.headers["content-type"] == "audio/pcm"
        assert answer.headers["x-sample-rate"] == "48000"
    assert len(chunks) > 1
    assert b"".join(chunks) == post(server, response_format="wav").content[44:]


def test_openai_client_lists_models(client: openai.OpenAI) -> None:
    (model,) = client.models.list().data
    assert client.models.retrieve(model.id).id == model.id == "voxcpm2"
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("tts-1")
    assert caught.value.code == "model_not_found"


def test_streamed_and_whole_are_the_same_samples(server: ServerProcess) -> None:
    wav = post(server, response_format="wav").content
    assert post(server, response_format="pcm").content == wav[44:]
    assert post(server, response_format="pcm", stream=False).content == wav[44:]
    streamed = post(server, response_format="wav", stream=True).content
    data, rate = soundfile.read(io.BytesIO(streamed), dtype="int16")
    assert rate == 48000
    np.testing.assert_array_equal(data, np.frombuffer(wav[44:], "<i2"))


def test_seeds(server: ServerProcess) -> None:
    first, second = post(server, seed=None), post(server, seed=None)
    assert first.headers["x-seed"] != second.headers["x-seed"]
    assert first.content != second.content
    again = post(server, seed=int(first.headers["x-seed"]))
    assert again.content == first.content
    assert again.headers["x-audio-duration"] == "1.920"


def test_the_first_audio_comes_before_the_last(server: ServerProcess) -> None:
    times = []
    with httpx.stream(
        "POST",
        f"{server.url}/v1/audio/speech",
        json=BODY | {"response_format": "pcm", "min_patches": 30, "max_patches": 30},
    ) as answer:
        times = [time.monotonic() for _ in answer.iter_raw()]
    assert len(times) > 10
    assert times[-1] - times[0] > 0.2


@pytest.mark.parametrize("response_format", ["pcm", "wav"])
def test_a_client_that_leaves_frees_its_slot(server: ServerProcess, response_format: str) -> None:
    server.wait_until_running(0)
    body = json.dumps(LONG_BODY | {"response_format": response_format})
    address = httpx.URL(server.url)
    with closing(http.client.HTTPConnection(address.host, address.port)) as leaver:
        leaver.request("POST", "/v1/audio/speech", body, {"content-type": "application/json"})
        server.wait_until_running(1)
    server.wait_until_running(0, CANCEL_TIMEOUT_S)
    assert post(server).status_code == 200


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        ({"input": ""}, 400, "input"),
        ({"input": "  "}, 400, "input"),
        ({"input": "x" * 5000}, 400, "input"),
        ({"input": 7}, 400, "input"),
        ({"model": "gpt-4"}, 404, "model"),
        ({"voice": "nobody"}, 400, "voice"),
        ({"cfg_value": -1}, 400, "cfg_value"),
        ({"cfg_value": "high"}, 400, "cfg_value"),
        ({"inference_timesteps": 1}, 400, "inference_timesteps"),
        ({"inference_timesteps": 101}, 400, "inference_timesteps"),
        ({"max_patches": 0}, 400, "max_patches"),
        ({"seed": 2**63}, 400, "seed"),
        ({"temperature": 3}, 400, "temperature"),
        ({"response_format": "midi"}, 400, "response_format"),
        ({"speed": 5}, 400, "speed"),
        ({"emotion": "glad"}, 400, "emotion"),
    ],
)
def test_bad_input(server: ServerProcess, body: dict[str, object], status: int, param: str) -> None:
    answer = httpx.post(f"{server.url}/v1/audio/speech", json=BODY | body)
    assert answer.status_code == status
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["param"] == param


def test_a_long_text_of_every_kind_of_character(server: ServerProcess) -> None:
    text = "Naïve café — 你好，世界 🎙️ \u200b " * 20
    assert post(server, input=text, min_patches=2, max_patches=2).headers["x-audio-duration"] == "0.320"


@pytest.mark.parametrize(("language", "block"), blocks(""))
def test_the_readme_runs(server: ServerProcess, tmp_path: Path, language: str, block: str) -> None:
    run_block(server, tmp_path, language, block)


def test_language_is_refused_with_the_setting_that_switches_it_on(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="LLM_MODEL") as caught:
        client.chat.completions.create(model="mimo-v2", messages=[{"role": "user", "content": "Hello"}])
    assert caught.value.code == "model_not_found"


def test_an_interrupt_lets_running_requests_finish(server: ServerProcess) -> None:
    """As a terminal does on Ctrl+C: the signal goes to every process of the group."""
    expected = post(server, min_patches=60, max_patches=60, response_format="pcm").content
    received = b""
    body = BODY | {"min_patches": 60, "max_patches": 60, "response_format": "pcm"}
    with httpx.stream("POST", f"{server.url}/v1/audio/speech", json=body, timeout=60) as answer:
        for chunk in answer.iter_raw():
            if not received:
                os.killpg(server.process.pid, signal.SIGINT)
            received += chunk
    assert received == expected
    assert server.exit_code(DEATH_TIMEOUT_S) == 0
    assert server.orphans() == []
    assert "Traceback" not in server.log


def test_a_killed_worker_ends_streams_and_the_process(tmp_path_factory: pytest.TempPathFactory) -> None:
    with server_process(tmp_path_factory.mktemp("killed") / "log") as server:
        server.wait_until_ready()
        worker = server.engine_processes()[-1]
        killed = 0.0
        body = LONG_BODY | {"response_format": "pcm"}
        with (  # noqa: PT012
            pytest.raises(httpx.RemoteProtocolError, match="incomplete"),
            httpx.stream("POST", f"{server.url}/v1/audio/speech", json=body, timeout=60) as answer,
        ):
            for _ in answer.iter_raw():
                if not killed:
                    worker.kill()
                    killed = time.monotonic()
        assert time.monotonic() - killed < DEATH_TIMEOUT_S
        status, said = server.readiness()
        assert (status, said["status"]) == (503, "dead")
        assert server.exit_code(DEATH_TIMEOUT_S) == 1
        assert server.orphans() == []
        assert "the speech engine died" in server.log


def test_a_checkpoint_without_a_tensor_is_refused_by_its_name(tmp_path: Path) -> None:
    checkpoint = Path(shutil.copytree(CHECKPOINT, tmp_path / "checkpoint"))
    tensors = load_file(checkpoint / "model.safetensors")
    del tensors["residual_lm.layers.1.mlp.up_proj.weight"]
    save_file(tensors, checkpoint / "model.safetensors")
    with server_process(tmp_path / "log", SPEECH_MODEL=str(checkpoint)) as server:
        assert server.exit_code(START_TIMEOUT_S) == 1
        assert "residual_lm.layers.1.mlp.up_proj.weight is missing" in server.log
        assert "Traceback" not in server.log


def test_nothing_outlives_a_killed_server(tmp_path_factory: pytest.TempPathFactory) -> None:
    with server_process(tmp_path_factory.mktemp("orphans") / "log") as server:
        wait_for(lambda: len(server.engine_processes()) == 2, 120, lambda: server.log)
        server.process.kill()
        server.process.wait()
        assert server.orphans(20) == []


def test_a_signal_in_the_midst_of_the_engines_start(tmp_path_factory: pytest.TempPathFactory) -> None:
    with server_process(tmp_path_factory.mktemp("early") / "log") as server:
        wait_for(lambda: bool(_spawned(server)), 120, lambda: server.log)
        server.process.send_signal(signal.SIGTERM)
        assert server.exit_code(DEATH_TIMEOUT_S) == 0
        assert server.orphans() == []


def test_a_second_interrupt_ends_it_at_once(tmp_path_factory: pytest.TempPathFactory) -> None:
    with server_process(tmp_path_factory.mktemp("forced") / "log") as server:
        wait_for(lambda: bool(_spawned(server)), 120, lambda: server.log)
        for _ in range(2):
            server.process.send_signal(signal.SIGINT)
            time.sleep(0.3)
        # 0 or -2 where the first was enough, and the second met an interpreter that was ending
        assert server.exit_code(DEATH_TIMEOUT_S) in (0, 130, -signal.SIGINT)
        assert server.orphans() == []


def _spawned(server: ServerProcess) -> list[psutil.Process]:
    return [process for process in server.children() if "spawn_main" in " ".join(process.cmdline())]
