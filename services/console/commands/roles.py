"""`rampart roles`: lists the slots of honest clients and of attackers."""

import json
import sys
from typing import Annotated

import typer

from rampart_fl.services.console.commands.connection import Json, emit
from rampart_fl.shared.experiment.schema import Attackers, Experiment
from rampart_fl.shared.runtime.ranges import format_ranges


def roles(
    experiment: Annotated[
        str, typer.Argument(help="An experiment file, or the name of a shipped experiment.")
    ],
    seed: Annotated[int | None, typer.Option(min=0, help="Random seed.")] = None,
    as_json: Json = False,
) -> None:
    """Lists the slots of honest clients and of each group of attackers, in the format of `--slots`.

    The aggregator and the clients do not know which slots belong to attackers.
    """
    chosen = Experiment.load(experiment)
    if seed is not None:
        chosen = Experiment.from_tables({**chosen.tables(), "seed": seed})
    by_slot = chosen.roles
    rows = []
    for group in (None, *chosen.attackers):
        slots = [slot for slot, role in enumerate(by_slot) if role is group]
        row = {"role": "honest" if group is None else "attackers", "clients": len(slots)}
        rows.append({**row, "slots": format_ranges(slots), "attack": attacks_text(group)})
    if as_json:
        emit(rows)
        return
    for row in rows:
        line = f"{row['role']:10} {row['clients']:4}  {row['slots']}  {row['attack']}"
        sys.stdout.write(line.rstrip() + "\n")


def attacks_text(group: Attackers | None) -> str:
    """The attacks of a group: each attack's name, or a JSON object if the attack has parameters."""
    specs = [] if group is None else [group.attack, group.data_attack]
    return " ".join(
        str(spec["name"]) if len(spec) == 1 else json.dumps(spec) for spec in specs if spec
    )
