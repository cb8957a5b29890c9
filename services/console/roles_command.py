"""`rampart roles`: which slots of an experiment are honest clients, and which are attackers."""

import json
import sys
from typing import Annotated

import typer

from rampart_fl.services.console.connection import Json, emit
from rampart_fl.shared.experiment import Attackers, Experiment
from rampart_fl.shared.ranges import format_ranges


def roles(
    experiment: Annotated[str, typer.Argument(help="Experiment file, or a shipped one's name.")],
    seed: Annotated[int | None, typer.Option(min=0, help="Another seed.")] = None,
    as_json: Json = False,
) -> None:
    """Tells the slots of the honest clients and of each group of attackers, as processes take them.

    Only whoever starts an experiment knows them: clients and aggregator are not told.
    """
    chosen = Experiment.load(experiment)
    if seed is not None:
        chosen = Experiment.from_tables({**chosen.tables(), "seed": seed})
    by_slot = chosen.roles
    rows = []
    for group in (None, *chosen.attackers):
        slots = [slot for slot, role in enumerate(by_slot) if role is group]
        row = {"role": "honest" if group is None else "attackers", "clients": len(slots)}
        rows.append({**row, "slots": format_ranges(slots), "attack": describe(group)})
    if as_json:
        emit(rows)
        return
    for row in rows:
        line = f"{row['role']:10} {row['clients']:4}  {row['slots']}  {row['attack']}"
        sys.stdout.write(line.rstrip() + "\n")


def describe(group: Attackers | None) -> str:
    """What a group does: the names of its attacks, or their tables where they have parameters."""
    specs = [] if group is None else [group.attack, group.data_attack]
    return " ".join(
        str(spec["name"]) if len(spec) == 1 else json.dumps(spec) for spec in specs if spec
    )
