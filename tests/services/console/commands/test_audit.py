"""Tests of `rampart audit` against a running federation."""

import json
import re
from collections.abc import Callable
from typing import Any

from rampart_fl.services.aggregator.state.stores import Stores
from tests.integration.in_process_federation import Hosted
from tests.services.console.commands.conftest import good

Rampart = Callable[..., Any]


def test_audit_lists_all_actions_of_operators(hosted: Hosted, rampart: Rampart) -> None:
    (founding,) = good(rampart("audit")).splitlines()
    assert re.search(r"^0  .*  owner  submit scripted-1  experiment=", founding)
    hosted.join("ada")
    spare = good(rampart("tokens", "--reason", "a new site")).strip()
    assert "makes no tokens" in rampart("tokens", "--revoke", spare, "--count", "2").err
    good(rampart("tokens", "--revoke", spare, "--reason", "no new site"))
    good(rampart("revoke", "ada", "--reason", "a leak"))
    good(rampart("label", "ada", "ward=icu", "site=us"))
    assert "  label ada  site=us  ward=icu  " in good(rampart("audit"))
    good(rampart("evict", "ada", "--reason", "odd"))
    good(rampart("mode", "observe", "--reason", "a trial"))
    for verb in ("pause", "resume", "stop"):
        good(rampart(verb, "--reason", f"to {verb}"))
    entries = json.loads(good(rampart("audit", "--json")))
    assert [(entry["act"], entry["reason"]) for entry in entries[2:]] == [
        ("make-join-tokens", "a new site"),
        ("revoke-join-token", "no new site"),
        ("revoke-token", "a leak"),
        ("label", "operator's decision"),
        ("evict", "odd"),
        ("mode", "a trial"),
        ("pause", "to pause"),
        ("resume", "to resume"),
        ("stop", "to stop"),
    ]
    assert json.loads(good(rampart("audit", "--since", "8", "--json"))) == entries[8:]
    lines = good(rampart("audit")).splitlines()
    assert len(lines) == len(entries)
    moment = r"\d{4}-\d\d-\d\dT[\d:.]+Z"
    assert re.fullmatch(rf"6  {moment}  owner  evict ada .*  odd", lines[6])
    assert re.search(r"  owner  mode .*  mode=observe .*a trial", lines[7])


async def tamper(stores: Stores, command: str, *args: Any) -> None:
    """Changes the audit log, as anyone who has the password of Redis could."""
    await getattr(stores.redis.client, command)(stores.audit.keys.audit, *args)


def test_audit_verify_detects_a_tampered_log(hosted: Hosted, rampart: Rampart) -> None:
    hosted.operator.mint(["ada"])
    for number in range(3):
        hosted.run.steer(("pause", "resume")[number % 2], f"reason {number}")
    whole = [entry.model_dump_json() for entry in hosted.operator.audit()]
    assert len(whole) == 5
    head = good(rampart("audit", "--head")).strip()
    assert head == list(hosted.operator.audit())[-1].hash
    assert good(rampart("audit", "--verify")) == (
        f"5 entries, none altered or missing; the head is {head}\n"
    )
    assert json.loads(good(rampart("audit", "--verify", "--json"))) == {"entries": 5, "head": head}
    assert good(rampart("audit", "--verify", "--head", head)) == good(rampart("audit", "--verify"))

    def audit_output(*kept: str) -> str:
        said = rampart("audit", "--verify", *kept)
        assert (said.code, said.out) == (1, "")
        assert len(said.err.splitlines()) == 1
        return str(said.err)

    def restore() -> None:
        hosted.stores(lambda stores: tamper(stores, "delete"))
        hosted.stores(lambda stores: tamper(stores, "rpush", *whole))
        good(rampart("audit", "--verify", "--head", head))

    altered = whole[3].replace("reason 1", "reason 7")
    assert altered != whole[3]
    hosted.stores(lambda stores: tamper(stores, "lset", 3, altered))
    assert "entry 3 was altered" in audit_output()
    assert rampart("audit", "--head").code == 1, "nobody keeps the head of an altered log"
    restore()
    hosted.stores(lambda stores: tamper(stores, "lrem", 1, whole[1]))
    assert "entry 2 is in the place of entry 1" in audit_output()
    restore()
    hosted.stores(lambda stores: tamper(stores, "lset", 1, whole[2]))
    hosted.stores(lambda stores: tamper(stores, "lset", 2, whole[1]))
    assert "entry 2 is in the place of entry 1" in audit_output()
    restore()
    hosted.stores(lambda stores: tamper(stores, "lset", 1, "{}"))
    assert "entry 1 cannot be parsed" in audit_output()
    restore()
    hosted.stores(lambda stores: tamper(stores, "ltrim", 0, 2))
    assert "3 entries" in good(rampart("audit", "--verify"))
    assert f"no entry has the head {head}" in audit_output("--head", head)
    restore()
    # A kept head remains valid after the log has grown.
    hosted.run.steer("resume", "reason 3")
    assert "6 entries" in good(rampart("audit", "--verify", "--head", head))
    assert rampart("audit", head).code == 2
    for mistyped in ("xyz", head[:-1], f"{head}0", head[:-1] + "g"):
        said = rampart("audit", "--verify", "--head", mistyped)
        assert (said.code, f"{mistyped!r} is not a head" in said.err) == (2, True)
    for whole_log in ("--verify", "--head"):
        assert "omit --since" in rampart("audit", whole_log, "--since", "2").err
