"""Every benchmark can be loaded: nothing that it imports has been renamed or removed."""

import importlib.util
import sys
from pathlib import Path

import pytest

import benchmarks

FOLDER = Path(benchmarks.__file__).parent


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.py")), ids=lambda file: file.stem)
def test_benchmark_can_be_loaded(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if file.stem == "page":
        pytest.importorskip("playwright", reason="the page's benchmark needs a browser")
    # A script imports its neighbours from its own folder.
    monkeypatch.syspath_prepend(str(FOLDER))
    spec = importlib.util.spec_from_file_location(f"benchmark_{file.stem}", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
