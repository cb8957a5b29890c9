"""A container engine, our images, and the stack that compose runs from them.

`make test-containers` runs these tests. ENGINE is the engine's command with its own options, by
default docker or podman; COMPOSE is the command of compose, by default `ENGINE compose`.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.manual import manual

ROOT = Path(__file__).parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
PROJECT = "rampart-test"


class Engine:
    """A container engine, through its command line."""

    def __init__(self, command: list[str]) -> None:
        self.command = command

    def run(self, *words: str, check: bool = True) -> str:
        """What a command of the engine prints."""
        done = subprocess.run([*self.command, *words], capture_output=True, text=True)
        if check and done.returncode:
            raise AssertionError(f"{shlex.join(words)}: {done.stdout}{done.stderr}")
        return done.stdout

    def inspect(self, name: str) -> Any:
        """What the engine reports about a container or an image."""
        return json.loads(self.run("inspect", name))[0]

    def inside(self, image: str, *command: str) -> str:
        """What a command prints in a new container of an image, as the images' own user."""
        return self.run("run", "--rm", "--network", "none", image, *command)


class Stack:
    """The services of docker-compose.yml with six attackers, in a project of their own."""

    def __init__(self, engine: Engine, compose: list[str], folder: Path) -> None:
        self.engine = engine
        self._compose = compose
        self.folder = folder

    def compose(self, *words: str) -> str:
        """What a command of compose prints."""
        done = subprocess.run(
            [*self._compose, "--project-name", PROJECT, *words],
            cwd=self.folder,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise AssertionError(f"compose {shlex.join(words)}: {done.stdout}{done.stderr}")
        return done.stdout

    def manual(self, script: str) -> None:
        """Runs commands of the manual, with the engine and the project of this test."""
        engine = shlex.join(self.engine.command)
        compose = shlex.join([*self._compose, "--project-name", PROJECT])
        prelude = f"""
        set -e
        docker() {{
          if [ "$1" = compose ]; then shift; {compose} "$@"; else {engine} "$@"; fi
        }}
        """
        done = subprocess.run(
            [
                "bash",
                "-c",
                prelude + re.sub(r"\brampart_(blobs|redis)\b", rf"{PROJECT}_\1", script),
            ],
            cwd=self.folder,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def container(self, service: str) -> Any:
        """What the engine reports about a service's container."""
        names = self.compose("ps", "--all", "--quiet", service).split()
        return self.engine.inspect(names[-1])

    def process(self, service: str) -> Path:
        """The folder in /proc of a service's process, as this machine sees it."""
        return Path("/proc") / str(self.container(service)["State"]["Pid"])

    def console(self, *words: str) -> Any:
        """The answer of the command `rampart` in the api's container."""
        url = ("--url", "http://localhost:8440", "--json")
        return json.loads(self.compose("exec", "-T", "api", "rampart", *words, *url))

    def kill(self, service: str) -> None:
        """Kills a service's process, and starts the service again."""
        self.engine.run("kill", "--signal", "KILL", self.container(service)["Id"])
        self.compose("up", "--detach", "--no-recreate", "--no-deps", service)


def _words(variable: str, default: list[str]) -> list[str]:
    words = os.environ.get(variable)
    return shlex.split(words) if words else default


@pytest.fixture(scope="session")
def engine() -> Engine:
    """The engine; without one that works, or without our images, the tests are skipped."""
    known = [[name] for name in ("docker", "podman") if shutil.which(name)]
    for command in [words] if (words := _words("ENGINE", [])) else known:
        result = Engine(command)
        if subprocess.run([*command, "info"], capture_output=True).returncode == 0:
            break
    else:
        pytest.skip("NO CONTAINER WAS TESTED: neither docker nor podman works here")
    for target in ("slim", "cpu"):
        if not result.run("images", "--quiet", f"rampart:{VERSION}-{target}", check=False):
            pytest.skip(f"NO CONTAINER WAS TESTED: no image {target}; run `make images` first")
    return result


@pytest.fixture(scope="session")
def image() -> Callable[[str], str]:
    """The name of an image."""
    return lambda target: f"rampart:{VERSION}-{target}"


@pytest.fixture(scope="module")
def stack(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The running stack, deleted with its volumes at the end."""
    folder = tmp_path_factory.mktemp("stack")
    shutil.copytree(ROOT / "k8s/chart/files", folder / "k8s/chart/files")
    shutil.copy(ROOT / "docker-compose.yml", folder)
    example = (ROOT / ".env.example").read_text()
    hostile = re.findall(r"^#([A-Z_]+=.*)$", example, re.MULTILINE)
    (folder / ".env").write_text("\n".join([*hostile, "API_PORT=18440", "THREADS=1"]) + "\n")
    made = Stack(engine, _words("COMPOSE", [*engine.command, "compose"]), folder)
    deploy = manual("mkdir -m 700 secrets").replace("make images\n", "")
    try:
        made.manual(deploy.replace("docker compose run --rm console watch\n", ""))
        yield made
    finally:
        made.compose("--profile", "attackers", "down", "--volumes")
