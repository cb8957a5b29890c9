"""Executes runs as tasks of a Ray cluster; each task starts on a node with enough free cores."""

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import ExitStack, redirect_stdout
from typing import Any, ParamSpec, TypeVar

from rampart_fl.services.console.studies.versions import versions
from rampart_fl.shared.errors import ConfigurationError, RampartError, Unavailable
from rampart_fl.shared.runtime import cpus

LOCAL = "local"
"""The address for a new one-node cluster on this machine. The cluster stops after the runs."""
AUTO = "auto"
"""Stands in place of an address, for the cluster to which this machine already belongs."""
PATIENCE = 5.0
"""Seconds to wait for a cluster to respond."""
RETRIES = 5
"""Maximum number of restarts of a run whose node or process died."""

P = ParamSpec("P")
T = TypeVar("T")


class RayMissing(RampartError):
    """Ray is not installed."""


class RayCluster(Executor):
    """Executes calls as tasks of a Ray cluster, until this executor is shut down.

    Args:
        address: HOST:PORT of the cluster's head, `auto` or `local`.
        cores: processor cores that each call takes.
        gpus: share of a GPU that each call takes.
    Raises:
        RayMissing: Ray is not installed.
        Unavailable: no cluster responds at the address.
        ConfigurationError: the address is `local`, but this machine has too few resources for a
            call.
    """

    def __init__(self, address: str, cores: int = 1, gpus: float = 0.0) -> None:
        try:
            import ray
        except ImportError:
            raise RayMissing("Ray is not installed: run pip install 'rampart-fl[ray]'") from None
        with ExitStack() as opened:
            # Ray reports dead nodes on standard output. Redirect these reports, because standard
            # output must contain only results.
            opened.enter_context(redirect_stdout(sys.stderr))
            _connect(ray, address)
            opened.callback(ray.shutdown)
            _make_room(ray, address, cores, gpus)
            self._opened = opened.pop_all()
        options = {"num_cpus": cores, "num_gpus": gpus, "max_retries": RETRIES}
        self._task: Any = ray.remote(**options)(_call)
        self._versions = versions()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """See `Executor`; if a node dies, its calls are restarted on other nodes."""
        future = Future[T]()
        reference = self._task.remote(self._versions, fn, args, kwargs)
        reference.future().add_done_callback(lambda done: _settle(future, done))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Leaves the cluster; calls that still run are stopped."""
        self._opened.close()


def _call(
    expected: dict[str, str], run: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> T:
    """Executes a call on a node, if the node has the expected versions of the software."""
    if versions() != expected:
        raise ConfigurationError(
            f"the node {socket.gethostname()} has {versions()}, but this study needs {expected}: "
            "install the same versions everywhere"
        )
    return run(*args, **kwargs)


def _settle(future: Future[T], done: Future[T]) -> None:
    """Copies the result or the error of a finished task to `future`."""
    error = done.exception()
    if error is None:
        future.set_result(done.result())
        return
    cause = getattr(error, "cause", None)
    future.set_exception(cause if isinstance(cause, Exception) else Unavailable(f"Ray: {error}"))


def _connect(ray: Any, address: str) -> None:
    """Connects this process to a cluster, and restores the SIGTERM handler, which Ray replaces."""
    before = signal.getsignal(signal.SIGTERM)
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if address == LOCAL:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        options |= {"num_cpus": cpus.threads(), "include_dashboard": False}
    elif address != AUTO:
        _reach(address)
    try:
        ray.init(address=address, **options)
    except (OSError, RuntimeError, ValueError) as error:
        raise Unavailable(f"no Ray cluster answers at {address}: {error}") from None
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def _reach(address: str) -> None:
    """Checks that something listens at an address, because Ray itself would retry for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        raise ConfigurationError(f"--ray {address}: give HOST:PORT, {AUTO} or {LOCAL}")
    try:
        socket.create_connection((host, int(port)), PATIENCE).close()
    except OSError as error:
        raise Unavailable(f"no Ray cluster answers at {address}: {error}") from None


def _make_room(ray: Any, address: str, cores: int, gpus: float) -> None:
    """Fails (address `local`) or warns (other addresses) if no node is large enough for a run."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if any(one.get("CPU", 0) >= cores and one.get("GPU", 0) >= gpus for one in nodes):
        return
    needed = f"{cores} cores" + (f" and {gpus:g} of a GPU" if gpus else "")
    if address == LOCAL:
        raise ConfigurationError(f"a run needs {needed}, which this machine does not have")
    sys.stderr.write(f"no node of the cluster has {needed} yet: waiting for one\n")
