"""Text to speech over a WebSocket: text in as it is written, audio out as it is made. See `app.sessions`."""

from fastapi import APIRouter, WebSocket

from app.deps import SpeakerDep
from app.error_handlers import voxserve_error_response
from app.errors import VoxserveError
from app.sessions.session import Session

router = APIRouter()


@router.websocket("/v1/audio/speech/stream")
async def speak_session(websocket: WebSocket, speaker: SpeakerDep) -> None:
    """Speak as long as the socket is open. While the engine cannot, the handshake is answered as HTTP is."""
    try:
        speaker.require_engine()
    except VoxserveError as error:
        await websocket.send_denial_response(voxserve_error_response(error))
        return
    await websocket.accept()
    await Session(websocket, speaker).run()
