"""Executes runs, several at the same time; finished runs are cached and not run again."""

import ast
import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from subprocess import check_output
from typing import Any, Literal

ROOT = Path(__file__).resolve().parents[2]
JUDGES = (
    "shared/robust/detectors",
    "shared/robust/engine.py",
    "shared/robust/eviction.py",
    "shared/robust/evidence",
    "shared/robust/public_evaluation.py",
    "shared/robust/sketch.py",
    "shared/robust/state_memory.py",
    "shared/round",
    "shared/experiment/selection.py",
)
"""Source files that decide which clients are evicted. A change of their code invalidates cached
runs; a change of comments or docstrings does not."""
SAME_VERDICTS = {
    "90e34b96d0fd9d63": "546047d882b76888",
    "ba4a855b4e215605": "546047d882b76888",
    "05c69bcd9c78bc77": "546047d882b76888",
    "0f5865a084c37c0e": "546047d882b76888",
    "b63e946098de514f": "546047d882b76888",
    "fe951c6e43666428": "546047d882b76888",
    "57ff3b2f9c703c63": "546047d882b76888",
    "b91af5fcd540e993": "e24ea0f31d7b05e2",
    "c603e9002d386646": "e24ea0f31d7b05e2",
    "923fb4ab1c7cd45e": "e24ea0f31d7b05e2",
    "89034fd30f997237": "e24ea0f31d7b05e2",
}
"""Maps the digest of a version of these files to an earlier version with the same verdicts.

Cached runs of the earlier version remain valid. A version is listed only if it was compared with
the earlier one: `python -m benchmarks.detection.same` repeats cached runs. 90e34b96: a round frees
vectors that it no longer needs. ba4a855b: under the buffered policy, which no recorded run uses, no
challenge stays in a row. 05c69bcd: the engine checks that detectors judge every row. 0f5865a0: too
few rows for a rule's bound f, which no recorded run has, do not fail a round with verdicts.
b63e9460: changes the buffered policy and the detector `cross_round`, which no recorded run uses.
fe951c6e: imports a module under its new name. 57ff3b2f: changes rounds with clients in quarantine,
and rounds without a finite update, which no recorded run has. b91af5fc: forgets clients that an
operator evicted, which no recorded run has, and names the model's head, which no recorded run
compares. c603e900: words the reasons of evictions differently. 923fb4ab: forgets
clients that an operator reinstated, which no recorded run has. 89034fd3: adds spot checks, an
option that is off by default."""
SAME_IF_ALL_TAKE_PART = {"e24ea0f31d7b05e2": "546047d882b76888"}
"""Like `SAME_VERDICTS`, but only for runs in which every client takes part in every round.

e24ea0f3: the server summons clients that were not drawn. If all clients are drawn, it summons
nobody."""
SETTLED = 30
"""Minimum number of rounds of a run that ends once all attackers are evicted."""
Figures = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Run:
    """One run.

    Args:
        tables: tables of the run's experiment.
        label: factors by which the report groups runs, with their levels.
        seconds: estimated time of the run on one core.
        settles: whether the run ends once all attackers are evicted and `SETTLED` rounds are over.
        claim: sample count that attackers claim; None for the true count.
        network: whether the real services run over HTTP instead of the simulation.
        without: the table that a second run leaves out, which is the same otherwise. The figures
            then include `without`: the second run's accuracies, for the first run's honest clients.
        first: figures of the first run, if it was executed before without a second run.
    """

    tables: Mapping[str, Any]
    label: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 20.0
    settles: bool = False
    claim: int | None = None
    network: bool = False
    without: Literal["", "detectors", "attackers"] = ""
    first: Figures | None = None

    @property
    def key(self) -> str:
        """The cache key: a digest of the experiment, how it is run, and the detectors' code."""
        from rampart_fl.shared.experiment import Experiment

        experiment = Experiment.from_tables(self.tables)
        digest, judges = experiment.digest(), version()
        if experiment.fraction == 1:
            judges = SAME_IF_ALL_TAKE_PART.get(judges, judges)
        # Runs without detectors were once marked by a truth value; their keys remain valid.
        without = {"": False, "detectors": True}.get(self.without, self.without)
        parts = [digest, self.settles, self.claim, self.network, without, judges]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


