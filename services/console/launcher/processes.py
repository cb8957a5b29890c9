"""Starts child processes, each with its own log; stops only the processes that it started."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from rampart_fl.shared.errors import RampartError

GRACE = 15.0
"""Seconds between SIGTERM and SIGKILL."""


class ChildFailed(RampartError):
    """A process failed, or exited while it was still needed."""

    slug = "child-failed"
    title = "A process failed"


class Child(Protocol):
    """The part of the interface of `subprocess.Popen` that is used here."""

    pid: int

    def poll(self) -> int | None:
        """The exit code; None while the process runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Waits until the process exits; returns the exit code."""

    def terminate(self) -> None:
        """Sends SIGTERM."""

    def kill(self) -> None:
        """Sends SIGKILL."""


class Processes:
    """The processes that this object started, keyed by name, in the order of their start.

    Args:
        logs: folder for one log file per process.
    """

    def __init__(self, logs: Path) -> None:
        self.logs = logs
        logs.mkdir(parents=True, exist_ok=True)
        self._running: dict[str, Child] = {}

    def start(
        self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Starts a process in its own session, so that Ctrl-C does not reach it directly."""
        with (self.logs / f"{name}.log").open("ab") as log, delay_signals():
            child = subprocess.Popen(  # noqa: S603 - our own commands, never a shell
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
            self._running[name] = child
        return child

    def python(self, name: str, module: str, *arguments: str, **environment: str) -> None:
        """Starts a Python module, such as one of the services."""
        self.start(name, [sys.executable, "-m", module, *arguments], environment)

    def __getitem__(self, name: str) -> Child:
        return self._running[name]

    @property
    def names(self) -> list[str]:
        """Names of all processes, in the order of their start."""
        return list(self._running)

    def check(self, *needed: str) -> None:
        """Raises `ChildFailed` if a process failed, or if a `needed` process exited with code 0."""
        for name, child in self._running.items():
            code = child.poll()
            if code is not None and (code != 0 or name in needed):
                raise ChildFailed(f"{name} exited with code {code}; {self.tail(name)}")

    def tail(self, name: str) -> str:
        """The path and the last line of a process's log."""
        path = self.logs / f"{name}.log"
        lines = (
            path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
        )
        return f"see {path}" + (f": {lines[-1][:500]}" if lines else "")

    def kill(self, name: str) -> None:
        """Kills a process with SIGKILL, to imitate a crash."""
        child = self._running[name]
        child.kill()
        child.wait()

    def stop(self, name: str) -> None:
        """Sends SIGTERM to a process, and SIGKILL if it still runs `GRACE` seconds later."""
        stop(self._running.pop(name), GRACE)

    def stop_all(self) -> None:
        """Stops all processes in reverse order of start, so clients stop before the servers."""
        with delay_signals():
            for name in self.names[::-1]:
                self.stop(name)


@contextmanager
def delay_signals() -> Iterator[None]:
    """Delays SIGINT and SIGTERM until the context ends.

    Otherwise, a signal could arrive before a started process is recorded, and nothing would stop
    the process.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    held: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {n: signal.signal(n, lambda number, frame: held.append(number)) for n in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for late in held:
            signal.raise_signal(late)


def die_with_parent() -> None:
    """Makes Linux send SIGTERM to this child if its parent dies."""
    if sys.platform != "linux":
        return
    import ctypes

    set_parent_death_signal = 1
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGTERM)


def stop(child: Child, grace: float) -> None:
    """Sends SIGTERM to a process, and SIGKILL if it still runs `grace` seconds later."""
    if child.poll() is None:
        child.terminate()
    try:
        child.wait(grace)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def free_port() -> int:
    """A loopback port that is free at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_until_listening(port: int, processes: Processes, name: str, seconds: float) -> None:
    """Waits until a process accepts connections on a port."""
    give_up = time.monotonic() + seconds
    while True:
        processes.check(name)
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            if time.monotonic() > give_up:
                raise ChildFailed(
                    f"{name} does not listen on port {port}; {processes.tail(name)}"
                ) from None
            time.sleep(0.05)
        else:
            return
