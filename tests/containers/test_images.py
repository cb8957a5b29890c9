"""What the images contain, and what they must not contain."""

import hashlib
import io
import json
import re
import subprocess
import tarfile
from collections.abc import Callable

import pytest

from tests.containers.conftest import ROOT, VERSION, Engine

pytestmark = [pytest.mark.containers, pytest.mark.timeout(600)]
MB = 1_000_000
LARGEST = {"slim": 450 * MB, "cpu": 1_650 * MB}
"""Size limits of the images, with Debian's Python image as the base and torch's CPU wheel."""
TARGETS = list(LARGEST)
SERVICES = ["aggregator", "client_agent", "attacker", "console"]
DIGESTS = """
import hashlib, json, rampart_fl
from pathlib import Path
root = Path(rampart_fl.__file__).parent
print(json.dumps({
    str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
    for top in ("services", "shared") for path in (root / top).rglob("*.py")
}))
"""
"""Prints the digests of an image's modules."""


@pytest.mark.parametrize("target", TARGETS)
def test_image_size_stays_within_its_limit(
    engine: Engine, image: Callable[[str], str], target: str
) -> None:
    ask = "import torch; print(torch.version.cuda)"
    result = (
        "None" if target == "slim" else engine.inside(image(target), "python", "-c", ask).strip()
    )
    if result != "None":
        pytest.skip(f"torch's wheel in the image {target} is for CUDA {result}: set TORCH_INDEX")
    assert engine.inspect(image(target))["Size"] <= LARGEST[target]


@pytest.mark.parametrize("target", TARGETS)
def test_image_runs_unprivileged_without_pip_compilers_or_setuid_files(
    engine: Engine, image: Callable[[str], str], target: str
) -> None:
    shell = (image(target), "sh", "-c")
    assert engine.inside(*shell, "id -u; id -g").split() == ["10001", "10001"]
    assert engine.inside(*shell, "find / -xdev -type f -perm /6000 2> /dev/null || true") == ""
    for tool in ("pip", "pip3", "gcc", "cc", "as", "ld"):
        assert engine.inside(*shell, f"command -v {tool} || true") == "", tool
    assert engine.inside(*shell, "python -m pip 2>&1 || true").endswith("No module named pip\n")


def test_cpu_image_contains_torch_and_slim_image_does_not(
    engine: Engine, image: Callable[[str], str]
) -> None:
    look = ("python", "-c", "import importlib.util as u; print(u.find_spec('torch') is not None)")
    assert [engine.inside(image(t), *look).strip() for t in ("slim", "cpu")] == ["False", "True"]


def test_cpu_image_contains_compiled_kernels(engine: Engine, image: Callable[[str], str]) -> None:
    ask = "from rampart_fl.shared.robust.linalg import native; print(native.backend())"
    assert engine.inside(image("cpu"), "python", "-c", ask) == "native\n"


@pytest.mark.parametrize("target", TARGETS)
def test_image_labels_state_title_version_licence_and_revision(
    engine: Engine, image: Callable[[str], str], target: str
) -> None:
    labels = engine.inspect(image(target))["Config"]["Labels"]
    assert labels["org.opencontainers.image.title"] == "Rampart"
    assert labels["org.opencontainers.image.version"] == VERSION
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert re.fullmatch("[0-9a-f]{40}", labels["org.opencontainers.image.revision"])


@pytest.mark.parametrize("target", TARGETS)
def test_image_contains_the_code_of_the_commit_in_its_label(
    engine: Engine, image: Callable[[str], str], target: str
) -> None:
    revision = engine.inspect(image(target))["Config"]["Labels"][
        "org.opencontainers.image.revision"
    ]
    archive = subprocess.check_output(["git", "archive", revision, "services", "shared"], cwd=ROOT)
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        committed = {
            entry.name: hashlib.sha256(file.read()).hexdigest()
            for entry in files
            if entry.name.endswith(".py") and (file := files.extractfile(entry))
        }
    assert json.loads(engine.inside(image(target), "python", "-c", DIGESTS)) == committed


@pytest.mark.parametrize("target", TARGETS)
def test_image_contains_the_code_of_the_working_tree(
    engine: Engine, image: Callable[[str], str], target: str
) -> None:
    ask = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.check_output([*ask, "services", "shared"], cwd=ROOT, text=True)
    names = [name for name in listed.split("\0") if name.endswith(".py")]
    tree = {
        name: hashlib.sha256((ROOT / name).read_bytes()).hexdigest()
        for name in names
        if (ROOT / name).exists()
    }
    contained = json.loads(engine.inside(image(target), "python", "-c", DIGESTS))
    assert tree
    differing = sorted(n for n in tree | contained if tree.get(n) != contained.get(n))
    assert not differing, (
        f"the image {image(target)} is stale, so tests of the containers do not test this code: "
        f"run `make images`. The working tree differs in {', '.join(differing)}"
    )


@pytest.mark.parametrize("service", SERVICES)
def test_every_service_starts_by_its_module_name(
    engine: Engine, image: Callable[[str], str], service: str
) -> None:
    command = ["python", "-m", f"rampart_fl.services.{service}", "--help"]
    output = engine.inside(image("cpu"), *command)
    own = {"attacker": "--data-attack", "client_agent": "--client", "aggregator": "--redis-url"}
    assert own.get(service, "evict") in output
