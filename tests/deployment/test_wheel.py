"""The wheel works in a user's environment, beside the user's own `services/` and `shared/`."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

OFFLINE = {"PIP_NO_INDEX": "1", "http_proxy": "http://127.0.0.1:9"} | {
    "https_proxy": "http://127.0.0.1:9"
}
TESTS = """
import os
import subprocess
import sys
import time
from pathlib import Path

import rampart_fl
import services
import shared

HERE = Path(__file__).parent


def test_these_are_the_wheel_and_our_own_folders():
    assert Path(rampart_fl.__file__).is_relative_to(sys.prefix)
    assert services.OURS and shared.OURS


def test_a_federation_runs_with_our_rule_and_our_pace(rampart_run):
    running = rampart_run("mine.toml")
    assert running.experiment.packages == {"midrange": "my-rules==1.2", "halving": "my-pace==0.1"}
    running.start_clients()
    running.wait(patience=120)
    first, last = running.run.rounds()
    assert [verdict.decision for verdict in last.verdicts] == ["accepted"] * 3
    assert first.status == last.status == "published"


def test_an_agent_without_the_package_declines_and_takes_part_in_the_next_run(
    rampart_run, tmp_path
):
    running = rampart_run("mine.toml")
    command = [os.environ["WITHOUT_PACKAGES"], "-m", "rampart_fl.services.client_agent"]
    (token,) = running.operator.mint_unbound(1).tokens
    environment = {**os.environ, "RAMPART_JOIN_TOKEN": token}
    agent = subprocess.Popen(
        [*command, "--aggregator", running.url, "--state", str(tmp_path)], env=environment
    )
    try:
        while not (answers := running.run.members()):
            assert agent.poll() is None
            time.sleep(0.05)
        (member,) = answers
        assert member.accept is False
        expected = "'halving' comes from my-pace==0.1, which is not installed here"
        assert expected in member.reason
        running = rampart_run("plain.toml")
        running.wait(patience=120)
        (record,) = running.run.rounds()
        assert record.participants == [member.client_id]
        assert agent.poll() is None
    finally:
        agent.kill()
        agent.wait()


def test_an_aggregator_without_the_package_names_it():
    away = [os.environ["WITHOUT_PACKAGES"], "-m", "rampart_fl.services.aggregator"]
    environment = {**os.environ, "RAMPART_OPERATOR_TOKEN": "s" * 32}
    done = subprocess.run(
        [*away, "--experiment", "told.toml"],
        env=environment, capture_output=True, text=True, timeout=120,
    )
    assert done.returncode != 0
    assert "'midrange' comes from my-rules==1.2, which is not installed here" in done.stderr
"""
EXPERIMENT = """
name = "mine"
rounds = 2
server = { rule = "midrange" }
training = { epochs = 1, schedule = "halving" }
model = { name = "mlp", hidden = [] }
data = { dataset = "digits", clients = 3 }
"""
PLAIN = """
name = "plain"
rounds = 1
training = { epochs = 1 }
model = { name = "mlp", hidden = [] }
data = { dataset = "digits", clients = 1 }
"""
PACE = """
from rampart_fl import Schedule


class Halving(Schedule):
    def share(self, round_, rounds):
        return 0.5**round_
"""


@pytest.fixture(scope="module")
def built(root: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The source distribution, and the wheel that is built only from it."""
    folder = tmp_path_factory.mktemp("built")
    source = folder / "source"
    ignored = shutil.ignore_patterns(
        ".*", "__pycache__", "*.egg-info", "build", "runs", "tests", "node_modules"
    )
    shutil.copytree(root, source, symlinks=True, ignore=ignored)
    sdist = folder / hook("build_sdist", source, folder)
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (unpacked,) = (folder / "unpacked").iterdir()
    return sdist, folder / hook("build_wheel", unpacked, folder)


