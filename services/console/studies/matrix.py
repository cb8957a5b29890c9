"""`rampart matrix`: runs every attack against every defence, as one experiment per cell.

A cell is the base experiment with the attack of its row and the defence of its column. The results
of a cell are stored in a file named after the digest of its experiment, so that no experiment is
run twice.
"""

import re
import shutil
import sys
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rampart_fl.services.console.studies.batch import follow as show
from rampart_fl.services.console.studies.batch import read, run_all_cached, run_simulation
from rampart_fl.services.console.studies.pools import Pool
from rampart_fl.services.console.studies.start_file import folder_of, start_digest
from rampart_fl.shared.attacks.data import attacks as data_attacks
from rampart_fl.shared.attacks.model import attacks as model_attacks
from rampart_fl.shared.attacks.triggers import Backdoor
from rampart_fl.shared.errors import ConfigurationError, RampartError, UnknownMember
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.runtime import durable
from rampart_fl.shared.runtime.tokens import mint
from rampart_fl.shared.validation import validate

NOBODY = "none"
"""The name of the row in which all clients behave honestly. The accuracies of every row,
including this one, leave out the clients that attack in the other rows, so that all rows cover the
same clients."""
FEDCAP = {"name": "fedcap", "alpha": 10, "phi": 0.1}
DETECTORS: dict[str, list[Any]] = {
    "fedcap": ["response", "challenge"],
    "fedcap-paper": [{"name": "norm_bound", "threshold": 10}],
}
"""The defences that customize models, each with its detectors."""
LOCAL_ONLY = "local_only"
REFERENCES = {LOCAL_ONLY: "local", "fine_tuned": "fine_tune"}
"""Personalizers of the two baselines, keyed by baseline. In `local_only`, clients train without
exchanging models or updates. `fine_tuned` is plain averaging, but each client keeps its locally
trained model as its personal model."""


@dataclass(frozen=True)
class MatrixCell:
    """One run of the matrix.

    Args:
        attack, defence: attack and defence, as given on the command line.
        experiment: the experiment of the run.
        network: whether to run the real services over HTTP instead of a simulation.
    """

    attack: str
    defence: str
    experiment: Experiment
    network: bool = False

    @property
    def file(self) -> str:
        """Name of the file with this cell's results."""
        return f"{'network' if self.network else 'simulated'}-{self.experiment.digest()}.json"


def member(text: str) -> dict[str, Any]:
    """Parses an attack or a stage: a name and `:key=value` for each parameter, with TOML values.

    >>> member("dba:width=3:target=2")
    {'name': 'dba', 'width': 3, 'target': 2}
    >>> member("lie:knows=full")
    {'name': 'lie', 'knows': 'full'}
    """
    name, *pairs = re.split(r":(?=[a-z_]+=)", text)
    if ":" in name:
        raise ConfigurationError(f"{text!r}: write parameters as name:key=value")
    spec: dict[str, Any] = {"name": name}
    for pair in pairs:
        key, _, value = pair.partition("=")
        try:
            spec[key] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            spec[key] = value
    return spec


def with_attack(base: Experiment, attack: str) -> dict[str, Any]:
    """The TOML tables of the base experiment, with its attack replaced by the attack `attack`.

    The number of attackers stays the same; if the base experiment has no attackers, 30 % of the
    clients attack.
    """
    tables = {**base.tables(), "attackers": []}
    count = sum(group.count for group in base.attackers) or max(1, round(0.3 * base.data.clients))
    spec = {"name": "sign_flip", "until_round": 0} if attack == NOBODY else member(attack)
    if spec["name"] in model_attacks.names():
        return {**tables, "attackers": [{"count": count, "attack": spec}]}
    if spec["name"] not in data_attacks.names():
        known = (NOBODY, *model_attacks.names(), *data_attacks.names())
        raise UnknownMember("attack", str(spec["name"]), known)
    if isinstance(data_attacks.parse(spec), Backdoor):
        tables["evaluation"] = {**tables["evaluation"], "trigger": spec}
    return {**tables, "attackers": [{"count": count, "data_attack": spec}]}


