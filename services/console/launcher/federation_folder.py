"""Manages a federation's folder; finds and stops the `rampart serve` process that serves it.

The process of `rampart serve` holds a lock on the file `serve.lock`, which contains the process's
id. If no process holds the lock, the id is stale.
"""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rampart_fl.services.console.folder_lock import sign, try_lock
from rampart_fl.services.console.launcher.processes import ChildFailed
from rampart_fl.shared.errors import ConfigurationError, RampartError
from rampart_fl.shared.runtime import durable

POLL = 0.05
"""Seconds between two checks of whether a process is ready or has exited."""


class ShutdownTimeout(RampartError):
    """A serving process did not exit in time."""

    slug = "still-served"
    title = "Still served"


class ServedFolder:
    """The folder with a federation's state; it exists even while no process serves the federation.

    Args:
        path: the folder; `make` and `lock` create it if it is missing.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._lock = self.path / "serve.lock"
        self._ready = self.path / "serve.json"
        self._pids = self.path / "pids"

    def make(self) -> None:
        """Creates the folder if it does not exist.

        Raises:
            ConfigurationError: the folder cannot be created.
        """
        durable.make_folder(self.path)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Locks the folder until the context ends; meanwhile, only this process serves the folder.

        Raises:
            ConfigurationError: another process serves the folder, or the folder cannot be created.
        """
        self.make()
        with self._lock.open("a+", encoding="utf-8") as file:
            if not try_lock(file):
                raise ConfigurationError(
                    f"process {self.server()} already serves {self.path}; rampart shutdown stops it"
                )
            sign(file)
            try:
                yield
            finally:
                self._ready.unlink(missing_ok=True)
                for path in self._pids.glob("*"):
                    path.unlink()

    def server(self) -> int | None:
        """The id of the process that serves the folder now; None if no process serves it."""
        try:
            file = self._lock.open("r+", encoding="utf-8")
        except (FileNotFoundError, NotADirectoryError):
            return None  # No process has served the folder yet, or there is no such folder.
        with file:
            return None if try_lock(file) else int(file.read() or 0) or None

    def announce(self, url: str) -> None:
        """Records that the federation is ready at this URL."""
        announcement = json.dumps({"pid": os.getpid(), "url": url})
        durable.replace(self._ready, [announcement.encode()])

    def record_process(self, name: str, pid: int) -> None:
        """Writes the id of one of the federation's processes to `pids/<name>`."""
        self._pids.mkdir(exist_ok=True)
        (self._pids / name).write_text(f"{pid}\n", encoding="utf-8")

    def forget_process(self, name: str) -> None:
        """Deletes `pids/<name>`, because the process is dead."""
        (self._pids / name).unlink(missing_ok=True)

    def await_ready(
        self, server: "subprocess.Popen[bytes]", log: Path, patience: float, since: int = 0
    ) -> str:
        """Waits until the process `server` has announced the federation; returns the URL.

        Args:
            server: the process.
            log: the file to which the process writes its output.
            patience: maximum time in seconds.
            since: number of bytes at the start of the log that earlier processes wrote; they are
                ignored.
        Raises:
            ChildFailed: the process exited, or was not ready within `patience` seconds; the message
                contains the cause from the process's log.
        """
        give_up = time.monotonic() + patience
        while server.poll() is None and time.monotonic() < give_up:
            if self._ready.exists():
                announcement = json.loads(self._ready.read_text(encoding="utf-8"))
                if announcement["pid"] == server.pid:
                    return str(announcement["url"])
            # The server writes the file `serve.json` when it is ready, so poll for this file.
            time.sleep(POLL)
        late = f"is not ready after {patience:g} s"
        why = late if server.poll() is None else f"exited with code {server.poll()}"
        lines = log.read_bytes()[since:].decode(errors="replace").splitlines()
        errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
        cause = (errors or lines or ["it wrote nothing"])[-1]
        raise ChildFailed(f"rampart serve {why}; see {log}: {cause[:1000]}")

    def shut_down(self, patience: float = 60.0) -> bool:
        """Stops the process that serves the folder, and waits until it exits.

        Returns:
            Whether a process served the folder.
        Raises:
            ShutdownTimeout: the process did not exit within `patience` seconds.
        """
        pid = self.server()
        if pid is None:
            return False
        os.kill(pid, signal.SIGTERM)
        give_up = time.monotonic() + patience
        while self.server() is not None:
            if time.monotonic() > give_up:
                raise ShutdownTimeout(
                    f"process {pid} still serves {self.path} {patience:g} s after it got SIGTERM"
                )
            # The server is not a child of this process, so poll until it exits.
            time.sleep(POLL)
        return True
