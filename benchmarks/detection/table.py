"""Scenarios in which `robust_distance` evicted honest clients, or found no attacker."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.detection import report
from benchmarks.detection.options import Options
from benchmarks.detection.runs import Figures, Run

Attack = dict[str, Any]


@dataclass(frozen=True)
class Scenario:
    """One line of the table.

    Args:
        name: name of the line.
        before: the result of `robust_distance`.
        seeds: number of runs, each with its own seed.
        base: the shipped experiment that the scenario changes.
        changes: new values of the experiment's tables. They replace the old values, except in the
            table `data`, which is merged.
        hostile: number of attackers.
        attack: attack on updates.
        data_attack: attack on samples.
    """

    name: str
    before: str
    seeds: int
    base: str = "digits-benign"
    changes: Mapping[str, Any] = field(default_factory=dict)
    hostile: int = 0
    attack: Attack | None = None
    data_attack: Attack | None = None

    def tables(self, seed: int, detectors: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The experiment's tables."""
        from rampart_fl.shared.experiment import Experiment

        tables = Experiment.load(self.base).tables()
        data = tables["data"] | self.changes.get("data", {})
        server = {
            "rule": tables["server"]["rule"],
            "customizer": tables["server"]["customizer"],
            "detectors": [dict(detector) for detector in detectors],
        }
        group = {"count": self.hostile, "attack": self.attack, "data_attack": self.data_attack}
        tables |= {**self.changes, "data": data, "server": server, "seed": seed}
        return {**tables, "attackers": [group] if self.hostile else []}


def dirichlet(beta: float, balanced: bool = False, clients: int = 20) -> dict[str, Any]:
    """Changes that select a Dirichlet partition and a number of clients."""
    partition = {"name": "dirichlet", "beta": beta, "balanced": balanced}
    return {"data": {"partition": partition, "clients": clients}}


def _scenarios() -> Iterator[Scenario]:
    wisdm = "fedcap-wisdm-features"
    seven = "7 of 36 honest in each"
    yield Scenario("nobody, WISDM users, 60 rounds", seven, 4, wisdm, {"rounds": 60})
    yield Scenario("nobody, WISDM users, 100 rounds", "8 of 36 honest", 2, wisdm)
    yield Scenario("nobody, Dirichlet 0.1 unbalanced", "3 and 1 of 20", 4, changes=dirichlet(0.1))
    for beta in (0.3, 0.5, 1):
        name = f"nobody, Dirichlet {beta:g} unbalanced"
        yield Scenario(name, "1 of 20 in one of 6 runs", 3, changes=dirichlet(beta))
    half = {**dirichlet(0.3, clients=30), "fraction": 0.5}
    yield Scenario("nobody, Dirichlet 0.3 unbalanced, fraction 0.5", "1 of 30", 2, changes=half)
    some = "2 to 3 of 26 honest in every run, FNR 0"
    for attack in ("sign_flip", "min_max"):
        name = f"WISDM users, {attack} by 10 of 36"
        yield Scenario(name, some, 3, wisdm, hostile=10, attack={"name": attack})
    flips = {"name": "label_flip"}
    name = "WISDM users, label_flip by 10 of 36"
    yield Scenario(name, some, 3, wisdm, hostile=10, data_attack=flips)
    for epsilon in (0.2, 0.5, 0.8):
        ipm = {"name": "ipm", "epsilon": epsilon, "knows": "full"}
        before = "some honest in 9 of 18 runs, all 11 in 7, FNR 1"
        yield Scenario(f"IPM {epsilon} by 9 of 20", before, 6, hostile=9, attack=ipm)
    ipm = {"name": "ipm", "epsilon": 0.5, "knows": "full"}
    few = {"data": {"clients": 10}}
    yield Scenario(
        "IPM 0.5 by 4 of 10", "6 of 6 honest, FNR 1", 2, changes=few, hostile=4, attack=ipm
    )
    before = "9 of 11 honest, FNR 1"
    yield Scenario("IPM, partial, by 9 of 20", before, 2, hostile=9, attack={"name": "ipm"})
    before = "10 of 11 honest by round 4, FNR 1"
    yield Scenario("mimic by 9 of 20", before, 2, hostile=9, attack={"name": "mimic"})
    for fraction, before in ((0.2, "FNR 1"), (0.5, "FNR 0.11 to 0.33")):
        changes = {"data": {"clients": 30}, "fraction": fraction}
        for attack in ("sign_flip", "model_replacement", "min_max"):
            name = f"{attack} by 9 of 30, fraction {fraction}"
            spec = {"name": attack}
            yield Scenario(name, before, 2, changes=changes, hostile=9, attack=spec)
    for attack in ("sign_flip", "min_max", "min_sum", "fang", "sybil_clones"):
        for name, changes in (("2 classes", {}), ("Dirichlet 0.5", dirichlet(0.5, balanced=True))):
            before = "1 honest in one of 40 runs, FNR 0"
            spec = {"name": attack}
            title = f"{attack} by 6 of 20, {name}"
            yield Scenario(title, before, 4, changes=changes, hostile=6, attack=spec)


SCENARIOS = tuple(_scenarios())


def plan(options: Options) -> list[Run]:
    """Runs of every scenario, with consecutive seeds from `options.seed` on."""
    return [
        Run(scenario.tables(seed, options.detectors), {"scenario": scenario.name, "seed": seed})
        for scenario in SCENARIOS
        for seed in range(options.seed, options.seed + (options.runs or scenario.seeds))
    ]


def write(options: Options, results: Sequence[tuple[Run, Figures]]) -> Iterator[str]:
    """The section's part of the report."""
    yield "## Where `robust_distance` failed"
    yield ""
    yield from report.provenance(options.command, [one for _, one in results])
    yield (
        f"Seeds from {options.seed} on; digits, 20 clients with two classes each, 40 rounds of"
        " FedCAP where nothing else is said. FNR and evicted honest clients by run."
    )
    rows = []
    for scenario in SCENARIOS:
        cell = [one for run, one in results if run.label["scenario"] == scenario.name]
        if cell:
            missed = ", ".join("-" if one["fnr"] is None else f"{one['fnr']:.2g}" for one in cell)
            wronged = ", ".join(str(one["honest_evicted"]) for one in cell)
            columns = [wronged, missed, *report.excluded_rounds(cell), *report.accuracies(cell)]
            rows.append([scenario.name, scenario.before, str(len(cell)), *columns])
    names = (f"accuracy {name}" for name in report.ACCURACIES)
    header = ("scenario", "`robust_distance`", "runs", "honest evicted", "FNR")
    yield from report.table((*header, *report.SILENCED, *names), rows)
