"""Tests of `rampart roles`, whose lists of slots can be passed to `--slots` unchanged."""

import json
from collections.abc import Callable
from typing import Any

from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.runtime.ranges import parse_ranges


def test_roles_lists_the_slots_of_every_role(rampart: Callable[..., Any]) -> None:
    for arguments in ([], ["--seed", "5"]):
        roles = json.loads(rampart("roles", "digits-sign-flip", *arguments, "--json").out)
        experiment = Experiment.load("digits-sign-flip")
        if arguments:
            experiment = Experiment.from_tables({**experiment.tables(), "seed": 5})
        honest, hostile = roles
        for row, role in ((honest, None), (hostile, experiment.attackers[0])):
            slots = [slot for slot, one in enumerate(experiment.roles) if one is role]
            assert parse_ranges(row["slots"]) == slots
            assert row["clients"] == len(slots)
        assert (honest["role"], hostile["role"]) == ("honest", "attackers")
        assert (honest["attack"], hostile["attack"]) == ("", "sign_flip")
    lines = rampart("roles", "digits-dba").out.splitlines()
    assert [line.split()[:2] for line in lines] == [["honest", "14"], ["attackers", "6"]]
    assert json.loads(lines[1].split(maxsplit=3)[3])["name"] == "dba"
