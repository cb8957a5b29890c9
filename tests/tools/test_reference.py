"""The reference of experiment files matches the code."""

import re
import tomllib
from functools import cache

import pytest

from rampart_fl.shared.experiment.schema import Experiment, Table
from rampart_fl.shared.validation import validate
from tools.reference import FAMILIES, PATH, meaning, render, tables

TABLES = list(tables())


@cache
def text() -> str:
    """The reference, rendered once, and not while tests are collected."""
    return render()


@cache
def parts() -> dict[str, str]:
    """The reference by heading."""
    return {part.splitlines()[0]: part for part in text().split("\n## ")}


def part(path: str) -> str:
    """The part on one table."""
    if not path:
        return parts()["The file"]
    return parts()["`[[attackers]]`" if path == "attackers" else f"`[{path}]`"]


def test_the_committed_reference_is_up_to_date() -> None:
    assert PATH.read_text(encoding="utf-8") == text(), (
        "run `python -m tools.reference` and commit docs/experiments.md"
    )


@pytest.mark.parametrize(
    ("path", "model"), [table[:2] for table in TABLES], ids=[table[0] or "file" for table in TABLES]
)
def test_every_key_is_documented(path: str, model: type[Table]) -> None:
    for key in model.model_fields:
        (row,) = [line for line in part(path).splitlines() if line.startswith(f"| `{key}` |")]
        assert meaning(path, key, model).replace("|", "\\|") in row
        assert row.count(" | ") == 3


def test_documented_phase_bounds_match_the_defaults() -> None:
    experiment = Experiment.from_tables(
        {"name": "x", "data": {"dataset": "digits"}, "model": "mlp"}
    )
    collecting = experiment.phases.collecting
    for path, bounds in (("count", collecting.count), ("time", collecting.time)):
        section = part(f"phases.collecting.{path}")
        shown = re.findall(r"\| `(min|max)` \| [^|]* \| `?([^|`]*)`? \|", section)
        said = {key: None if value.strip() == "-" else float(value) for key, value in shown}
        assert said == {"min": bounds.min, "max": bounds.max}


@pytest.mark.parametrize("path", FAMILIES)
def test_every_member_is_named(path: str) -> None:
    (row,) = [line for line in parts()["Members"].splitlines() if line.startswith(f"| `{path}` |")]
    assert all(f"`{name}`" in row for name in FAMILIES[path].names())


def test_example_is_a_valid_experiment() -> None:
    example = re.search(r"```toml\n(.*?)```", text(), re.DOTALL)
    assert example is not None
    validate(Experiment.from_tables(tomllib.loads(example[1])))
