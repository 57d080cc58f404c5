"""Is the process alive, and can it answer?"""

from typing import Any

from fastapi import APIRouter
from starlette.responses import JSONResponse

from app.deps import EnginesDep
from app.errors import dead_message
from app.lifecycle import EngineService

router = APIRouter(tags=["health"])

WORST_FIRST = ("dead", "failed", "stopping", "starting", "ready")


@router.head("/healthz", include_in_schema=False)
@router.get("/healthz")
async def healthz() -> dict[str, str]:
    """Whether the process answers: 200, in every stage of its life."""
    return {"status": "ok"}


@router.head("/readyz", include_in_schema=False)
@router.get("/readyz", responses={503: {"description": "Not ready: the body says why."}})
async def readyz(engines: EnginesDep) -> JSONResponse:
    """Whether all that is served can be asked for: 200, or 503 with each engine's stage or reason."""
    reports = {service.name: _report(service) for service in engines.services}
    statuses = [str(report["status"]) for report in reports.values()]
    worst = min(statuses, key=WORST_FIRST.index)
    return JSONResponse({"status": worst, **reports}, 200 if worst == "ready" else 503)


def _report(service: EngineService[Any]) -> dict[str, object]:
    if service.status == "starting":
        return {"status": "starting", "stage": service.stage, "elapsed_s": round(service.elapsed_s, 1)}
    if service.status != "ready":
        return {"status": service.status, "message": service.message}
    if service.errored:
        return {"status": "dead", "message": dead_message(service.name)}
    return {"status": "ready", "running": service.running, "streams_aborted": service.streams_aborted}
