"""The table `server.eviction`, and the largest number of clients that may be barred."""

from typing import Any

import pytest
from pydantic import ValidationError

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.experiment.eviction import Eviction, Standing

SMALL: dict[str, Any] = {"name": "small", "data": {"dataset": "digits"}, "model": "mlp"}


def test_by_default_the_federation_evicts_within_the_bound() -> None:
    assert Eviction() == Eviction(
        mode="evict", by="automatic", rounds=10, patience=20, bounded=True
    )


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            {"mode": "reject", "by": "operator"},
            'by = "operator" has no effect with mode = "reject"',
        ),
        ({"mode": "quarantine", "by": "operator"}, 'by = "operator" has no effect'),
        ({"rounds": 5}, 'rounds has no effect with mode = "evict"'),
        ({"mode": "reject", "rounds": 5}, "rounds has no effect"),
        ({"patience": 5}, 'patience has no effect with mode = "evict" and by = "automatic"'),
        ({"mode": "reject", "bounded": False}, "bounded = false has no effect"),
        ({"mode": "quarantine", "scope": "federation"}, 'scope = "federation" has no effect'),
        ({"mode": "warn"}, "server.eviction.mode: .*'observe', 'reject', 'quarantine' or 'evict'"),
        ({"rounds": 0}, "server.eviction.rounds: .*greater than or equal to 1"),
        ({"mood": "evict"}, "server.eviction.mood: no such key .did you mean 'mode'"),
    ],
)
def test_ineffective_or_invalid_settings_are_rejected(table: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Experiment.from_tables({**SMALL, "server": {"eviction": table}})


@pytest.mark.parametrize(
    "table",
    [
        {"mode": "observe", "by": "operator", "rounds": 3, "patience": 4, "bounded": False},
        {"mode": "quarantine", "rounds": 3},
        {"by": "operator", "patience": 4},
        {"bounded": False},
    ],
)
def test_settings_effective_now_or_after_observe_mode_are_accepted(table: dict[str, Any]) -> None:
    result = Experiment.from_tables({**SMALL, "server": {"eviction": table}}).server.eviction
    assert {key: getattr(result, key) for key in table} == table


def test_eviction_table_is_frozen() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Eviction().mode = "reject"


@pytest.mark.parametrize(
    ("clients", "half"), [(0, 0), (1, 0), (2, 0), (3, 1), (4, 1), (19, 9), (20, 9), (21, 10)]
)
def test_fewer_than_half_of_all_clients_may_be_barred(clients: int, half: int) -> None:
    assert Standing(clients, clients).most(None) == half
    assert 2 * half < clients or half == 0
    assert 2 * (half + 1) >= clients


def test_each_late_joiner_raises_the_bound_by_one_up_to_half() -> None:
    assert Standing(20, 20).most(3) == 3
    assert Standing(22, 20).most(3) == 5
    assert Standing(60, 20).most(3) == 29
    assert Standing(20, 20).most(0) == 0
