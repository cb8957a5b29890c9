"""Tests of `rampart operators` against a running federation."""

import json
import re
from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest
import typer

from rampart_fl.services.console.commands.operators import parse_duration
from rampart_fl.services.console.connection.operator import Operator, OperatorRefused
from tests.integration.in_process_federation import Hosted
from tests.services.console.commands.conftest import good

Rampart = Callable[..., Any]


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

    # A viewer can read what the owner reads; if it tries to act, the error says why it may not.
    assert good(rampart("status", "--json", "--token", viewer)) == good(rampart("status", "--json"))
    said = rampart("pause", "--token", viewer)
    assert (said.code, said.out) == (1, "")
    assert "vera is a viewer; this request needs the role operator" in said.err
    good(rampart("pause", "--token", made["token"], "--reason", "maintenance"))

    assert good(rampart("operators", "revoke", "vera", "--reason", "left")) == (
        "vera is no longer an operator\n"
    )
    assert "the token of vera was revoked" in rampart("status", "--token", viewer).err
    assert "revoked" in good(rampart("operators"))
    assert "no operator nobody" in rampart("operators", "revoke", "nobody").err
    assert "bob already exists" in rampart("operators", "add", "bob", "--role", "viewer").err
    said = rampart("operators", "--json", "list")
    assert (said.code, "write the options after 'list'" in said.err) == (2, True)
    said = rampart("operators", "add", "eve", "--role", "viewer", "--expires", "soon")
    assert (said.code, "'soon' is not a duration" in said.err) == (2, True)
    assert [entry.reason for entry in hosted.operator.audit(3)] == ["maintenance", "left"]


@pytest.mark.parametrize("text", ["", "30", "0d", "-1h", "3w", "d", "1e3", "inf", "1 d"])
def test_invalid_durations_are_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is not a duration with a unit"):
        parse_duration(text)


def test_revoking_a_viewer_ends_its_event_stream(hosted: Hosted) -> None:
    viewer = Operator(hosted.url, hosted.operator.add_operator("vera", "viewer").token)
    try:
        run = viewer.run()
        events = run.events(ticks=True)
        next(events)
        hosted.operator.revoke_operator("vera")
        assert len(list(islice(events, 8))) < 8, "the stream ends"
        with pytest.raises(OperatorRefused, match="the token of vera was revoked"):
            next(run.events())
        with pytest.raises(OperatorRefused, match="the token of vera was revoked"):
            viewer.whoami()
    finally:
        viewer.close()
    assert hosted.operator.whoami().name == "owner"