@dataclass
class Cache:
    """A file of finished runs with one JSON object per line."""

    path: Path
    entries: dict[str, Figures] = field(default_factory=dict)

    @staticmethod
    def of(path: Path) -> "Cache":
        """Reads the cache from a file; removes an incomplete last line."""
        cache_ = Cache(path)
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        for line in lines:
            entry = json.loads(line)
            cache_.entries[entry["key"]] = entry
        if path.exists() and path.read_bytes()[-1:] not in (b"", b"\n"):
            path.write_text("".join(f"{line}\n" for line in lines))
        return cache_

    def add(self, run: Run, figures: Figures) -> None:
        """Adds a run to the cache and to its file."""
        entry = {"key": run.key, "commit": commit(), "label": dict(run.label), **figures}
        self.entries[run.key] = entry
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps(entry) + "\n")


def finish(runs: Sequence[Run], kept: Cache, jobs: int) -> list[tuple[Run, Figures]]:
    """Executes the runs that are not cached; returns all runs that did not fail, with figures."""
    from rampart_fl.services.console.studies.batch import run_all
    from rampart_fl.services.console.studies.pools import pool

    waiting = [
        replace(run, first=kept.entries.get(replace(run, without="").key))
        for run in runs
        if run.key not in kept.entries
    ]
    left, began = sum(run.seconds for run in waiting), time.monotonic()
    spent = 0.0
    networked = any(run.network for run in waiting)
    where = pool(jobs, threads=networked)
    for number, (run, result) in enumerate(run_all(execute, waiting, where), start=1):
        spent += run.seconds
        remaining = (left - spent) * (time.monotonic() - began) / max(spent, 1e-9)
        if "error" not in result:
            kept.add(run, result)
        summary = result.get("error") or headline(result)
        name = ", ".join(map(str, run.label.values()))
        line = f"{number}/{len(waiting)}, {span(remaining)} left: {name}: {summary}"
        print(line, file=sys.stderr, flush=True)
    return [(run, kept.entries[run.key]) for run in runs if run.key in kept.entries]


def execute(run: Run) -> Figures:
    """The figures of one run, or only `error` with the reason if the run failed."""
    from rampart_fl.shared.errors import RampartError
    from rampart_fl.shared.experiment import Experiment

    began, busy = time.monotonic(), time.process_time()
    try:
        experiment = Experiment.from_tables(run.tables)
        result = run_services(experiment) if run.network else run_simulation(run, experiment)
    except RampartError as error:
        return {"error": f"{type(error).__name__}: {error}"}
    times = {"wall_s": time.monotonic() - began, "core_s": time.process_time() - busy}
    before = run.first or dict.fromkeys(times, 0.0)
    return {**result, **{name: round(before[name] + value, 2) for name, value in times.items()}}


def run_simulation(run: Run, experiment: Any) -> Figures:
    """Simulates a run in this process on one thread."""
    from benchmarks.detection.figures import ACCURACIES

    figures = _first(run, experiment)
    if run.without:
        if run.without == "attackers":
            bare = {**run.tables, "attackers": []}
        else:
            bare = {**run.tables, "server": {**run.tables["server"], "detectors": []}}
        other = figures
        if run.without == "attackers" or touched(figures):
            other = simulate(run, type(experiment).from_tables(bare), experiment)
        figures["without"] = {name: other[name] for name in ACCURACIES}
    return figures


def touched(figures: Figures) -> bool:
    """Whether detectors excluded an update, changed a model or summoned a client.

    Otherwise, the same run without detectors has the same accuracies. Figures from before there
    were summons have no `examined`.
    """
    signs = ("silenced", "honest_evicted", "challenged", "examined")
    return any(figures.get(sign) for sign in signs)


def _first(run: Run, experiment: Any) -> Figures:
    if run.first is None:
        return simulate(run, experiment)
    return {name: run.first[name] for name in run.first.keys() - {"key", "commit", "label"}}


