"""docs/models.md describes every model, and agrees with the code."""

import re
from math import prod
from pathlib import Path

import pytest

from rampart_fl.shared.learning.network.models import models

TEXT = (Path(__file__).parents[5] / "docs" / "models.md").read_text()
ROWS = {
    cells[0].strip("`"): cells
    for cells in (
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in TEXT.splitlines()
        if line.startswith("| `")
    )
}
APART = {"module", "mean"}
"""Only in the text: the user or the data set determines their number of parameters."""


def test_every_model_is_documented() -> None:
    assert set(ROWS) | APART == set(models.names())
    assert all(f"`{name}`" in TEXT for name in APART)


@pytest.mark.parametrize("name", sorted(ROWS))
def test_documented_parameter_count_and_paper_match_the_code(name: str) -> None:
    _, _, counted_on, classes, parameters, paper = ROWS[name]
    shape = tuple(int(size) for size in counted_on.split("x"))
    module = models.build(name).build(shape, int(classes))
    assert sum(p.numel() for p in module.parameters()) == int(parameters.replace(",", ""))
    assert paper == models.get(name).paper


def test_example_network_in_the_manual_can_be_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    code = re.search(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert code is not None
    (tmp_path / "documented_nets.py").write_text(code[1])
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    module = models.build("module", path="documented_nets:Net", width=16).build((1, 8, 8), 10)
    assert sum(p.numel() for p in module.parameters()) == 16 * 9 + 16 + 32 + prod((16, 16, 10)) + 10
