"""`rampart_fl` is the one import root: light to import, and no module has a second name."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import rampart_fl
from tools.imports import MODULES

OLD_ROOTS = {"shared", "services"}


def test_importing_it_loads_nothing_else() -> None:
    script = "import rampart_fl, sys; print(*(n.partition('.')[0] for n in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    heavy = {"torch", "numpy", "pydantic", "sklearn", "scipy", "fastapi", "httpx", "pytest"}
    assert not heavy & set(done.stdout.split())


@pytest.mark.parametrize("name", rampart_fl.__all__)
def test_every_name_leads_to_what_it_is_called(name: str) -> None:
    assert getattr(rampart_fl, name).__name__ == name
    assert name in dir(rampart_fl)


def test_types_and_names_agree() -> None:
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


def test_an_unknown_name_is_an_error() -> None:
    with pytest.raises(AttributeError, match="module 'rampart_fl' has no attribute 'agregate'"):
        _ = rampart_fl.agregate
    assert not hasattr(rampart_fl, "__wrapped__")


def test_no_module_has_a_second_name() -> None:
    for module in MODULES:
        importlib.import_module(module)
    assert not OLD_ROOTS & sys.modules.keys()


@pytest.mark.processes
@pytest.mark.parametrize("folder", ["shared", "services"])
def test_doctests_by_their_folder_are_refused(folder: str, pytestconfig: pytest.Config) -> None:
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
