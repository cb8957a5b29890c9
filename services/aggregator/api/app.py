"""The HTTP application of an aggregator process."""

from fastapi import FastAPI

from rampart_fl.services.aggregator.api.deps import ConvertedDep
from rampart_fl.services.aggregator.api.links import operation_id
from rampart_fl.services.aggregator.api.problems import SmallBodies, add_problem_handlers
from rampart_fl.services.aggregator.api.request_timing import RequestTiming
from rampart_fl.services.aggregator.api.routes import (
    audit,
    clients,
    members,
    models,
    operations,
    operators,
    page,
    records,
    run_status,
    runs,
    tap,
    tickets,
    training,
)
from rampart_fl.services.aggregator.api.runtime import Runtime
from rampart_fl.services.aggregator.api.shortcuts import Shortcuts


def create_app(runtime: Runtime) -> FastAPI:
    """Creates the application for a process.

    A process with the role `worker` serves nothing but health checks and metrics. If metrics have a
    separate port, `create_metrics_app` makes the application for that port.
    """
    app = FastAPI(
        title="Rampart aggregator",
        version="1",
        summary="Byzantine-robust, personalized federated learning",
        docs_url=None,
        redoc_url=None,
        openapi_url=None if runtime.settings.role == "worker" else "/openapi.json",
        redirect_slashes=False,
        generate_unique_id_function=operation_id,
    )
    app.state.runtime = runtime
    add_problem_handlers(app)
    app.include_router(operations.router)
    if runtime.settings.metrics_port is None:
        app.include_router(operations.metrics_router)
    if runtime.settings.role != "worker":
        app.include_router(page.router)
        for router in (
            operations.watched,
            # FastAPI uses the first route that matches a path, so routes with fixed paths must be
            # added before routes whose paths have parameters.
            runs.router,
            run_status.router,
            records.router,
            tickets.router,
            training.heartbeats,
            training.router,
            models.router,
            members.router,
            clients.router,
            operators.router,
            audit.router,
        ):
            app.include_router(router, dependencies=[ConvertedDep])
    if runtime.settings.test_tap is not None:
        app.include_router(tap.router)
    # The middleware that is added last is called first.
    app.add_middleware(SmallBodies, seconds=runtime.settings.body_idle)
    app.add_middleware(RequestTiming, metrics=runtime.metrics)
    return app


def create_served_app(runtime: Runtime) -> FastAPI | Shortcuts:
    """The application that a process serves.

    If the process answers clients, `Shortcuts` receives their requests first.
    """
    app = create_app(runtime)
    return app if runtime.settings.role == "worker" else Shortcuts(app, runtime)


def create_metrics_app(runtime: Runtime) -> FastAPI:
    """Creates the application for the port that serves nothing but metrics."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.state.runtime = runtime
    add_problem_handlers(app)
    app.include_router(operations.metrics_router)
    return app
