"""docs/data.md describes every data set and partition, and agrees with the code."""

import inspect
from pathlib import Path

import pytest

from rampart_fl.shared.families.registry import signature
from rampart_fl.shared.learning.data.datasets import datasets
from rampart_fl.shared.learning.data.datasets.files import FileDataset
from rampart_fl.shared.learning.data.partitions import partitions

TEXT = (Path(__file__).parents[3] / "docs" / "data.md").read_text()


def dataset_row(name: str) -> str:
    member = datasets.build(name)
    where = "Rampart"
    if isinstance(member, FileDataset):
        where = f"OpenML {member.openml}" if member.openml else "your file"
    cells = [
        f"`{name}`",
        "x".join(map(str, member.shape)),
        str(member.classes),
        f"{member.total:,}" if member.total else "any",
        where,
        member.licence or "-",
        member.paper,
    ]
    return f"| {' | '.join(cells)} |"


def partition_row(name: str) -> str:
    member = partitions.get(name)
    gist = (inspect.getdoc(member) or "").split("\n\n")[0].replace("\n", " ")
    parameters = f"`{signature(member)}`" if member.model_fields else "none"
    return f"| `{name}` | {gist} | {parameters} | {member.paper or '-'} |"


@pytest.mark.parametrize("name", datasets.names())
def test_documentation_has_a_correct_row_for_every_data_set(name: str) -> None:
    assert dataset_row(name) in TEXT.splitlines()


@pytest.mark.parametrize("name", partitions.names())
def test_documentation_has_a_correct_row_for_every_partition(name: str) -> None:
    assert partition_row(name) in TEXT.splitlines()
