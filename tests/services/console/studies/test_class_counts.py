"""Tables of class counts: numbers for few classes, shades for many."""

from io import StringIO

import pytest
from rich.console import Console

from rampart_fl.services.console.studies.class_counts import (
    IN_FIGURES,
    ClientSampleCounts,
    count_classes,
    shade,
    table,
)
from rampart_fl.shared.experiment import Experiment

EXPERIMENT = Experiment.from_tables(
    {"name": "small", "data": {"dataset": "digits", "clients": 3, "samples": 50}, "model": "mlp"}
)


def drawn(clients: list[ClientSampleCounts]) -> list[str]:
    out = StringIO()
    Console(file=out, width=150).print(table(EXPERIMENT, clients))
    return [line for line in out.getvalue().splitlines() if "client-" in line]


def test_class_counts_cover_all_samples_of_every_client() -> None:
    clients = count_classes(EXPERIMENT)
    assert [own.client for own in clients] == ["client-00", "client-01", "client-02"]
    for own in clients:
        assert (own.train, own.test, sum(own.classes)) == (38, 12, 50)
        assert len(own.classes) == 10


def test_few_classes_are_shown_as_numbers() -> None:
    (line,) = drawn([ClientSampleCounts("client-00", 3, 1, [0, 4, 0])])
    assert line.split() == ["client-00", "3", "1", "1", "·", "4", "·"]


def test_many_classes_are_shown_as_shades() -> None:
    classes = [0] * (IN_FIGURES - 3) + [1, 50, 75, 100]
    (line,) = drawn([ClientSampleCounts("client-00", 200, 26, classes)])
    assert line.split()[-1] == "·" * (IN_FIGURES - 3) + "░▒▓█"


@pytest.mark.parametrize("top", [1, 3, 100])
def test_shade_grows_with_the_share_of_the_largest_count(top: int) -> None:
    assert shade(0, top) == "·"
    assert shade(top, top) == "█"
    order = [("·░▒▓█").index(shade(count, top)) for count in range(top + 1)]
    assert order == sorted(order)
    assert shade(0, 0) == "·"
