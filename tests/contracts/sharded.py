"""One rank of `test_shards.py`: computes on its coordinates in a group, and saves what it gets.

python -m tests.contracts.sharded RANK RANKS FOLDER
"""

import sys
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed

from rampart_fl.shared.errors import RampartError
from rampart_fl.shared.robust import Context, Rows, aggregate, linalg, shards
from rampart_fl.shared.robust.customizers import customizers
from rampart_fl.shared.robust.detectors import detectors
from rampart_fl.shared.robust.engine import Plan, run_round
from rampart_fl.shared.robust.preaggregators import preaggregators
from rampart_fl.shared.robust.rules import rules
from rampart_fl.shared.robust.server_step import ServerStep
from rampart_fl.shared.robust.shards import Part
from rampart_fl.shared.round.pool import Claim, Pool
from rampart_fl.shared.runtime.disk_block import BlockStorage
from tests.contracts.conftest import PREAGGREGATORS, RULES, Case, F, honest

GRAIN = 64
GROUPS: dict[str, dict[str, object]] = {
    "clustered": {"rule": ["nnm", "centered_clipping"]},
    "flcert": {"groups": 2, "rule": "centered_clipping"},
}
"""Rules of groups that keep a vector between rounds."""
LONG, SHORT = 64 * 40 - 5, 64 - 5
"""Coordinates of a pool of fourteen shards, and of one with a single shard, for one rank only."""


def updates(kind: str) -> Tensor:
    """All rows: one is far away, two are close, and in one kind two are not finite."""
    updates_ND = honest(dim=SHORT if kind == "short" else LONG)
    if kind == "long":  # The order changes a float64 sum of numbers this different.
        updates_ND *= torch.logspace(-4, 4, LONG)
    updates_ND[3] *= 50
    updates_ND[4] = updates_ND[5] + 1e-4 * updates_ND[6]
    if kind == "infinite":
        updates_ND[7, -1] = torch.inf
        updates_ND[8, 0] = torch.nan
    return updates_ND


def cases() -> dict[str, tuple[str, list[object]]]:
    """Every pipeline, by name: the kind of its updates, and its stages."""
    values: dict[str, tuple[str, list[object]]] = {}
    for kind in ("long", "short", "infinite"):
        for name in rules.names():
            values[f"{name}, {kind}"] = (kind, [table(RULES.get(name, Case(name)))])
        for name in preaggregators.names():
            before = table(PREAGGREGATORS.get(name, Case(name)))
            values[f"{name}, {kind}"] = (kind, [before, "geometric_median"])
        for name in ("filtering", "no_regret"):
            values[f"{name}, {kind}, blocks"] = (kind, [{"name": name, "block_size": 100}])
    return values


def table(case: Case) -> dict[str, object]:
    """A stage as a table."""
    own = {"pieces": 8} if case.name == "gas" else {}
    return {"name": case.name, **case.parameters, **own}


def result(kind: str, stages: list[object], rank: int, size: int, group: Any) -> Tensor | str:
    """This rank's part of an aggregate, or the text of an error."""
    updates_ND = updates(kind)
    here = shards.columns(updates_ND.shape[1], rank, size)
    n, server_D = len(updates_ND), torch.linspace(0.5, 1.5, updates_ND.shape[1])
    context = Context(round=1, seed=5, server_update_D=server_D[here])
    gaps = {"loss_gap": torch.linspace(0, 1, n)}
    try:
        return aggregate(
            updates_ND[:, here], stages, f=F, metadata=gaps, context=context, group=group
        )
    except RampartError as error:
        return f"{type(error).__name__}: {error}"


@dataclass
class Held:
    """What one rank holds after some rounds.

    Args:
        parts: tensors (..., D) of which each rank holds some coordinates, by name.
        common: what every rank holds, by name.
    """

    parts: dict[str, Tensor] = field(default_factory=dict)
    common: dict[str, Tensor | str] = field(default_factory=dict)


def plans() -> dict[str, Plan]:
    """An experiment's server for every detector and every customizer, by the member's name."""
    step, rule = ServerStep(momentum=0.5), {"name": "centered_clipping"}
    screened = {
        name: {"screens": [{"name": name, **({"threshold": 1e6} if name == "norm_bound" else {})}]}
        for name in detectors.names()
    }
    customized: dict[str, dict[str, object]] = {
        name: {"screens": ["response"], "customizer": {"name": name, **GROUPS.get(name, {})}}
        for name in customizers.names()
    }
    last = {"name": "fedcap", "similarity": "last_layer"}
    customized["fedcap, last layer"] = {"customizer": last}
    return {
        name: Plan.of(rule, step=step, f=F, **{"customizer": "fedcap", **stages})  # type: ignore[arg-type]  # a dict's type cannot say that each value fits its key
        for name, stages in {**screened, **customized}.items()
    } | {"foolsgold": Plan.of("foolsgold", step=step, f=F)}


