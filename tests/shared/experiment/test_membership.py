"""The table `clients`: eligible labels, invalid tables, and unchanged digests by default."""

from typing import Any

import pytest

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.experiment.membership import Clients

SMALL: dict[str, Any] = {"name": "small", "data": {"dataset": "digits"}, "model": "mlp"}


def experiment(**clients: Any) -> Experiment:
    return Experiment.from_tables({**SMALL, "clients": clients})


@pytest.mark.parametrize(
    ("labels", "eligible"),
    [
        ({"site": "eu", "ward": "icu"}, True),
        ({"site": "us", "ward": "icu", "more": "x"}, True),
        ({"site": "eu"}, False),
        ({"site": "asia", "ward": "icu"}, False),
        ({"site": "EU", "ward": "icu"}, False),
        ({}, False),
    ],
)
def test_clients_are_eligible_only_if_every_label_matches(
    labels: dict[str, str], eligible: bool
) -> None:
    wanted = Clients(select={"site": ["eu", "us"], "ward": ["icu"]})
    assert wanted.eligible(labels) is eligible
    assert Clients().eligible(labels)


@pytest.mark.parametrize(
    ("clients", "message"),
    [
        ({"selct": {}}, r"clients.selct: no such key .did you mean 'select'"),
        ({"select": {"s te": ["eu"]}}, "clients.select.s te.*should match"),
        ({"select": {"site": "eu"}}, "clients.select.site: .*valid list"),
        ({"select": {"site": []}}, "clients.select.site: .*at least 1 item"),
        ({"select": {"site": ["e u"]}}, "clients.select.site.0: .*should match"),
        ({"select": {"site": [3]}}, "clients.select.site.0: .*valid string"),
        ({"select": {f"k{i}": ["v"] for i in range(17)}}, "clients.select: .*at most 16"),
        ({"select": {"site": ["v"] * 65}}, "clients.select.site: .*at most 64"),
        ({"least": 0}, "clients.least: .*greater than or equal to 1"),
        ({"least": 21}, "clients.least is 21, but data.clients is 20"),
    ],
)
def test_invalid_clients_tables_are_rejected(clients: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        experiment(**clients)


def test_clients_table_survives_a_round_trip_and_is_not_sent_to_clients() -> None:
    chosen = experiment(select={"site": ["eu"]}, least=10)
    assert chosen.tables()["clients"] == {"select": {"site": ["eu"]}, "least": 10}
    assert Experiment.from_tables(chosen.tables()) == chosen
    assert "clients" not in chosen.client_part()


def test_default_values_of_newer_keys_do_not_change_the_digest() -> None:
    """Running federations and stored figures name this digest."""
    old = "bd5390c97115736c"
    assert Experiment.load("digits-benign").digest().startswith(old)
    plain = Experiment.from_tables(SMALL)
    assert "clients" not in plain.tables()
    assert "scope" not in plain.tables()["server"]["eviction"]
    spelled = {**SMALL, "clients": {"least": 1}, "server": {"eviction": {"scope": "run"}}}
    assert Experiment.from_tables(spelled).digest() == plain.digest()
    assert experiment(least=2).digest() != plain.digest()
    wide = {**SMALL, "server": {"eviction": {"scope": "federation"}}}
    assert Experiment.from_tables(wide).digest() != plain.digest()
    assert Experiment.from_tables(wide).tables()["server"]["eviction"]["scope"] == "federation"
