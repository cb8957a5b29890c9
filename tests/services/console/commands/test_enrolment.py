"""Tests of `rampart label` against a running federation."""

import json
from collections.abc import Callable
from typing import Any

from tests.integration.in_process_federation import Hosted
from tests.services.console.commands.conftest import good

Rampart = Callable[..., Any]


def test_labels_are_removed_only_with_the_option(hosted: Hosted, rampart: Rampart) -> None:
    hosted.join("ada")
    assert good(rampart("label", "ada", "site=us", "ward=icu")) == "ada site=us ward=icu\n"
    said = rampart("label", "ada")
    assert (said.code, "give either labels as KEY=VALUE, or --clear" in said.err) == (2, True)
    said = rampart("label", "ada", "site=eu", "--clear")
    assert (said.code, "give either labels as KEY=VALUE, or --clear" in said.err) == (2, True)
    said = rampart("label", "ada", "a")
    assert (said.code, "'a' is not a label; write it as KEY=VALUE" in said.err) == (2, True)
    (info,) = json.loads(good(rampart("clients", "--everywhere", "--json")))
    assert info["labels"] == {"site": "us", "ward": "icu"}
    assert good(rampart("label", "ada", "--clear")) == "ada has no labels\n"
