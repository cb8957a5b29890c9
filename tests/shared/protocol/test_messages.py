"""Messages: bounds on everything a client may write, and ETags that identify tickets."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from rampart_fl.shared.protocol import refusals
from rampart_fl.shared.protocol.messages import (
    ClientReport,
    Evaluation,
    JoinRequest,
    JoinTokenRequest,
    RoundFacts,
    Ticket,
)

DIGEST = "d" * 64


def ticket(**change: Any) -> Ticket:
    fields = {"round": 1, "kind": "train", "models": {"model": DIGEST}, "experiment": DIGEST}
    return Ticket.model_validate({**fields, **change})


def test_etag_identifies_a_ticket_regardless_of_deadline_and_reason() -> None:
    assert ticket(deadline=1.0).etag == ticket(deadline=2.0, reason="x").etag == ticket().etag
    others = [
        ticket(round=2),
        ticket(kind="probe"),
        ticket(models={"model": "e" * 64}),
        ticket(models={}),
        ticket(experiment="e" * 64),
    ]
    assert len({one.etag for one in [ticket(), *others]}) == 6


def test_etag_is_stable_across_versions() -> None:
    """Agents keep ETags on disk, so a new version must compute the same ETags as an old one."""
    assert ticket().etag == "08082605818c63f5df5ebd63df1bebdd"


@pytest.mark.parametrize("name", ["a", "client-07", "A.b_c-9", "x" * 64])
def test_valid_client_ids_are_accepted(name: str) -> None:
    assert JoinRequest(token_hash=DIGEST, client_id=name).client_id == name


@pytest.mark.parametrize(
    "name", ["", "-a", ".a", "../a", "a/b", "a b", "a\n", "ä", "x" * 65, "a\x00", "{a}", "a:b"]
)
def test_invalid_client_ids_are_rejected(name: str) -> None:
    with pytest.raises(ValidationError):
        JoinRequest(token_hash=DIGEST, client_id=name)


@pytest.mark.parametrize("name", ["global", "Global", "reference", "operator", "owner", "nobody"])
def test_reserved_client_ids_are_refused(name: str) -> None:
    with pytest.raises(ValidationError, match=f"'{name}' is reserved"):
        JoinRequest(token_hash=DIGEST, client_id=name)
    with pytest.raises(ValidationError, match=f"'{name}' is reserved"):
        JoinTokenRequest(client_ids=["ada", name])


def test_no_client_takes_the_name_of_the_global_model() -> None:
    """A client may have joined under this id before it was reserved."""
    record = RoundFacts(
        round=0,
        status="published",
        models={"global": "1", "reference": "2"},
        customized={"ada": "3", "global": "4"},
    )
    assert record.models_by_name == {"ada": "3", "global": "1"}


@pytest.mark.parametrize("digest", ["", "d" * 63, "D" * 64, "d" * 64 + "\n", "g" * 64])
def test_invalid_digests_are_rejected(digest: str) -> None:
    with pytest.raises(ValidationError):
        JoinRequest(token_hash=digest)


@pytest.mark.parametrize("text", ['{"metrics": {"a": 1}, "b": 2}', '{"samples": 1}', "[]", "1"])
def test_evaluations_with_unknown_keys_or_the_wrong_type_are_rejected(text: str) -> None:
    with pytest.raises(ValidationError):
        Evaluation.model_validate_json(text)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "1e16", "null", "[]"])
def test_metrics_that_are_not_bounded_numbers_are_rejected(number: str) -> None:
    with pytest.raises(ValidationError):
        Evaluation.model_validate_json(f'{{"metrics": {{"a": {number}}}}}')
    with pytest.raises(ValidationError):
        ClientReport.model_validate_json(f'{{"samples": 1, "metrics": {{"a": {number}}}}}')


def test_more_than_64_metrics_are_rejected() -> None:
    metrics = {f"m{n}": 0.0 for n in range(64)}
    assert len(ClientReport(samples=1, metrics=metrics).metrics) == 64
    with pytest.raises(ValidationError):
        ClientReport(samples=1, metrics={**metrics, "more": 0.0})


@pytest.mark.parametrize("change", [{"count": 0}, {"count": 10**6}, {"lifetime": 0}, {"x": 1}])
def test_join_token_requests_out_of_bounds_are_rejected(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        JoinTokenRequest.model_validate_json(json.dumps(change))


def test_every_refusal_has_a_4xx_status_and_a_unique_type() -> None:
    result = [
        value
        for value in vars(refusals).values()
        if isinstance(value, type) and issubclass(value, refusals.Refusal)
    ]
    assert len(result) > 15
    assert len({refusal.slug for refusal in result}) == len(result)
    for refusal in result:
        assert 400 <= refusal.status < 500
        assert refusal.title
        assert refusal("why", 3.0).detail == "why"
