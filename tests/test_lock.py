"""Each lock pins its dependencies, with hashes, for every supported Python and platform.

The extras `mlflow`, `tensorboard` and `ray` are in no lock (docs/decisions/0019-lock.md).
"""

import re
import tomllib
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT: dict[str, Any] = PYPROJECT["project"]
LOCKS = [ROOT / f"locks/{name}.txt" for name in ("dev", "image", "image-api", "browser")]
PYTHONS = [
    version
    for line in PROJECT["classifiers"]
    for version in re.findall(r"^Programming Language :: Python :: (3\.\d+)$", line)
]
PLATFORMS = {
    "linux": {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"},
    "macos": {"sys_platform": "darwin", "platform_system": "Darwin", "os_name": "posix"},
}
ENVIRONMENTS = [
    {**default_environment(), "python_version": python, "python_full_version": f"{python}.9"} | on
    for python in PYTHONS
    for on in PLATFORMS.values()
]
"""Markers' variables, for each supported Python on each platform."""


def read(lock: Path) -> list[tuple[Requirement, str]]:
    """Each pin of a lock, with the lines that follow it: its hashes and what requires it."""
    text = re.sub(r"^#.*\n", "", lock.read_text(), flags=re.MULTILINE)
    blocks = re.findall(r"^(\S.*?) \\\n((?:^ .*\n)+)", text, re.MULTILINE)
    assert len(blocks) == len(re.findall(r"^\S", text, re.MULTILINE)), "a line is no pin"
    return [(Requirement(pin), rest) for pin, rest in blocks]


def listed(path: str) -> list[str]:
    """The requirements in a file."""
    lines = (ROOT / path).read_text().splitlines()
    return [line for line in lines if not line.startswith("#")]


def declared(lock: Path) -> list[Requirement]:
    """The dependencies that a lock is made for, without torch."""
    if lock.stem == "browser":
        return [Requirement(line) for line in listed("tests/browser/requirements.txt")]
    extras = PROJECT["optional-dependencies"]
    lines = {
        "dev": [*PROJECT["dependencies"], *extras["dev"]],
        "image": [*PROJECT["dependencies"], *extras["privacy"]],
        "image-api": listed("services/requirements-api.txt"),
    }[lock.stem]
    needed = [Requirement(line) for line in [*lines, *PYPROJECT["build-system"]["requires"]]]
    return [one for one in needed if one.name != "torch"]


@pytest.fixture(params=LOCKS, ids=lambda path: path.stem)
def lock(request: pytest.FixtureRequest) -> Path:
    """Every lock."""
    path: Path = request.param
    return path


def pins(lock: Path, environment: dict[str, str]) -> dict[str, str]:
    """The versions that a lock installs in an environment, by name; no name occurs twice."""
    applies = [
        pin for pin, _ in read(lock) if pin.marker is None or pin.marker.evaluate(environment)
    ]
    versions = {canonicalize_name(pin.name): str(pin.specifier) for pin in applies}
    assert len(versions) == len(applies)
    return {name: version.removeprefix("==") for name, version in versions.items()}


def test_every_declared_dependency_is_pinned(lock: Path) -> None:
    for environment in ENVIRONMENTS:
        pinned = pins(lock, environment)
        for needed in declared(lock):
            if needed.marker is None or needed.marker.evaluate(environment):
                version = pinned.get(canonicalize_name(needed.name))
                assert version, f"{needed.name} is not in {lock.name}: run make lock"
                assert needed.specifier.contains(version), f"{needed}, but {lock.name}: {version}"


def test_decision_record_names_the_extras_without_a_lock() -> None:
    pinned = {pin.name for lock in LOCKS for pin, _ in read(lock)}
    outside = {
        extra
        for extra, lines in PROJECT["optional-dependencies"].items()
        if not all(canonicalize_name(Requirement(line).name) in pinned for line in lines)
    }
    record = " ".join((ROOT / "docs/decisions/0019-lock.md").read_text().split())
    (named,) = re.findall(r"No lock covers the packages of the extras (.*?), because", record)
    assert set(re.findall(r"`(\w+)`", named)) == outside


def test_every_pin_has_hashes_and_a_reason(lock: Path) -> None:
    for pin, rest in read(lock):
        assert re.fullmatch(r"==[\w.]+", str(pin.specifier)), pin
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", rest), pin
        assert "# via" in rest, pin


def test_locks_name_no_registry(lock: Path) -> None:
    assert not re.search(r"://|--(index|extra-index|find-links)", lock.read_text())


def test_torch_is_not_pinned_and_pins_meet_its_requirements(lock: Path) -> None:
    assert "torch" not in {pin.name for pin, _ in read(lock)}
    for environment in ENVIRONMENTS:
        pinned = pins(lock, environment)
        for line in requires("torch") or []:
            needed = Requirement(line)
            name = canonicalize_name(needed.name)
            marker = needed.marker is None or needed.marker.evaluate({**environment, "extra": ""})
            if marker and name in pinned:
                assert needed.specifier.contains(pinned[name]), f"torch needs {needed}"


def test_locks_agree_on_the_version_of_each_package() -> None:
    for environment in ENVIRONMENTS:
        whole, *others = (pins(lock, environment) for lock in LOCKS)
        *images, browser = others
        assert all(image.items() <= whole.items() for image in images)
        assert all(whole.get(name, version) == version for name, version in browser.items())


def test_locks_are_made_for_the_oldest_supported_python() -> None:
    oldest = PROJECT["requires-python"].removeprefix(">=")
    assert PYTHONS[0] == oldest
    assert f"--python-version {oldest} " in (ROOT / "Makefile").read_text()
