"""The files of tables and papers: all are consistent, and invalid files are refused."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from rampart_fl.services.console.studies.reproduction.files import (
    PAPERS,
    TABLES,
    hours,
    load,
    names,
)
from rampart_fl.shared.errors import ConfigurationError, UnknownMember
from tests.services.console.studies.reproduction.small import small

PAGES = Path(__file__).parents[5] / "docs/papers"


def test_every_paper_has_a_table() -> None:
    assert {load(name).paper for name in names()} == {path.stem for path in PAPERS.glob("*.toml")}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"titel": "x"}, r"titel: no such key \(did you mean 'title'\?\)"),
        ({"paper": "fedcup"}, r"unknown paper 'fedcup' \(did you mean 'fedcap'\?\)"),
        ({"axes": {"attack": ["lies"]}}, "axes: attack has no choice 'lies'; choices: none"),
        ({"axes": {"atack": ["lie"]}}, "axes: there is no axis 'atack'; axes: data"),
        ({"smoke": {"attack": "lie"}}, "smoke: a choice is missing for method"),
        ({"fixed": {"data": "cifar"}}, "fixed: data has no choice 'cifar'; choices: cifar10"),
        ({"values": {"lie": [1.0]}}, "values.lie: a list of 2 numbers is needed"),
        ({"values": {"lies": [1.0, 2.0]}}, "values: here has no choice 'lies'; choices: lie, ipm"),
        ({"values": {"lie": [1.0, "x"]}}, "values.lie: only numbers"),
        ({"figure": {"along": "alpha"}}, "figure: there is no axis 'alpha'; axes: attack, method"),
        ({"settings": [{"at": {"scale": "tiny"}, "change": {}}]}, "at: scale has no choice 'tiny'"),
        ({"settings": [{"at": {"data": "wisdm"}}]}, r"settings\.\d+\.change: Field required"),
    ],
)
def test_invalid_table_file_is_refused_with_a_reason(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        small(**changes)


def test_unknown_table_name_gets_a_suggestion() -> None:
    with pytest.raises(UnknownMember, match="did you mean 'fedcap-table-1'"):
        load("fedcap-tabel-1")


def test_every_table_is_named_on_its_papers_page() -> None:
    for name in names():
        assert f"`{name}`" in (PAGES / f"{load(name).paper}.md").read_text()


def test_estimated_hours_refer_to_existing_tables_and_scales() -> None:
    assert hours().keys() <= set(names())
    assert all(table.keys() <= {"reduced", "full"} for table in hours().values())


def test_reduced_tables_take_at_most_two_core_hours() -> None:
    reduced = {name: hours().get(name, {}).get("reduced") for name in names()}
    unknown = {name for name, estimate in reduced.items() if estimate is None}
    assert not unknown, "python -m benchmarks.hours --only"
    assert {name: estimate for name, estimate in reduced.items() if estimate and estimate > 2} == {}


def test_table_file_names_contain_their_paper() -> None:
    for path in TABLES.glob("*.toml"):
        assert tomllib.loads(path.read_text())["paper"] in path.stem