def hook(name: str, source: Path, out: Path) -> str:
    """Calls a hook of the build backend, without isolation or network; returns the built file."""
    code = f"from setuptools import build_meta; print(build_meta.{name}({str(out)!r}))"
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(
        command, cwd=source, env={**os.environ, **OFFLINE}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def pythons(
    built: tuple[Path, Path], root: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path]:
    """A Python with the wheel and two user packages, and a Python with only the wheel.

    Both see the packages that the tests run with, not the checkout or its editable install: a line
    in a .pth file adds a folder without the .pth files in it.
    """
    folder = tmp_path_factory.mktemp("environments")
    manual = (root / "docs/your-own-algorithms.md").read_text()
    rule, project = re.findall(
        r"```\w+\n# (?:my_rules\.py|pyproject\.toml)\n(.*?)```", manual, re.S
    )
    declared = tomllib.loads(project)["project"]
    lines = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
        for group, entries in declared["entry-points"].items()
    ]
    known = (declared["name"], declared["version"])
    package(folder / "packages", *known, rule, "".join(lines))
    halving = "[rampart_fl.schedules]\nhalving = my_pace:Halving\n"
    package(folder / "packages", "my-pace", "0.1", PACE, halving)
    return (
        environment(folder / "with", built[1], folder / "packages"),
        environment(folder / "without", built[1]),
    )


def package(folder: Path, name: str, version: str, code: str, entries: str) -> None:
    """Writes a package and its metadata to a folder, as pip does."""
    module = name.replace("-", "_")
    metadata = folder / f"{module}-{version}.dist-info"
    metadata.mkdir(parents=True)
    (folder / f"{module}.py").write_text(code)
    (metadata / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
    (metadata / "entry_points.txt").write_text(entries)


def environment(folder: Path, wheel: Path, *further: Path) -> Path:
    """Creates an environment with a wheel, these folders and our packages; returns its Python."""
    venv.create(folder, with_pip=False)
    python = folder / "bin/python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    options = ["--no-deps", "--no-index", "--disable-pip-version-check"]
    subprocess.run([*pip, *options, str(wheel)], check=True, env={**os.environ, **OFFLINE})
    (site,) = folder.glob("lib/python*/site-packages")
    ours = [path for path in sys.path if Path(path).name == "site-packages"]
    (site / "reused.pth").write_text("\n".join([*map(str, further), *ours]) + "\n")
    return python


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A user's repository, with folders of the same names as ours."""
    for name in ("services", "shared"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("OURS = True\n")
    (tmp_path / "test_mine.py").write_text(TESTS)
    (tmp_path / "mine.toml").write_text(EXPERIMENT)
    (tmp_path / "plain.toml").write_text(PLAIN)
    packages = '[packages]\nmidrange = "my-rules==1.2"\nhalving = "my-pace==0.1"\n'
    (tmp_path / "told.toml").write_text(EXPERIMENT + packages)
    return tmp_path


@pytest.mark.processes
def test_wheel_and_sdist_contain_every_file_and_wheel_only_our_package(
    built: tuple[Path, Path], root: Path
) -> None:
    sdist, wheel = built
    kinds = {".py", ".toml", ".c", ".typed", ".html", ".css", ".js", ".svg"}
    wanted = {f"rampart_fl/{path.name}" for path in (root / "src/rampart_fl").glob("*.*")}
    for top in ("shared", "services"):
        files = [path.relative_to(root) for path in (root / top).rglob("*") if path.suffix in kinds]
        wanted |= {f"rampart_fl/{path}" for path in files}
    licences = (root / "services/aggregator/page").rglob("*-license.txt")
    wanted |= {f"rampart_fl/{path.relative_to(root)}" for path in licences}
    names = set(zipfile.ZipFile(wheel).namelist())
    assert wanted <= names
    assert {name.split("/")[0].partition("-")[0] for name in names} == {"rampart_fl"}
    with tarfile.open(sdist) as archive:
        members = {member.name.partition("/")[2] for member in archive if member.isfile()}
    assert {f"src/{name}" for name in wanted} <= members


@pytest.mark.processes
def test_federation_runs_from_a_user_repository_with_clashing_folder_names(
    pythons: tuple[Path, Path], repository: Path
) -> None:
    python, without = pythons
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", ".", "test_mine.py"],
        cwd=repository,
        env={**kept, "WITHOUT_PACKAGES": str(without)},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout
