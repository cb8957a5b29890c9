"""`rampart operators` and `rampart audit` against a federation that runs."""

import json
import re
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import typer

from rampart_fl.services.aggregator.state.stores import Stores
from rampart_fl.services.console.commands.operators import duration
from rampart_fl.services.console.operator import Operator, OperatorRefused
from tests.integration.hosted import Hosted, experiment, host

Rampart = Callable[..., Any]


@pytest.fixture
def hosted(tmp_path: Path, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hosted]:
    """A federation that waits for its clients; the console has the owner's token."""
    with host(experiment(3), tmp_path, redis_url) as hosted:
        monkeypatch.setenv("RAMPART_AGGREGATOR", hosted.url)
        token = hosted.settings.operator_token.get_secret_value()
        monkeypatch.setenv("RAMPART_OPERATOR_TOKEN", token)
        yield hosted


def good(said: Any) -> str:
    """What a command that succeeded printed."""
    assert said.code == 0, said.err
    return str(said.out)


def test_operators_are_added_listed_and_revoked(hosted: Hosted, rampart: Rampart) -> None:
    assert good(rampart("operators")) == "no named operators, only the owner\n"
    said = good(rampart("operators", "add", "vera", "--role", "viewer", "--expires", "30d"))
    viewer = said.strip()
    made = json.loads(good(rampart("operators", "add", "bob", "--role", "operator", "--json")))
    assert (made["name"], made["created_by"], made["expires_at"]) == ("bob", "owner", None)
    listed = json.loads(good(rampart("operators", "list", "--json")))
    assert [one["name"] for one in listed] == ["bob", "vera"]
    assert listed[1]["expires_at"] == pytest.approx(listed[1]["created_at"] + 30 * 86_400)
    for command in (["operators"], ["operators", "list"]):
        shown = good(rampart(*command))
        assert re.search(r"bob .* operator .* owner .* valid until revoked", shown)
        assert re.search(r"vera .* viewer .* owner .* valid until \d{4}-", shown)

    # A viewer sees what the owner sees, and is told why it cannot act.
    assert good(rampart("status", "--json", "--token", viewer)) == good(rampart("status", "--json"))
    said = rampart("pause", "--token", viewer)
    assert (said.code, said.out) == (1, "")
    assert "vera is a viewer; this request needs the role operator" in said.err
    good(rampart("pause", "--token", made["token"], "--reason", "maintenance"))

    assert good(rampart("operators", "revoke", "vera", "--reason", "left")) == (
        "vera is no operator any more\n"
    )
    assert "the token of vera was revoked" in rampart("status", "--token", viewer).err
    assert "revoked" in good(rampart("operators"))
    assert "no operator nobody" in rampart("operators", "revoke", "nobody").err
    assert "bob exists already" in rampart("operators", "add", "bob", "--role", "viewer").err
    said = rampart("operators", "--json", "list")
    assert (said.code, "options come after 'list'" in said.err) == (2, True)
    said = rampart("operators", "add", "eve", "--role", "viewer", "--expires", "soon")
    assert (said.code, "'soon' is no duration" in said.err) == (2, True)
    assert [entry.reason for entry in hosted.operator.audit(2)] == ["maintenance", "left"]


@pytest.mark.parametrize("text", ["", "0d", "-1h", "3w", "d", "1e3", "inf", "1 d"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is no duration"):
        duration(text)


def test_a_revoked_viewer_watches_no_longer(hosted: Hosted) -> None:
    viewer = Operator(hosted.url, hosted.operator.add_operator("vera", "viewer").token)
    try:
        events = viewer.events(ticks=True)
        next(events)
        hosted.operator.revoke_operator("vera")
        assert len(list(islice(events, 8))) < 8, "the stream ends"
        with pytest.raises(OperatorRefused, match="the token of vera was revoked"):
            next(viewer.events())
        with pytest.raises(OperatorRefused, match="the token of vera was revoked"):
            viewer.whoami()
    finally:
        viewer.close()
    assert hosted.operator.whoami().name == "owner"


def test_what_operators_did_is_listed(hosted: Hosted, rampart: Rampart) -> None:
    assert good(rampart("audit")) == ""
    hosted.join("ada")
    spare = good(rampart("tokens", "--reason", "a new site")).strip()
    good(rampart("tokens", "--revoke", spare, "--reason", "no new site"))
    good(rampart("revoke", "ada", "--reason", "a leak"))
    good(rampart("evict", "ada", "--reason", "odd"))
    good(rampart("mode", "observe", "--reason", "a trial"))
    for verb in ("pause", "resume", "stop"):
        good(rampart(verb, "--reason", f"to {verb}"))
    entries = json.loads(good(rampart("audit", "--json")))
    assert [(entry["act"], entry["reason"]) for entry in entries[1:]] == [
        ("make-join-tokens", "a new site"),
        ("revoke-join-token", "no new site"),
        ("revoke-token", "a leak"),
        ("evict", "odd"),
        ("mode", "a trial"),
        ("pause", "to pause"),
        ("resume", "to resume"),
        ("stop", "to stop"),
    ]
    assert json.loads(good(rampart("audit", "--since", "7", "--json"))) == entries[7:]
    lines = good(rampart("audit")).splitlines()
    assert len(lines) == len(entries)
    assert re.fullmatch(r"4  \d{4}-\d\d-\d\dT[\d:.]+Z  owner  evict ada  odd", lines[4])
    assert lines[5].endswith("owner  mode  mode=observe  a trial")


async def tamper(stores: Stores, command: str, *args: Any) -> None:
    """Changes the audit log as somebody with Redis' password could."""
    await getattr(stores.redis.client, command)(stores.audit.keys.audit, *args)


def test_a_tampered_log_is_found(hosted: Hosted, rampart: Rampart) -> None:
    hosted.operator.mint(["ada"])
    for number in range(3):
        hosted.operator.steer(("pause", "resume")[number % 2], f"reason {number}")
    whole = [entry.model_dump_json() for entry in hosted.operator.audit()]
    head = good(rampart("audit", "--head")).strip()
    assert head == list(hosted.operator.audit())[-1].hash
    assert good(rampart("audit", "--verify")) == (
        f"4 entries, none altered or missing; the head is {head}\n"
    )
    assert json.loads(good(rampart("audit", "--verify", "--json"))) == {"entries": 4, "head": head}
    assert good(rampart("audit", "--verify", "--head", head)) == good(rampart("audit", "--verify"))

    def found(*kept: str) -> str:
        said = rampart("audit", "--verify", *kept)
        assert (said.code, said.out) == (1, "")
        assert len(said.err.splitlines()) == 1
        return str(said.err)

    def restore() -> None:
        hosted.stores(lambda stores: tamper(stores, "delete"))
        hosted.stores(lambda stores: tamper(stores, "rpush", *whole))
        good(rampart("audit", "--verify", "--head", head))

    altered = whole[2].replace("reason 1", "reason 7")
    assert altered != whole[2]
    hosted.stores(lambda stores: tamper(stores, "lset", 2, altered))
    assert "entry 2 was altered" in found()
    assert rampart("audit", "--head").code == 1, "nobody keeps the head of an altered log"
    restore()
    hosted.stores(lambda stores: tamper(stores, "lrem", 1, whole[1]))
    assert "entry 2 is in the place of entry 1" in found()
    restore()
    hosted.stores(lambda stores: tamper(stores, "lset", 1, whole[2]))
    hosted.stores(lambda stores: tamper(stores, "lset", 2, whole[1]))
    assert "entry 2 is in the place of entry 1" in found()
    restore()
    hosted.stores(lambda stores: tamper(stores, "lset", 1, "{}"))
    assert "entry 1 is no entry" in found()
    restore()
    hosted.stores(lambda stores: tamper(stores, "ltrim", 0, 2))
    assert "3 entries" in good(rampart("audit", "--verify"))
    assert f"no entry has the head {head}" in found("--head", head)
    restore()
    # The log goes on after a head that was kept.
    hosted.operator.steer("resume", "reason 3")
    assert "5 entries" in good(rampart("audit", "--verify", "--head", head))
    assert rampart("audit", head).code == 2
