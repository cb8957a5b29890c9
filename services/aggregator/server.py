"""Runs one aggregator process: the HTTP server, the event hub, and the worker task."""

import asyncio
import os
import signal
import socket
from collections.abc import Coroutine, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import uvicorn

from rampart_fl.services.aggregator import certificate
from rampart_fl.services.aggregator.api.app import create_metrics_app, create_served_app
from rampart_fl.services.aggregator.api.connections import Connection, open_files
from rampart_fl.services.aggregator.api.runtime import Runtime
from rampart_fl.services.aggregator.settings import Settings
from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.validation import validate

if TYPE_CHECKING:
    from rampart_fl.services.aggregator.worker.ranks import Ranks
    from rampart_fl.services.aggregator.worker.worker import Worker

DRAIN = 30
"""After SIGTERM, requests in flight have this many seconds to complete."""


class HttpServer(uvicorn.Server):
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
    server = HttpServer(config)
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
        until: an event that stops the aggregator; if None, a signal stops it. Callers that handle
            signals themselves pass an event.
    """
    check_certificate_files(settings)
    runtime, worker = Runtime(settings), None
    if settings.role != "api":
        from rampart_fl.services.aggregator.worker.ranks import Ranks

        ranks = Ranks.connect(settings.device)
        if ranks.rank:
            await follow_rank_0(settings, runtime, ranks)
            return
        worker = create_worker(settings, runtime, ranks)
    config = server_config(settings, runtime)
    background = background_work(settings, runtime, worker, config)
    try:
        await supervise(HttpServer(config), runtime, background, until or event_on_signals())
    finally:
        if worker is not None:
            await worker.stop()
        await runtime.close()


def check_certificate_files(settings: Settings) -> None:
    """Checks that the files with the certificate and its key exist, if the settings name them.

    Raises:
        ConfigurationError: a setting names something that is not a file.
    """
    for name, path in {"CERTIFICATE": settings.tls_certificate, "KEY": settings.tls_key}.items():
        if path is not None and not path.is_file():
            raise ConfigurationError(f"RAMPART_TLS_{name} names {str(path)!r}, which is not a file")


async def follow_rank_0(settings: Settings, runtime: Runtime, ranks: "Ranks") -> None:
    """Carries out the computations that rank 0 requests from this process, until rank 0 exits."""
    from rampart_fl.services.aggregator.worker.follower import follow

    follow(settings, runtime.blobs, ranks)
    await runtime.close()


def create_worker(settings: Settings, runtime: Runtime, ranks: "Ranks") -> "Worker":
    """The worker of this process, with the experiment that the settings name.

    Raises:
        ConfigurationError: the experiment cannot run over the network; the message says why.
    """
    from rampart_fl.services.aggregator.worker.run_start import check_networked
    from rampart_fl.services.aggregator.worker.worker import Worker
    from rampart_fl.shared.experiment import Experiment

    experiment = None
    if settings.experiment is not None:
        experiment = check_networked(validate(Experiment.load(settings.experiment)))
    return Worker(
        settings,
        runtime.stores,
        runtime.blobs,
        experiment,
        [runtime.metrics.observe_round],
        ranks,
    )


def server_config(settings: Settings, runtime: Runtime) -> uvicorn.Config:
    """The loaded configuration of the HTTP server."""
    config = uvicorn.Config(
        create_served_app(runtime),
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=DRAIN,
        timeout_keep_alive=75,
        # By default, uvicorn takes a client's address from a header that any process on this
        # machine can send.
        forwarded_allow_ips=os.environ.get("FORWARDED_ALLOW_IPS", ""),
        ssl_certfile=settings.tls_certificate,
        ssl_keyfile=settings.tls_key,
        # HTTP connections may use half of the process's file descriptors. The other file
        # descriptors are for connections to Redis, and for blobs that are read or written.
        http=Connection.with_limits(settings.body_idle, open_files() // 2),
        ws="none",
        loop="uvloop",
        backlog=4096,
    )
    config.load()
    return config


def background_work(
    settings: Settings, runtime: Runtime, worker: "Worker | None", config: uvicorn.Config
) -> list[Coroutine[Any, Any, None]]:
    """The coroutines that run beside the HTTP server.

    Args:
        settings: the deployment's settings.
        runtime: the objects that all requests share.
        worker: the worker of this process; None in the role `api`.
        config: the loaded configuration of the HTTP server.
    """
    work = [runtime.metrics.watch_loop(), runtime.watch_durability()]
    if settings.role != "worker":
        work.append(runtime.hub.run())
    if worker is not None:
        work.append(worker.run())
    if settings.tls_certificate is not None and settings.tls_key is not None:
        assert config.ssl is not None
        work.append(certificate.renew(config.ssl, settings.tls_certificate, settings.tls_key))
    if settings.metrics_port is not None:
        work.append(serve_metrics(runtime, settings.host, settings.metrics_port))
    return work


def event_on_signals() -> asyncio.Event:
    """An event that SIGTERM and SIGINT set."""
    event = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, event.set)
    return event


async def supervise(
    server: HttpServer,
    runtime: Runtime,
    background: Iterable[Coroutine[Any, Any, None]],
    until: asyncio.Event,
) -> None:
    """Serves requests until an event is set, or until the server or a background task fails.

    Args:
        server: the HTTP server.
        runtime: the objects that all requests share.
        background: the coroutines that run beside the server; they are cancelled at the end.
        until: the event.
    """
    serving = asyncio.create_task(server.serve())

    def drain() -> None:
        """Answers all long polls now; the server stops after it has answered all requests."""
        runtime.hub.close()
        server.should_exit = True

    async def drain_on_event() -> None:
        await until.wait()
        drain()
        await serving

    tasks = [asyncio.create_task(work) for work in (*background, drain_on_event())]
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
