"""`rampart_fl` is the only import root: light to import, and no module has a second name."""

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import rampart_fl
from tools.imports import MODULES, ROOT

OLD_ROOTS = {"shared", "services"}


@pytest.mark.processes
def test_importing_the_package_loads_no_heavy_library() -> None:
    script = "import rampart_fl, sys; print(*(n.partition('.')[0] for n in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    heavy = {"torch", "numpy", "pydantic", "sklearn", "scipy", "fastapi", "httpx", "pytest"}
    assert not heavy & set(done.stdout.split())


@pytest.mark.parametrize("name", rampart_fl.__all__)
def test_lazy_attributes_resolve_to_objects_of_the_same_name(name: str) -> None:
    assert getattr(rampart_fl, name).__name__ == name
    assert name in dir(rampart_fl)


def test_every_type_that_the_guide_names_is_public() -> None:
    text = (ROOT / "docs/your-own-algorithms.md").read_text(encoding="utf-8")
    (part,) = re.findall(
        r"^All base classes are in.*?^The docstrings", text, re.MULTILINE | re.DOTALL
    )
    named = set(re.findall(r"`([A-Z]\w+)`", part))
    assert {"Batch", "Customization", "Point", "Samples", "StepState"} <= named
    assert named <= set(rampart_fl.__all__)


def test_type_checking_imports_agree_with_lazy_attributes() -> None:
    (block,) = [
        node
        for node in ast.parse(Path(rampart_fl.__file__).read_text()).body
        if isinstance(node, ast.If)
    ]
    typed = {
        alias.name: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    loaded = {name: f"rampart_fl.{module}" for name, module in rampart_fl._MODULES.items()}
    assert typed == loaded and sorted(rampart_fl.__all__) == sorted(loaded)


def test_unknown_attribute_raises_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'rampart_fl' has no attribute 'agregate'"):
        _ = rampart_fl.agregate
    assert not hasattr(rampart_fl, "__wrapped__")


def test_modules_load_only_under_the_import_root() -> None:
    for module in MODULES:
        importlib.import_module(module)
    assert not OLD_ROOTS & sys.modules.keys()


@pytest.mark.processes
@pytest.mark.parametrize("folder", ["shared", "services"])
def test_doctests_are_rejected_outside_the_import_root(
    folder: str, pytestconfig: pytest.Config
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--collect-only", f"{folder}/__init__.py"],
        cwd=pytestconfig.rootpath,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert f"test it as src/rampart_fl/{folder}/__init__.py" in done.stderr
