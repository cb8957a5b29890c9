"""Starts child processes fast: forks a process that has already imported the services.

A new interpreter takes about two seconds to import the modules, mostly torch. Tests and `rampart
matrix` start many processes, so they fork processes instead of starting interpreters. A forked
process is an ordinary process: it has its own session, log and environment, and can be killed.

The owner of a forked process is the process that called `ForkedProcesses.python`. The parent is
another process, the fork server. The fork server does not exit when the owner dies: it exits only
after the owner and all forked processes have exited. Therefore, each forked process watches its
owner, and exits if the owner dies.
"""

import multiprocessing
import os
import pkgutil
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Lock, Thread
from types import ModuleType

import rampart_fl.shared
from rampart_fl.services.console.launcher.processes import GRACE, Processes, die_with_parent

SERVICES = [
    "rampart_fl.services.aggregator.server",
    "rampart_fl.services.aggregator.worker.worker",
    "rampart_fl.services.attacker.hostile",
    "rampart_fl.services.client_agent.custom",
]
"""These modules and all modules of `rampart_fl.shared` are imported before a process is forked."""


@cache
def _server() -> "multiprocessing.context.ForkServerContext":
    """The fork server, which forks each `ForkedProcess`.

    The server exits when the current process and all forked processes have exited.
    """
    context = multiprocessing.get_context("forkserver")
    everything = pkgutil.walk_packages(rampart_fl.shared.__path__, "rampart_fl.shared.")
    context.set_forkserver_preload([*SERVICES, *(module.name for module in everything)])
    return context


_starting = Lock()


@contextmanager
def _without_main() -> Iterator[None]:
    """Hides the main module, so that multiprocessing does not import it in the new process."""
    with _starting:
        main = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")
        try:
            yield
        finally:
            sys.modules["__main__"] = main


class ForkedProcess:
    """A forked process, with the methods of `subprocess.Popen` that `Processes` needs.

    Args:
        module: the module that the process runs, as `python -m` would.
        arguments: the module's arguments.
        environment: the complete environment of the process.
        log: file to which the process's output is appended.
    """

    def __init__(
        self, module: str, arguments: tuple[str, ...], environment: Mapping[str, str], log: Path
    ) -> None:
        call = (module, arguments, dict(environment), str(log))
        self._process = _server().Process(target=_run, args=call, daemon=True)
        with _without_main():
            self._process.start()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit code, or the negative signal number; None while the process runs."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """The process's exit code, as in `returncode`."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Waits until the process exits; returns the exit code.

        Raises:
            subprocess.TimeoutExpired: the process still runs after `timeout` seconds.
        """
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
        return self.returncode

    def terminate(self) -> None:
        """Sends SIGTERM."""
        self._process.terminate()

    def kill(self) -> None:
        """Sends SIGKILL."""
        self._process.kill()


class ForkedProcesses(Processes):
    """Like `Processes`, but runs Python modules in forked processes."""

    def python(self, name: str, module: str, *arguments: str, **environment: str) -> None:
        """Forks a process that runs a Python module, such as one of the services."""
        log = self.logs / f"{name}.log"
        own = {**os.environ, **environment}
        self._running[name] = ForkedProcess(module, arguments, own, log)


def _run(module: str, arguments: tuple[str, ...], environment: dict[str, str], log: str) -> None:
    """Runs a module in this newly forked process."""
    os.setsid()
    die_with_parent()  # The parent is the fork server.
    Thread(target=_end_with_owner, name="end-with-owner", daemon=True).start()
    os.environ.clear()
    os.environ.update(environment)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for there, here in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(there, here)
    folders = environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [folder for folder in folders if folder and folder not in sys.path]
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _end_with_owner() -> None:
    """Waits until the owner of this process dies; then stops this process like `Processes.stop`."""
    owner = multiprocessing.parent_process()
    assert owner is not None
    owner.join()
    os.kill(os.getpid(), signal.SIGTERM)
    # SIGTERM normally ends this process during the following pause. If the process ignores SIGTERM,
    # SIGKILL ends it after the pause.
    time.sleep(GRACE)
    os.kill(os.getpid(), signal.SIGKILL)
