"""`rampart serve` and `rampart shutdown`: a long-lived federation on this machine."""

import contextlib
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rampart_fl.services.console.commands.connection import FEDERATION, RUNS, Json, say

if TYPE_CHECKING:
    from rampart_fl.services.console.launcher.federation_folder import ServedFolder

FOLDER = RUNS / "federation"
"""Default folder of the federation."""
Folder = Annotated[Path, typer.Option(envvar=FEDERATION, help="Folder for the federation's state.")]
PATIENCE = 120.0
"""Maximum time in seconds to wait until a federation in a separate process is ready."""
GRACE = 60.0
"""Seconds between SIGTERM and SIGKILL for a federation that is not ready in time."""


def serve(
    agents: Annotated[
        int, typer.Option(min=0, help="Number of clients to start on this machine.")
    ] = 0,
    detach: Annotated[
        bool,
        typer.Option(
            "--detach",
            help="Return when the federation is ready; `rampart shutdown` stops the federation.",
        ),
    ] = False,
    folder: Folder = FOLDER,
    port: Annotated[
        int,
        typer.Option(
            envvar="RAMPART_PORT", min=0, max=65_535, help="Port; 0 chooses any free port."
        ),
    ] = 8440,
    as_json: Json = False,
) -> None:
    """Serves a federation on this machine until Ctrl-C or `rampart shutdown`; submits no run.

    Starts Redis, an aggregator and clients, and restarts them when they die. The folder keeps the
    state of the federation, its clients and its runs. To continue the federation, serve the folder
    again.
    """
    from rampart_fl.services.console.launcher.federation_folder import ServedFolder
    from rampart_fl.services.console.launcher.servers import LocalServers
    from rampart_fl.services.console.launcher.supervisor import SupervisedFederation, require_free

    place = ServedFolder(folder)
    if detach:
        url, pid = _serve_detached(place, agents, port)
        text = f"{url} is ready{_how_to_connect(folder)}"
        say(as_json, {"url": url, "pid": pid, "folder": str(folder)}, text)
        return
    with place.lock():
        require_free(port)
        with LocalServers(place.path, port=port) as servers:
            served = SupervisedFederation(servers, place)
            served.start_agents(agents)
            text = f"{servers.url} is ready; Ctrl-C or rampart shutdown stops it"
            text += _how_to_connect(folder)
            say(as_json, {"url": servers.url, "folder": str(folder)}, text)
            sys.stdout.flush()
            with contextlib.suppress(KeyboardInterrupt):
                served.watch()


def _how_to_connect(folder: Path) -> str:
    """A line that says how other commands find the federation; "" if it is in ./runs."""
    path = folder.absolute()
    if path.parent == RUNS.absolute():
        return ""
    return f"\nfor other commands: export {FEDERATION}={shlex.quote(str(path))}"


def _serve_detached(place: "ServedFolder", agents: int, port: int) -> tuple[str, int]:
    """Serves a federation in a separate process; returns the URL and the process id.

    If the federation does not become ready, the separate process is stopped. It is also stopped if
    this process is interrupted while it waits for the federation.
    """
    from rampart_fl.services.console.launcher.processes import delay_signals, stop

    place.make()
    log = place.path / "serve.log"
    options = ["--agents", str(agents), "--folder", str(place.path), "--port", str(port)]
    child: subprocess.Popen[bytes] | None = None
    try:
        with log.open("ab") as file, delay_signals():
            since = file.tell()
            child = subprocess.Popen(  # noqa: S603 - our own command, never a shell
                [sys.executable, "-m", "rampart_fl.services.console", "serve", *options],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        url = place.await_ready(child, log, PATIENCE, since)
    except BaseException:  # Clean up after any error, even an interrupt.
        if child is not None:
            with delay_signals():
                stop(child, GRACE)
        raise
    # The child process continues after the end of this process. An invented exit code prevents the
    # warning of `Popen` that the child process still runs.
    child.returncode = 0
    return url, child.pid


def shutdown(folder: Folder = FOLDER, as_json: Json = False) -> None:
    """Stops the federation that `serve` runs on this machine; its state is kept.

    An interrupted run continues when the federation is served again.
    """
    from rampart_fl.services.console.launcher.federation_folder import ServedFolder

    ended = ServedFolder(folder).shut_down()
    text = "the federation was stopped" if ended else f"no federation is served from {folder}"
    say(as_json, {"ended": ended}, text)