def rounds(plan: Plan, rank: int, size: int, group: Any) -> Held | str:
    """Three rounds in which three clients send equal updates, then a newcomer, on this rank."""
    whole_ND = updates("long")
    dim = whole_ND.shape[1]
    here, held = shards.columns(dim, rank, size), Held()
    state, reference_D = plan.init(dim), torch.linspace(0, 1, dim)[here]
    layout = (("body.weight", 0, 900), ("head.weight", 900, 2500), ("head.bias", 2500, dim))
    models: dict[str, Tensor] = {}
    if group is not None and (name := plan.undivided()):
        return f"{name} works on whole rows"
    for round_ in range(3):
        updates_ND = whole_ND + 0.1 * round_ * whole_ND.roll(1, 0)
        updates_ND[9:] = updates_ND[8]
        moved = {"moved": updates_ND.norm(dim=1)}
        context = Context(round_, 5, reference_D, models=models, layout=layout)
        rows = Rows.of(updates_ND[:, here], metadata=moved, group=group)
        try:
            outcome = run_round(plan, rows, state, context)
        except RampartError as error:
            return f"{type(error).__name__}: {error}"
        state, reference_D, custom = outcome.state, outcome.global_D, outcome.customization
        models = {}
        if custom.models is not None:
            names = custom.models.names
            models = dict(zip(names, custom.models.block(names), strict=True))
        held.parts |= {f"{round_} {name}": model_D for name, model_D in models.items()}
        held.parts[f"{round_} global"] = reference_D
        held.common[f"{round_} verdicts"] = str(outcome.verdicts)
        held.common[f"{round_} models"] = str((custom.assignment, custom.challenged))
    for name, tensor in state.tensors.items():
        (held.parts if name in state.vectors else held.common)[name] = tensor
    held.common["ids"] = str(sorted(state.ids.items()))
    if plan.customizer.probes:
        probe_D = whole_ND[0, here]
        weights_M = plan.customizer.customize_newcomer(probe_D, outcome.survivors, context)
        held.common["newcomer"] = weights_M
    return held


def passes(rank: int, size: int, group: Any) -> dict[str, Tensor]:
    """Sums over all coordinates, which every rank gets."""
    updates_ND = updates("long")
    here = shards.columns(updates_ND.shape[1], rank, size)
    rows = Rows.of(updates_ND[:, here], group=group)
    centre_D = updates_ND[0, here]
    return {
        "gram": linalg.gram(rows),
        "squared distances": linalg.squared_distances(rows),
        "norms": linalg.norms(rows, centre_D),
        "dots": linalg.dots(rows, centre_D),
        "signs": linalg.signs(rows),
        "whole": rows.place.whole(centre_D),
        "norm": torch.tensor(linalg.norm(centre_D, rows.part), dtype=torch.float64),
        "norms of a pool in a file": linalg.norms(pool_in_file(updates_ND, rank, size, group)),
        # All coordinates are in one shard, so all ranks but one have an empty block and no file.
        "norms of one shard in a file": linalg.norms(
            pool_in_file(updates_ND[:, : GRAIN // 2], rank, size, group)
        ),
    }


def pool_in_file(whole_ND: Tensor, rank: int, size: int, group: Any) -> Rows:
    """The rows of a pool that keeps them in a file, and measures each row when it arrives."""
    names, dim = [str(i) for i in range(len(whole_ND))], whole_ND.shape[1]
    here = shards.columns(dim, rank, size)
    part = None if group is None else Part(dim, here.start, here.stop, group)
    updates_ND = whole_ND[:, here]
    plan, reference_D = Plan.of("median"), torch.zeros(updates_ND.shape[1])
    pool = Pool(plan, dim, reference_D, names, BlockStorage(memory=0), part=part)
    for name, update_D in zip(names, updates_ND, strict=True):
        pool.row(name).copy_(update_D)
        pool.admit(name)
    rows = pool.rows(dict.fromkeys(names, Claim(1, {})), cap=1)
    assert (rows.file is not None) is (rows.dim > 0)
    assert rows.pool_statistics.squares_N is not None
    return rows


def main() -> None:
    """Runs every pipeline as one rank."""
    rank, size, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    shards.GRAIN = GRAIN
    store = distributed.FileStore(str(folder / "store"), size)
    distributed.init_process_group(
        "gloo", store=store, rank=rank, world_size=size, timeout=timedelta(seconds=120)
    )
    group = distributed.group.WORLD
    table: dict[str, Any] = {
        name: result(kind, stages, rank, size, group) for name, (kind, stages) in cases().items()
    }
    table |= passes(rank, size, group)
    for name, plan in plans().items():
        held = rounds(plan, rank, size, group)
        table[f"rounds of {name}"] = held if isinstance(held, str) else vars(held)
    try:
        aggregate(updates("long"), "median", group=group)
    except RampartError as error:
        table["whole rows on every rank"] = str(error)
    torch.save(table, folder / f"{rank}.pt")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