def with_defence(tables: dict[str, Any], defence: str, f: int) -> dict[str, Any]:
    """The TOML tables of an experiment, with its defence replaced by the defence `defence`.

    Args:
        tables: TOML tables of the experiment.
        defence: a pipeline, whose stages are separated by "+"; or a defence with detectors (a key
            of `DETECTORS`); or a baseline (a key of `REFERENCES`).
        f: upper bound on the number of hostile clients, and on the number of barred clients.
    """
    carried = ("learning_rate", "momentum", "sample_cap", "root", "public")
    server = {**{k: tables["server"][k] for k in carried}, "f": f}
    if defence in REFERENCES:
        return {**tables, "personalizer": REFERENCES[defence], "server": server}
    if defence not in DETECTORS:
        stages = [member(stage) for stage in defence.split("+")]
        return {**tables, "personalizer": "none", "server": {**server, "rule": stages}}
    same = tables["server"]["customizer"]["name"] == FEDCAP["name"]
    server["customizer"] = tables["server"]["customizer"] if same else FEDCAP
    server["detectors"] = DETECTORS[defence]
    server["eviction"] = {"bounded": defence != "fedcap-paper"}
    own = tables["personalizer"]
    return {
        **tables,
        "personalizer": own if own["name"] == "fedcap" else "fedcap",
        "server": server,
    }


def plan(
    base: Experiment,
    attacks: Sequence[str],
    defences: Sequence[str],
    seeds: int = 1,
    rounds: int | None = None,
    network: bool = False,
) -> list[MatrixCell]:
    """Builds and validates all cells, seed by seed, so that errors are found before the first run.

    Args:
        base: the experiment that all cells modify; its seed is the first seed.
        attacks, defences: the attacks (rows) and defences (columns) of the matrix.
        seeds: number of consecutive seeds.
        rounds: number of rounds of every run; by default, the base experiment's number.
        network: whether the cells run over HTTP.
    Raises:
        ConfigurationError: there is no attack or no defence, or one is listed twice; or a cell is
            not a valid experiment.
    """
    for kind, listed in (("attack", attacks), ("defence", defences)):
        if not listed:
            raise ConfigurationError(f"a matrix needs at least one {kind}")
        for name, times in Counter(listed).items():
            if times > 1:
                raise ConfigurationError(f"{kind} {name!r} is listed {times} times; list it once")
    cells = []
    for seed in range(base.seed, base.seed + seeds):
        changes = {"seed": seed, "rounds": rounds or base.rounds}
        for attack in attacks:
            tables = {**with_attack(base, attack), **changes}
            hostile = sum(group["count"] for group in tables["attackers"])
            for defence in defences:
                chosen = with_defence(tables, defence, hostile)
                if defence == LOCAL_ONLY:
                    # Leave out the attack: clients that train alone receive nothing that an attack
                    # could affect.
                    chosen["attackers"] = with_attack(base, NOBODY)["attackers"]
                experiment = validate(Experiment.from_tables(chosen))
                cells.append(MatrixCell(attack, defence, experiment, network))
    return cells


def run_services(experiment: Experiment, folder: Path, device: str = "cpu") -> dict[str, Any]:
    """Runs an experiment with real processes on this machine; returns the results.

    If an attack asks for full knowledge, the function enables the aggregator's test tap. Through
    the test tap, the attackers read the updates of the honest clients. `device` is the aggregator's
    device.
    """
    from rampart_fl.services.console.launcher.forked import ForkedProcesses
    from rampart_fl.services.console.launcher.local_federation import LocalFederation
    from rampart_fl.shared.figures.final import final_figures

    began = time.monotonic()
    knowing = any(
        group.attack is not None and model_attacks.parse(group.attack).asks_for == "full"
        for group in experiment.attackers
    )
    settings = {"RAMPART_DEVICE": device}
    if knowing:
        settings["RAMPART_TEST_TAP"] = mint()
    # A federation executes one run at a time, so parallel cells need separate federations.
    federation = LocalFederation(experiment, folder, settings=settings, processes=ForkedProcesses)
    with federation:
        federation.start_clients()
        while (status := federation.operator.status()).phase != "done":
            federation.processes.check("redis", "aggregator")
            time.sleep(0.5)  # Poll the status until the run ends.
        records = federation.operator.rounds()
    return {
        "experiment": experiment.name,
        "experiment_digest": experiment.digest(),
        "rounds": len(records),
        **final_figures(experiment, [r.metrics for r in records], status.evicted),
        "failed_rounds": sum(record.status == "failed" for record in records),
        "seconds": round(time.monotonic() - began, 3),
    }


