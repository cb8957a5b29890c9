"""Refusals of a request's fields name the option, and say in words what the option allows."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.in_process_federation import Hosted

Rampart = Callable[..., Any]
LETTERS = "has 1 to 64 letters (A-Z, a-z), digits, dots, hyphens and underscores; it begins with"


def test_refused_values_are_explained_with_the_names_of_options(
    hosted: Hosted, rampart: Rampart
) -> None:
    hosted.join("ada")
    for command, text in [
        ("operators add Ada --role viewer", "NAME: an operator's name has 1 to 64 lower-case"),
        ("operators add ada --role viewer --expires 9999d", "--expires: Input should be less"),
        ("evict a!b", f"CLIENT: a client id {LETTERS}"),
        ("label ada s!te=eu", f"label: the key or the value of a label {LETTERS}"),
        ("label ada site=e!u", f"label: the key or the value of a label {LETTERS}"),
        ("tokens --label s!te=eu", f"--label: the key or the value of a label {LETTERS}"),
        ("tokens --count 10001", "--count: Input should be less than or equal to 10000"),
        ("run digits-benign --name A", "--name: the name of a run has 1 to 48 lower-case"),
        ("run digits-benign --wait 1e9", "--wait: Input should be less than or equal to"),
        ("pause --reason \u2003", "--reason: the reason is only white space"),
        ("pause --reason \x1b", "--reason: control characters, such as line breaks, are not"),
    ]:
        said = rampart(*command.split(" "))
        assert said.code == 1, command
        assert said.err.startswith(f"error: {text}"), said.err
        assert len(said.err.splitlines()) == 1


@pytest.mark.parametrize("text", ["a?b=1", "a#b", "a%41", "a b", "a&b", "b\u00e4r", "a\\b", "..a"])
def test_id_with_special_characters_of_urls_is_refused_as_it_was_given(
    hosted: Hosted, rampart: Rampart, text: str
) -> None:
    """The part before such a character is the id of a client, of an operator or of a run."""
    hosted.join("a")
    hosted.operator.add_operator("a", "viewer")
    run = f"{hosted.run.id}{text[1:]}"
    for command in (["evict"], ["evict", "--everywhere"], ["reinstate"], ["confirm"], ["dismiss"]):
        said = rampart(*command, text)
        assert (said.code, said.err[:20]) == (1, "error: CLIENT: a cli"), said.err
    for arguments in (["revoke", text], ["label", text, "--clear"], ["clients", text]):
        said = rampart(*arguments)
        assert said.code == 1
        assert "a client id" in said.err, said.err
    said = rampart("operators", "revoke", text)
    assert (said.code, said.err[:14]) == (1, "error: NAME: a"), said.err
    for arguments in (["delete", run], ["runs", run], ["status", "--run", run]):
        said = rampart(*arguments)
        assert said.code == 1
        assert f"there is no run {run}" in said.err, said.err
    standing = hosted.operator.client("a")
    assert standing.barred is None and standing.token_expires_at is not None
    assert not hosted.run.members("a")
    assert next(one for one in hosted.operator.operators() if one.name == "a").revoked_at is None


@pytest.mark.parametrize("text", ["a/b", "/", "..", ".", "", "a/../a"])
def test_id_that_would_lead_to_another_url_is_never_sent(
    hosted: Hosted, rampart: Rampart, text: str
) -> None:
    hosted.join("a")
    for arguments in (["evict", text], ["revoke", text], ["operators", "revoke", text]):
        said = rampart(*arguments)
        assert said.code == 1
        assert said.err.startswith(f"error: {text!r} cannot be an id or a name"), said.err
    assert not hosted.run.members("a")
