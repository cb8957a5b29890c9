"""Runs the tests of the page's modules in Node, with a clock and an API that the tests control."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from rampart_fl.services.aggregator.api.routes.page import FOLDER

HERE = Path(__file__).parent
NODE = shutil.which("node")


@pytest.mark.processes
@pytest.mark.skipif(NODE is None, reason="the tests of the page's modules need Node")
@pytest.mark.parametrize("name", sorted(path.name for path in HERE.glob("*.test.js")))
def test_page_modules_pass_their_tests_in_node(name: str, tmp_path: Path) -> None:
    assert NODE is not None
    # Browsers need no package.json, but Node needs one to load the files as modules.
    (tmp_path / "package.json").write_text(json.dumps({"type": "module"}))
    shutil.copytree(FOLDER / "assets", tmp_path / "assets")
    for path in HERE.glob("*.js"):
        shutil.copy(path, tmp_path)
    command = [NODE, "--test", name]
    ran = subprocess.run(
        command, check=False, cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
