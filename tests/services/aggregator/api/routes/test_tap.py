"""The red team's tap: absent without its flag, and refused with production settings."""

import logging
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from rampart_fl.services.aggregator.api.app import create_app
from rampart_fl.services.aggregator.api.routes.tap import missing_clients
from rampart_fl.services.aggregator.api.runtime import Runtime
from rampart_fl.services.aggregator.settings import TAP_ENABLED, Settings
from rampart_fl.shared.protocol.messages import Receipt, Ticket

OPERATOR, TAP = "operator-operator-operator", "tap-tap-tap-tap-tap-tap"


def settings(**fields: Any) -> Settings:
    return Settings(operator_token=SecretStr(OPERATOR), **fields)


async def paths(known: Settings) -> set[str]:
    runtime = Runtime(known)
    try:
        return set(create_app(runtime).openapi()["paths"])
    finally:
        await runtime.close()


@pytest.mark.slow
@pytest.mark.anyio
async def test_tap_route_exists_only_with_its_setting(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    usual = await paths(settings(blobs=str(tmp_path)))
    assert not [path for path in usual if "tap" in path]
    assert TAP_ENABLED not in caplog.text
    tapped = await paths(settings(blobs=str(tmp_path), test_tap=TAP))
    assert tapped - usual == {"/v1/runs/{run}/test-tap/rounds/{round}/{kind}"}
    assert [r.levelno for r in caplog.records if r.message == TAP_ENABLED] == [logging.CRITICAL]


@pytest.mark.parametrize(
    "production",
    [
        {"role": "api"},
        {"role": "worker"},
        {"host": "0.0.0.0"},
        {"host": "10.1.2.3"},
        {"blobs": "s3://bucket/prefix"},
        {"tls_certificate": "cert.pem", "tls_key": "key.pem"},
        {"redis_url": "redis://redis.example:6379/0"},
        {"redis_url": "rediss://10.0.0.7:6379/0"},
    ],
    ids=lambda one: ",".join(one.values()),
)
def test_tap_is_rejected_with_production_settings(production: dict[str, str]) -> None:
    settings(**production)
    with pytest.raises(ValidationError, match="for tests on one machine") as refused:
        settings(**production, test_tap=TAP)
    assert f"RAMPART_{next(iter(production)).upper()}" in str(refused.value)


@pytest.mark.parametrize("token", ["short", "", OPERATOR])
def test_tap_token_must_be_a_long_and_separate_secret(token: str) -> None:
    with pytest.raises(ValidationError, match="RAMPART_TEST_TAP must be a secret of at least 16"):
        settings(test_tap=token)


def ticket(kind: Any) -> Ticket:
    return Ticket(round=3, kind=kind, models={"model": "0" * 64}, experiment="0" * 64)


def receipt(client: str, kind: Any) -> Receipt:
    return Receipt(round=3, kind=kind, client=client, digest="0" * 64)


def test_clients_that_answered_a_probe_are_missing_until_they_have_trained() -> None:
    """Between a probe's answer and the ticket for training, such a client has no ticket."""
    tickets = {"a": ticket("train"), "b": ticket("probe"), "c": ticket("wait")}
    receipts = [receipt("d", "probe"), receipt("e", "probe"), receipt("e", "update")]
    assert missing_clients(tickets, receipts, "train") == {"a", "b", "d"}
    assert missing_clients(tickets, receipts, "probe") == {"b"}
    trained = [*receipts, receipt("a", "update"), receipt("d", "update")]
    assert missing_clients({}, trained, "train") == set()
