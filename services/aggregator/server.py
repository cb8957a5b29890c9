"""Runs one aggregator process: the HTTP server, the event hub, and the worker task."""

import asyncio
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from rampart_fl.services.aggregator import certificate
from rampart_fl.services.aggregator.api.app import create_metrics_app, create_served_app
from rampart_fl.services.aggregator.api.connections import Connection, open_files
from rampart_fl.services.aggregator.api.runtime import Runtime
from rampart_fl.services.aggregator.settings import Settings
from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.validation import validate

DRAIN = 30
"""Maximum time in seconds for completing requests in flight after SIGTERM."""


class Server(uvicorn.Server):
    """A uvicorn server that ignores signals and raises errors instead of exiting the process."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Starts listening.

        Raises:
            ConfigurationError: the server cannot listen at its address; uvicorn logs the cause.
        """
        try:
            await super().startup(sockets)
        except SystemExit:
            where = f"{self.config.host}, port {self.config.port}"
            raise ConfigurationError(
                f"cannot listen at {where}: see RAMPART_HOST, RAMPART_PORT and RAMPART_METRICS_PORT"
            ) from None

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Does nothing, because `serve` handles the signals."""
        yield


async def serve_metrics(runtime: Runtime, host: str, port: int) -> None:
    """Serves metrics on a separate port until the task is cancelled."""
    config = uvicorn.Config(
        create_metrics_app(runtime),
        host=host,
        port=port,
        log_config=None,
        access_log=False,
        ws="none",
        timeout_graceful_shutdown=1,
    )
    server = Server(config)
    serving = asyncio.create_task(server.serve())
    try:
        await asyncio.shield(serving)
    finally:
        server.should_exit = True
        await serving


async def serve(settings: Settings, until: asyncio.Event | None = None) -> None:
    """Runs an aggregator until SIGTERM or SIGINT.

    If the HTTP server or a background task fails, `serve` stops the aggregator and raises the
    error.

    Args:
        settings: the deployment's settings.
        until: an event that stops the aggregator, for callers that handle signals themselves; if
            None, a signal stops the aggregator.
    """
    for name, path in {"CERTIFICATE": settings.tls_certificate, "KEY": settings.tls_key}.items():
        if path is not None and not path.is_file():
            raise ConfigurationError(f"RAMPART_TLS_{name} names {str(path)!r}, which is not a file")
    runtime = Runtime(settings)
    worker = None
    if settings.role != "api":
        from rampart_fl.services.aggregator.worker.follower import follow
        from rampart_fl.services.aggregator.worker.ranks import Ranks
        from rampart_fl.services.aggregator.worker.round_engine import check_networked
        from rampart_fl.services.aggregator.worker.worker import Worker
        from rampart_fl.shared.experiment import Experiment

        ranks = Ranks.connect()
        if ranks.rank:
            follow(settings, runtime.blobs, ranks)
            await runtime.close()
            return
        experiment = None
        if settings.experiment is not None:
            experiment = check_networked(validate(Experiment.load(settings.experiment)))
        worker = Worker(
            settings,
            runtime.stores,
            runtime.blobs,
            experiment,
            [runtime.metrics.observe_round],
            ranks,
        )
    config = uvicorn.Config(
        create_served_app(runtime),
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=DRAIN,
        timeout_keep_alive=75,
        ssl_certfile=settings.tls_certificate,
        ssl_keyfile=settings.tls_key,
        # HTTP connections may use half of the process's file descriptors. The other file
        # descriptors are for connections to Redis, and for blobs that are read or written.
        http=Connection.with_limits(settings.body_idle, open_files() // 2),
        ws="none",
        loop="uvloop",
        backlog=4096,
    )
    server = Server(config)

    def drain() -> None:
        """Answers all long polls now; the server stops after it has answered all requests."""
        runtime.hub.close()
        server.should_exit = True

    async def drain_on(event: asyncio.Event) -> None:
        await event.wait()
        drain()
        await serving

    background = [runtime.metrics.watch_loop(), runtime.watch_durability()]
    if settings.role != "worker":
        background.append(runtime.hub.run())
    if worker is not None:
        background.append(worker.run())
    config.load()
    if settings.tls_certificate is not None and settings.tls_key is not None:
        assert config.ssl is not None
        files = (settings.tls_certificate, settings.tls_key)
        background.append(certificate.renew(config.ssl, *files))
    if settings.metrics_port is not None:
        background.append(serve_metrics(runtime, settings.host, settings.metrics_port))
    serving = asyncio.create_task(server.serve())
    if until is not None:
        background.append(drain_on(until))
    else:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, drain)
    tasks = [asyncio.create_task(work) for work in background]
    try:
        done, _ = await asyncio.wait([serving, *tasks], return_when=asyncio.FIRST_COMPLETED)
        if serving not in done:
            drain()
            await serving
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if worker is not None:
            await worker.stop()
        await runtime.close()
