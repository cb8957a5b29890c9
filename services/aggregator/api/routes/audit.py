"""The route that lists the audit log, which records operators' actions."""

from typing import Annotated

from fastapi import APIRouter, Query

from rampart_fl.services.aggregator.api.deps import OperatorDep, RuntimeDep
from rampart_fl.services.aggregator.api.routes import PROBLEMS, problems
from rampart_fl.shared.protocol.audit import AuditBroken, AuditEntry

router = APIRouter(prefix="/v1", tags=["operators"], responses=PROBLEMS, dependencies=[OperatorDep])


@router.get("/audit", responses=problems(AuditBroken))
async def audit(
    runtime: RuntimeDep,
    since: Annotated[
        int, Query(ge=0, le=10**9, description="number of the first entry", examples=[0])
    ] = 0,
    limit: Annotated[int, Query(ge=1, le=1000, examples=[100])] = 100,
) -> list[AuditEntry]:
    """Lists operators' actions, oldest first; each entry has the hash of the previous entry."""
    return await runtime.stores.audit.entries(since, limit)
