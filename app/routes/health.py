"""Is the process alive, and can it speak?"""

from fastapi import APIRouter
from starlette.responses import JSONResponse

from app.deps import SpeechDep
from app.errors import DEAD_MESSAGE

router = APIRouter(tags=["health"])


@router.head("/healthz", include_in_schema=False)
@router.get("/healthz")
async def healthz() -> dict[str, str]:
    """Whether the process answers: 200, in every stage of its life."""
    return {"status": "ok"}


@router.head("/readyz", include_in_schema=False)
@router.get("/readyz", responses={503: {"description": "Not ready: the body says why."}})
async def readyz(speech: SpeechDep) -> JSONResponse:
    """Whether speech can be asked for: 200, or 503 with the stage of the start, or the reason."""
    if speech.status == "starting":
        return JSONResponse(
            {"status": "starting", "stage": speech.stage, "elapsed_s": round(speech.elapsed_s, 1)}, 503
        )
    if speech.status != "ready":
        return JSONResponse({"status": speech.status, "message": speech.message}, 503)
    if speech.errored:
        return JSONResponse({"status": "dead", "message": DEAD_MESSAGE}, 503)
    return JSONResponse(
        {"status": "ready", "running": speech.running, "streams_aborted": speech.streams_aborted}
    )
