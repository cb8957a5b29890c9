"""The catalogue matches the code."""

from typing import Any

import pytest

from rampart_fl.shared.families.registry import Registry
from tools.catalogue import FAMILIES, PATH, render


def test_the_committed_catalogue_is_up_to_date() -> None:
    assert PATH.read_text(encoding="utf-8") == render(), (
        "run `python -m tools.catalogue` and commit docs/rules.md"
    )


@pytest.mark.parametrize(
    ("title", "family"),
    [(title, family) for title, _, family in FAMILIES],
    ids=lambda v: getattr(v, "family", ""),
)
def test_every_member_and_parameter_is_named(title: str, family: Registry[Any]) -> None:
    # Families may share a name, such as `clustered`.
    lines = render().partition(f"## {title}\n")[2].partition("\n## ")[0].splitlines()
    for name in family.names():
        (line,) = [line for line in lines if line.startswith(f"| `{name}` |")]
        for key in family.get(name).model_fields:
            assert key == "f" or f"`{key}`" in line


def test_table_rows_have_as_many_cells_as_the_header() -> None:
    width = 0
    for line in render().splitlines():
        if not line.startswith("|"):
            width = 0
            continue
        cells = line.replace("\\|", "").count("|")
        assert width in (0, cells), line
        width = cells
