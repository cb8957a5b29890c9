"""The parsed deployment files, and the facts of the code with which tests compare them."""

import functools
import importlib.util
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic_settings import BaseSettings

from rampart_fl.services.aggregator.api.app import create_app
from rampart_fl.services.aggregator.api.runtime import Runtime
from rampart_fl.services.aggregator.settings import Settings
from rampart_fl.services.attacker.__main__ import AttackerSettings
from rampart_fl.services.attacker.cohort import CohortSettings
from rampart_fl.services.console.join_tokens import JoinTokenSettings
from rampart_fl.shared.agent.agent_settings import AgentSettings
from rampart_fl.shared.learning.data.datasets.files import VARIABLE
from rampart_fl.shared.runtime.process import SECRETS, read_settings

ROOT = Path(__file__).parents[2]
SECRET = "s" * 32
NOWHERE = "redis://127.0.0.1:1/0"
SERVICES = "rampart_fl.services."
BY_MODULE: dict[str, type[BaseSettings]] = {
    "aggregator": Settings,
    "client_agent": AgentSettings,
    "attacker": AttackerSettings,
    "attacker cohort": CohortSettings,
    "console.join_tokens": JoinTokenSettings,
}
"""The settings that a service reads, by its command without the common start."""
WITH_TORCH = {"client_agent", "attacker", "attacker cohort"}
"""Services that need an image with torch; of an aggregator, every role but the api's needs one."""

Check = Callable[[list[str], Mapping[str, str], set[str]], Any]


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return ROOT


def service_of(command: list[str]) -> str:
    """The service that a container's command starts."""
    assert command[:2] == ["python", "-m"], command
    assert importlib.util.find_spec(command[2]) is not None
    return " ".join(command[2:]).removeprefix(SERVICES)


def image_of(command: list[str], variables: Mapping[str, str]) -> str:
    """The suffix of the tag of the image that a container needs."""
    service = service_of(command)
    torch = service in WITH_TORCH or variables.get("RAMPART_ROLE") == "worker"
    return ("cuda" if variables.get("RAMPART_DEVICE") == "cuda" else "cpu") if torch else "slim"


@pytest.fixture
def settings_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Check:
    """Starts a container's command until it has read its settings, and returns the settings.

    Every RAMPART_ variable and every file of a secret must be a field of these settings.
    """

    def read(command: list[str], variables: Mapping[str, str], secrets: set[str]) -> Any:
        service = service_of(command)
        kind = BY_MODULE[service]
        prefix = str(kind.model_config["env_prefix"])
        fields = {f"{prefix}{name}".upper() for name in kind.model_fields}
        ours = {name for name in variables if name.startswith("RAMPART_")} - {SECRETS, VARIABLE}
        assert ours <= fields, f"{service} has no settings {sorted(ours - fields)}"
        unknown = {name for name in secrets if name.upper() not in fields}
        assert not unknown, f"{service} has no settings for the secrets {sorted(unknown)}"
        with monkeypatch.context() as patch:
            for name in list(os.environ):
                if name.startswith("RAMPART_"):
                    patch.delenv(name)
            patch.setattr("sys.argv", ["service"])
            for name in ours:
                patch.setenv(name, variables[name])
            if SECRETS in variables:
                folder = tmp_path / "secrets"
                folder.mkdir(exist_ok=True)
                for path in folder.iterdir():
                    path.unlink()
                for name in secrets:
                    (folder / name).write_text(SECRET)
                patch.setenv(SECRETS, str(folder))
            return read_settings("service", kind)

    return read


class Loader(yaml.CSafeLoader):
    """A loader of YAML that refuses duplicate keys."""


def _mapping(loader: Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    keys = [loader.construct_object(key) for key, _ in node.value if key.value != "<<"]
    assert len(keys) == len(set(keys)), f"a key stands twice{node.start_mark}"
    loader.flatten_mapping(node)
    return dict(loader.construct_pairs(node, deep=True))


Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


@pytest.fixture(scope="session")
def load() -> Callable[[str], list[Any]]:
    """All documents of a YAML text."""
    return lambda text: [d for d in yaml.load_all(text, Loader) if d is not None]


def env_lines(text: str, commented: bool = False) -> dict[str, str]:
    """NAME=value lines; with `commented`, also those after a #, which come last."""
    table = {}
    for mark in ("", "#") if commented else ("",):
        for line in re.findall(rf"^{mark}([A-Za-z_]+=.*)$", text, re.MULTILINE):
            name, _, value = line.partition("=")
            table[name] = value
    return table


@pytest.fixture(scope="session")
def read_env() -> Callable[..., dict[str, str]]:
    """Reads NAME=value lines."""
    return env_lines


@pytest.fixture(scope="session")
def routes(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, set[str]]]:
    """Every path that a process of a role serves, with its methods."""

    @functools.cache
    def serve(role: str) -> dict[str, set[str]]:
        known: dict[str, Any] = {"role": role, "operator_token": SECRET, "redis_url": NOWHERE}
        known["blobs"] = str(tmp_path_factory.mktemp("blobs"))
        schema = create_app(Runtime(Settings.model_validate(known))).openapi()
        return {path: set(methods) for path, methods in schema["paths"].items()}

    return serve


@pytest.fixture(scope="session")
def app_paths(routes: Callable[[str], dict[str, set[str]]]) -> Callable[[str], set[str]]:
    """Paths for which a process of a role answers GET."""
    return lambda role: {path for path, methods in routes(role).items() if "get" in methods}
