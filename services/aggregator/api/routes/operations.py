"""Health checks and metrics for the platform that runs the process, such as Kubernetes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import APIRouter, Response

from rampart_fl.services.aggregator.api.deps import OperatorDep, RuntimeDep
from rampart_fl.services.aggregator.api.routes import PROBLEMS, PUBLIC_PROBLEMS
from rampart_fl.shared.errors import Unavailable
from rampart_fl.shared.protocol.messages import Health

router = APIRouter(tags=["operations"], responses=PUBLIC_PROBLEMS)
watched = APIRouter(
    prefix="/v1", tags=["operations"], responses=PROBLEMS, dependencies=[OperatorDep]
)
metrics_router = APIRouter(tags=["operations"], responses=PUBLIC_PROBLEMS)
PATIENCE = 2.0
"""Timeout in seconds for each part of a health check. A health check has two parts: it checks
Redis, then the blobs. The platform's timeout for the whole check must therefore be longer than
twice `PATIENCE`."""


@asynccontextmanager
async def health_timeout(who: str = "Redis") -> AsyncIterator[None]:
    """Raises `Unavailable` if the `with` block takes longer than `PATIENCE`."""
    try:
        async with asyncio.timeout(PATIENCE):
            yield
    except TimeoutError:
        raise Unavailable(f"{who}: no response within {PATIENCE:g} seconds") from None


@router.get("/healthz")
async def healthz() -> dict[str, str]:
    """Returns 200 as long as the event loop is running."""
    return {"status": "alive"}


@router.get("/readyz")
async def readyz(runtime: RuntimeDep) -> dict[str, str]:
    """Returns 200 if Redis and the blobs work, and a worker has taken over the federation."""
    if runtime.hub.closing:
        raise Unavailable("the process is stopping")
    async with health_timeout():
        await runtime.stores.redis.ping()
        await runtime.require_ready()
    async with health_timeout("blobs"):
        await asyncio.get_running_loop().run_in_executor(runtime.disk, runtime.blobs.check)
    return {"status": "ready"}


@watched.get("/health")
async def health(runtime: RuntimeDep) -> Health:
    """Shows whether Redis and the blob store work, and which worker holds the lease.

    If Redis is down, the request fails with the problem type `unavailable`, because the operator's
    token cannot be checked.
    """
    redis, blobs, worker = "; ".join(runtime.warnings), "", None
    try:
        async with health_timeout():
            worker = await runtime.stores.lease.holder()
    except Unavailable as error:
        redis = error.detail
    try:
        async with health_timeout("blobs"):
            await asyncio.get_running_loop().run_in_executor(runtime.disk, runtime.blobs.check)
    except Unavailable as error:
        blobs = error.detail
    return Health(redis=redis, blobs=blobs, worker=worker)


@metrics_router.get("/metrics", response_class=Response)
async def metrics(runtime: RuntimeDep) -> Response:
    """Prometheus metrics of this process."""
    known = runtime.metrics
    try:
        async with health_timeout():
            known.clients.labels("registered").set(await runtime.stores.clients.count())
            known.set_redis_memory(*await runtime.stores.redis.memory())
            queue, run = await runtime.stores.runs.queue(), await runtime.stores.runs.current()
            known.queued.set(len(queue))
            waiting = [run] if run else queue[:1]
            held = [await runtime.stores.of_run(one).state.wait_reason() for one in waiting]
            known.held.set(any(held))
            stores = None if run is None else runtime.stores.of_run(run)
            summary = None if stores is None else await stores.state.summary()
            if stores is not None and summary is not None:
                known.set_phase(summary.phase, summary.round, summary.status == "paused")
                barred = await stores.evictions.barred()
                known.evictions.set(len(barred.evicted))
                known.quarantines.set(len(barred.quarantined))
                known.proposals.set(len(barred.proposals))
                known.clients.labels("members").set(len(barred.members))
            else:
                known.set_no_run()
        known.redis_up.set(1)
    except Unavailable:
        known.redis_up.set(0)
    known.waiting.set(runtime.hub.waiting)
    return Response(known.text(), media_type="text/plain; version=0.0.4; charset=utf-8")