def run_or_continue(experiment: Experiment, folder: Path, device: str = "cpu") -> dict[str, Any]:
    """Like `run_services`, but continues the run that an earlier execution left in the folder.

    If this run has ended, but its results were not stored, a new run replaces it.
    """
    from rampart_fl.services.console.launcher.local_federation import RunEnded

    left = folder.exists()
    try:
        return run_services(experiment, folder, device)
    except RunEnded:
        if not left:
            raise
    shutil.rmtree(folder)
    return run_services(experiment, folder, device)


def figures_of(cell: MatrixCell, folder: Path, device: str = "cpu") -> dict[str, Any]:
    """Runs a cell; returns its results, or its error if it fails.

    Args:
        cell: the cell to run.
        folder: folder for the services' files while a cell runs over HTTP.
        device: device of the simulation, or of the aggregator if the cell runs over HTTP.
    """
    try:
        if not cell.network:
            return run_simulation(cell.experiment, device)
        runs = folder / "runs" / f"network-{folder_of(cell.experiment)}"
        figures = run_or_continue(cell.experiment, runs, device)
        shutil.rmtree(runs)  # The clients' models and updates are no longer needed.
        return figures
    except RampartError as error:
        return {"error": f"{type(error).__name__}: {error}"}


def _place(cell: MatrixCell, folder: Path) -> Path:
    return folder / "cells" / cell.file


def adjust_metrics(cell: MatrixCell, figures: dict[str, Any]) -> dict[str, Any]:
    """Adjusts a run's metrics if its cell has no attack, or has the defence `local_only`.

    In the row without an attack, `fpr` becomes the evicted fraction of all clients, because every
    client is honest; `dacc` and `fnr` become None. Under `local_only`, the metrics of the received
    model become None, because a client receives no model; the metrics of the model `local` become
    those of the personal model, which the client trained locally.
    """
    if "error" in figures:
        return figures
    row = dict(figures)
    if cell.attack == NOBODY:
        wronged = len(row["evicted"]) / cell.experiment.data.clients
        row |= {"dacc": None, "fnr": None, "fpr": wronged}
    if cell.defence == LOCAL_ONLY:
        for figure in ("accuracy", "attack_success"):
            own = row.get(f"{figure}_personalized")
            row |= {f"{figure}_customized": None, f"{figure}_local": own}
    return row


def run(
    cells: Sequence[MatrixCell], folder: Path, pool: Pool | None = None, device: str = "cpu"
) -> Iterator[tuple[MatrixCell, dict[str, Any]]]:
    """Runs cells in a pool; yields each cell with its results, cached cells first.

    Cells with the same experiment share one run.
    """
    alike = defaultdict[str, list[MatrixCell]](list)
    for cell in cells:
        alike[cell.file].append(cell)
    firsts = [same[0] for same in alike.values()]
    one = partial(figures_of, folder=folder, device=device)
    cached = run_all_cached(
        one, firsts, lambda cell: _place(cell, folder), pool, lambda cell: cell.experiment
    )
    for first, figures in cached:
        for cell in alike[first.file]:
            yield cell, adjust_metrics(cell, figures)


def follow(
    cells: Sequence[MatrixCell],
    folder: Path,
    pool: Pool | None,
    on_result: Callable[[MatrixCell, dict[str, Any]], None],
    device: str = "cpu",
) -> None:
    """Runs cells and shows a progress bar on standard error; cached cells come first."""
    durable.make_folder(folder)  # An unusable folder is reported before the first run.
    before, ahead = list[MatrixCell](), list[MatrixCell]()
    for cell in cells:
        stored = read(_place(cell, folder), start_digest(cell.experiment))
        (ahead if stored is None else before).append(cell)
    for cell, figures in run(before, folder):
        on_result(cell, figures)
    if before:
        sys.stderr.write(f"{len(before)} of {len(cells)} runs are already in {folder / 'cells'}\n")
    show(
        "matrix",
        len(ahead),
        run(ahead, folder, pool, device),
        lambda cell: f"{cell.attack} / {cell.defence} seed={cell.experiment.seed}",
        on_result,
        figure="accuracy_local",
    )