def simulate(run: Run, experiment: Any, described: Any = None) -> Figures:
    """The figures of one simulation, and how many models were changed to challenge clients.

    Args:
        run: how the experiment runs.
        experiment: the experiment that is simulated.
        described: the experiment whose honest clients the figures describe, if it is another one.
    """
    import torch

    from benchmarks.detection.figures import figures
    from rampart_fl.shared.figures.client_metrics import sides
    from rampart_fl.shared.simulation import Simulation

    torch.set_num_threads(1)
    simulation = Simulation.of(experiment)
    _, hostile = sides(experiment)
    if run.claim is not None:
        _claim(simulation, set(hostile), run.claim)
    challenged = 0
    while not simulation.ended:
        settled = len(simulation.records) >= SETTLED and set(hostile) <= simulation.server.evicted
        if run.settles and hostile and settled:
            break
        simulation.step()
        challenged += len(simulation.server.customization.challenged)
    evicted = sorted(simulation.server.evicted)
    described = described or experiment
    return {**figures(described, simulation.records, evicted), "challenged": challenged}


def _claim(simulation: Any, hostile: set[str], samples: int) -> None:
    """Makes attackers claim this many samples, because no attack of Rampart has such a setting."""
    train = simulation.clients.train

    def lying(names: Any, *rest: Any, **options: Any) -> Any:
        uploads = train(names, *rest, **options)
        claimed = tuple(
            samples if name in hostile else true
            for name, true in zip(uploads.names, uploads.samples, strict=True)
        )
        return replace(uploads, samples=claimed)

    simulation.clients.train = lying


def run_services(experiment: Any) -> Figures:
    """Executes a run with real processes on this machine, as `rampart up` does."""
    from benchmarks.detection.figures import figures
    from rampart_fl.services.console.launcher.up import up
    from rampart_fl.shared.runtime.tokens import mint

    # Attacks with full knowledge read the honest updates through the aggregator's test tap.
    os.environ.setdefault("RAMPART_TEST_TAP", mint())
    with tempfile.TemporaryDirectory() as folder:
        outcome = up(experiment, Path(folder))
    return figures(experiment, outcome.records, outcome.summary["evicted"])


def headline(result: Figures) -> str:
    """A summary of a run's figures in one line."""
    missed = "" if result["fnr"] is None else f"FNR {result['fnr']:.0%}, "
    silenced = result["silenced"] / max(result["client_rounds"], 1)
    return (
        f"{missed}{result['honest_evicted']} of {result['honest']} honest evicted, "
        f"{silenced:.1%} silenced, received {result['received']:.1%}, {result['wall_s']:.0f} s"
    )


def span(seconds: float) -> str:
    """A duration as text.

    >>> span(3725), span(65)
    ('1 h 2 min', '1 min 5 s')
    """
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


@cache
def version() -> str:
    """Digest of the code that decides on evictions, or of an equal version in `SAME_VERDICTS`.

    Minor versions of Python print the same code differently, and so have different digests.
    """
    total = hashlib.sha256()
    for place in JUDGES:
        path = ROOT / place
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            total.update(f"{file.relative_to(ROOT)}\0{bare(file.read_text())}\0".encode())
    digest = total.hexdigest()[:16]
    return SAME_VERDICTS.get(digest, digest)


def bare(source: str) -> str:
    """Python source without comments, docstrings and layout.

    >>> bare("def f(x):  # x is a number\\n    return x+1")
    'def f(x):\\n    return x + 1'
    """
    tree = ast.parse(source)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            kept = [one for one in body if not _is_text(one)]
            node.body = kept or [ast.Pass()]  # type: ignore[attr-defined]  # it has a body, see above
    return ast.unparse(ast.fix_missing_locations(tree))


def _is_text(statement: ast.stmt) -> bool:
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


@cache
def commit() -> str:
    """The git commit, with a plus sign if any file of `JUDGES` has uncommitted changes."""
    digest = check_output(["git", "rev-parse", "--short=12", "HEAD"], cwd=ROOT, text=True).strip()
    changed = check_output(["git", "status", "--porcelain", *JUDGES], cwd=ROOT, text=True).strip()
    return f"{digest}+" if changed else digest
