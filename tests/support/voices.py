"""Voices over HTTP, as the tests of several files ask for them."""

from pathlib import Path

import httpx

from tests.support.recordings import voice, wav
from tests.support.serving import SPEECH, Service

VOICES, CONSENTS = "/v1/audio/voices", "/v1/audio/voice_consents"
RATE = 16000
SOUND = voice(1.5, RATE)
WAV = wav(SOUND, RATE)
PROMPT = {"type": "prompt", "name": "Narrator", "prompt": "an old man"}
SPOKEN = {"model": "voxcpm2", "input": "Hello world.", "seed": 7}


async def upload(
    service: Service, data: bytes = WAV, field: str = "audio_sample", to: str = VOICES, **texts: object
) -> httpx.Response:
    fields = {"name": "Anna"} | {name: str(text) for name, text in texts.items()}
    return await service.client.post(to, data=fields, files={field: ("../../me.wav", data, "audio/wav")})


async def created(service: Service, **texts: object) -> dict[str, object]:
    answer = await upload(service, **texts)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def consent(service: Service, name: str = "Anna's consent", language: str = "en-US") -> httpx.Response:
    return await upload(service, field="recording", to=CONSENTS, name=name, language=language)


async def speak(service: Service, **fields: object) -> httpx.Response:
    return await service.client.post(SPEECH, json=SPOKEN | fields)


def nothing_is_left(place: Path) -> bool:
    return not any(path.name not in (".lock", "incoming", "voices", "consents") for path in place.rglob("*"))
