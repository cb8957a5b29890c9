"""Snapshots of the worker's state: restored unchanged, with a list of all of their blobs."""

import json

import pytest

from rampart_fl.services.aggregator.state.snapshot import Snapshot
from rampart_fl.shared.assignment import GLOBAL
from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.protocol.messages import Receipt


def digest(letter: str) -> str:
    return letter * 64


SNAPSHOT = Snapshot(
    global_model=digest("0"),
    reference=digest("1"),
    state=digest("2"),
    pool=(
        Receipt(
            round=3,
            kind="update",
            client="a",
            digest=digest("3"),
            started=digest("4"),
            samples=7,
            metrics={"loss": 0.1 + 0.2, "gap": 5e-324},
        ),
        Receipt(round=3, kind="update", client="b", digest=digest("5")),
    ),
    customized={"a": digest("6"), "b": digest("7")},
    assignment={"b": ("b", "a")},
    groups=("x:0",),
    voters=("a",),
    position="17-4",
    pulls=("b", "c"),
)


def test_snapshot_is_restored_byte_for_byte() -> None:
    text = SNAPSHOT.model_dump_json()
    again = Snapshot.model_validate_json(text)
    assert again == SNAPSHOT
    assert again.model_dump_json() == text
    assert Snapshot.parse(text) == SNAPSHOT


def test_snapshot_lists_every_blob() -> None:
    assert SNAPSHOT.blobs() == {digest(str(n)) for n in range(8)}
    first = Snapshot(global_model=digest("0"), reference=digest("0"))
    assert first.blobs() == {digest("0")}


def test_ticket_names_own_and_peer_models_and_at_the_end_the_voters() -> None:
    assert SNAPSHOT.ticket_models("a") == {"model": digest("6")}
    assert SNAPSHOT.ticket_models("b") == {"model": digest("7"), "peer_00": digest("6")}
    assert SNAPSHOT.ticket_models("b", final=True) == {"model": digest("7"), "vote_00": digest("6")}
    assert [SNAPSHOT.has_own_model(client) for client in "abc"] == [True, True, True]
    first = Snapshot(global_model=digest("0"), reference=digest("0"))
    assert first.ticket_models("a") == {"model": digest("0")} and not first.has_own_model("a")


def test_ticket_names_the_assigned_global_model_or_the_group_model() -> None:
    snapshot = Snapshot(
        global_model="g",
        reference="g",
        customized={"group:0": "0", "a": "1", "b": "2"},
        assignment={"a": (GLOBAL, "b")},
        groups=("group:0",),
        voters=("group:0",),
    )
    assert snapshot.ticket_models("a") == {"model": "g", "peer_00": "2"}
    assert snapshot.ticket_models("c") == {"model": "0"}
    assert snapshot.ticket_models("c", final=True) == {"model": "0", "vote_00": "0"}


def test_ticket_names_the_challenged_model_until_the_final_evaluation() -> None:
    snapshot = Snapshot(
        global_model="g",
        reference="g",
        customized={"a": "1", "challenge:a": "2"},
        challenged={"a": "challenge:a"},
    )
    assert snapshot.ticket_models("a") == {"model": "2"}
    assert snapshot.ticket_models("a", final=True) == {"model": "1"}
    assert snapshot.ticket_models("b") == {"model": "g"}


CHALLENGED = Snapshot(
    global_model="g",
    reference="g",
    customized={"a": "own", "challenge:a": digest("2")},
    challenged={"a": "challenge:a"},
    origins={"a": {digest("3"): "earlier"}, "b": {digest("4"): "g"}},
)


def receipt(client: str, started: str) -> Receipt:
    return Receipt(round=1, kind="update", client=client, digest=digest("5"), started=started)


def test_origins_stay_while_a_row_or_a_client_may_start_from_the_challenged_model() -> None:
    now, three, four = digest("2"), digest("3"), digest("4")
    assert CHALLENGED.origins_of("a") == {three: "earlier", now: "own"}
    assert CHALLENGED.origins_of("c") == CHALLENGED.origins_in_use([], ()) == {}
    pool = [receipt("a", three), receipt("b", three)]
    assert CHALLENGED.origins_in_use(pool, ()) == {"a": {three: "earlier"}}
    assert CHALLENGED.origins_in_use(pool, {now, four, digest("5")}) == {
        "a": {three: "earlier", now: "own"},
        "b": {four: "g"},
    }
    assert {"earlier", "g", "own", now} <= CHALLENGED.blobs()


def test_stored_origins_are_a_flat_object_that_earlier_versions_read() -> None:
    """Earlier versions stored one origin per client, for the client's row in the pool."""
    pool = (receipt("a", digest("3")), receipt("b", digest("1")))
    text = CHALLENGED.model_copy(update={"pool": pool}).model_dump_json()
    assert json.loads(text)["origins"] == {"a": "earlier", f"b {digest('4')}": "g"}
    again = Snapshot.parse(text)
    assert (again.origins, again.pool) == (CHALLENGED.origins, pool)
    assert Snapshot.parse(CHALLENGED.model_dump_json()) == CHALLENGED


@pytest.mark.parametrize("version", ["0", "1", None])
def test_snapshot_with_another_schema_is_refused(version: str | None) -> None:
    raw = {**SNAPSHOT.model_dump(mode="json"), "schema_version": version}
    with pytest.raises(ConfigurationError, match=f"schema {version}"):
        Snapshot.parse(json.dumps(raw))
