"""Refusals of a request's fields name the option, and say in words what the option allows."""

from collections.abc import Callable
from typing import Any

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
