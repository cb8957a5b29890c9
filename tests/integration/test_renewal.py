"""Clients renew their tokens while they take part; a replaced token is no longer valid."""

import asyncio
import time
from collections.abc import Callable

import httpx
import pytest

from rampart_fl.shared.agent import identity
from tests.integration.in_process_federation import FEDCAP, Hold, Hosted, experiment

NAMES = ["ada", "bob", "cleo"]
Host = Callable[..., Hosted]


def test_clients_renew_tokens_during_a_run_and_old_tokens_are_rejected(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "RENEW_AFTER", 0.005)
    hosted, hold = host(experiment(3, server=FEDCAP), client_token_lifetime=60.0), Hold(1)
    first = {name: hosted.join(name).token for name in NAMES}
    hosted.scripted(NAMES, hold=hold)
    hosted.wait("collecting", 1)
    give_up = time.monotonic() + 30
    while any(hosted.join(name).token == first[name] for name in NAMES):
        assert time.monotonic() < give_up
        hosted.soon(asyncio.sleep(0.05))
    for token in first.values():
        bearer = {"Authorization": f"Bearer {token}"}
        assert httpx.post(f"{hosted.url}/v1/heartbeat", headers=bearer).status_code == 401
    hold.on = False
    hosted.wait()
    assert [record.participants for record in hosted.run.rounds()] == [NAMES, NAMES]
    assert hosted.run.evaluations().keys() == set(NAMES)
