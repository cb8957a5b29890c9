"""The metrics of the matrix's cells: means and standard deviations over seeds."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from rampart_fl.services.console.studies.batch import failed
from rampart_fl.services.console.studies.matrix_cells import NOBODY, MatrixCell

ACCURACIES = {
    "local": "after local training",
    "customized": "as received",
    "personalized": "of the personal model",
}
"""Titles of the models whose accuracies the matrix shows, keyed by model. The model `local` is the
received model after local training, as in Table I of the FedCAP paper. Only the model `local`
exists for every defence, so a comparison of all defences must use the accuracy of this model."""
JUDGED = {"dacc": "DAcc", "fpr": "FPR", "fnr": "FNR"}
"""Titles of the metrics of a detector, keyed by metric."""
FIGURES = {
    **{f"accuracy_{kind}": f"Accuracy {title}" for kind, title in ACCURACIES.items()},
    **{f"attack_success_{kind}": f"Attack success {title}" for kind, title in ACCURACIES.items()},
    **JUDGED,
}
"""Titles of all metrics of a cell, keyed by metric."""
COSTLY = 0.05
"""An attack is costly if it lowers the accuracy (from 0 to 1) by at least this value."""


@dataclass(frozen=True)
class SeedMean:
    """The mean of one metric over seeds.

    Args:
        value: a fraction from 0 to 1.
        spread: sample standard deviation over the seeds; None for one seed.
    """

    value: float
    spread: float | None = None

    @staticmethod
    def of(values: Iterable[float]) -> "SeedMean | None":
        """The mean of the values of all seeds; None if there are no values.

        >>> SeedMean.of([0.5, 1.0])
        SeedMean(value=0.75, spread=0.353...)
        """
        numbers = list(values)
        if not numbers:
            return None
        return SeedMean(fmean(numbers), stdev(numbers) if len(numbers) > 1 else None)

    def __str__(self) -> str:
        """Mean and standard deviation in percent.

        >>> str(SeedMean(0.5)), str(SeedMean(0.5, 0.125))
        ('50.0', '50.0 ± 12.5')
        """
        spread = "" if self.spread is None else f" ± {100 * self.spread:.1f}"
        return f"{100 * self.value:.1f}{spread}"


Grid = list[list[SeedMean | None]]
"""Means by attack (rows) and defence (columns)."""


class Matrix:
    """Collects the metrics of every cell, and averages them over seeds.

    Args:
        attacks, defences: the attacks (rows) and the defences (columns).
    """

    def __init__(self, attacks: Sequence[str], defences: Sequence[str]) -> None:
        self.attacks = list(attacks)
        self.defences = list(defences)
        self._runs: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)

    def add(self, cell: MatrixCell, figures: dict[str, Any]) -> None:
        """Adds one run's metrics; leaves out DAcc, FPR and FNR if the defence has no detector."""
        if not cell.experiment.server.detectors:
            figures = {name: v for name, v in figures.items() if name not in JUDGED}
        self._runs[cell.attack, cell.defence].append({"seed": cell.experiment.seed, **figures})

    def runs(self, attack: str, defence: str) -> list[dict[str, Any]]:
        """A cell's runs, sorted by seed."""
        return sorted(self._runs.get((attack, defence), []), key=lambda run: run["seed"])

    def mean(self, attack: str, defence: str, figure: str) -> SeedMean | None:
        """The mean of one metric of a cell over seeds."""
        return SeedMean.of(self._by_seed(attack, defence, figure).values())

    def mean_loss(self, attack: str, defence: str, figure: str) -> SeedMean | None:
        """How much an attack lowers a metric compared with no attack, as a mean over seeds."""
        calm = self._by_seed(NOBODY, defence, figure)
        now = self._by_seed(attack, defence, figure)
        return SeedMean.of(calm[seed] - now[seed] for seed in now if seed in calm)

    def _by_seed(self, attack: str, defence: str, figure: str) -> dict[int, float]:
        runs = self.runs(attack, defence)
        return {run["seed"]: run[figure] for run in runs if run.get(figure) is not None}

    def grid(self, figure: str) -> Grid:
        """For each cell of the matrix: the mean of a metric over the cell's seeds."""
        return self._grid(self.mean, figure)

    def losses(self, figure: str) -> Grid:
        """For each cell of the matrix: by how much the attack lowers a metric."""
        return self._grid(self.mean_loss, figure)

    def _grid(self, of: Callable[[str, str, str], SeedMean | None], figure: str) -> Grid:
        return [[of(attack, d, figure) for d in self.defences] for attack in self.attacks]

    def metrics(self) -> list[str]:
        """The metrics that at least one cell has."""
        return [f for f in FIGURES if any(cell for row in self.grid(f) for cell in row)]

    def worst(self, defence: str, figure: str) -> SeedMean | None:
        """The lowest value of a metric over all attacks."""
        hostile = [self.mean(a, defence, figure) for a in self.attacks if a != NOBODY]
        return min((one for one in hostile if one), key=lambda one: one.value, default=None)

    def costly(self, defence: str, figure: str) -> int | None:
        """Number of attacks that lower a metric by at least `COSTLY`; None if no loss is known."""
        lost = [
            self.mean_loss(attack, defence, figure) for attack in self.attacks if attack != NOBODY
        ]
        known = [one.value for one in lost if one]
        return sum(value >= COSTLY for value in known) if known else None

    def tables(self, about: dict[str, Any]) -> dict[str, Any]:
        """All cells as JSON values: means by metric, and standard deviations under "spread"."""
        cells = []
        for attack in self.attacks:
            for defence in self.defences:
                means = {figure: self.mean(attack, defence, figure) for figure in FIGURES}
                cells.append(
                    {
                        "attack": attack,
                        "defence": defence,
                        **{figure: mean and mean.value for figure, mean in means.items()},
                        "spread": {
                            f: m.spread for f, m in means.items() if m and m.spread is not None
                        },
                        "runs": self.runs(attack, defence),
                    }
                )
        return {**about, "attacks": self.attacks, "defences": self.defences, "cells": cells}

    def failures(self) -> list[tuple[str, str, dict[str, Any]]]:
        """Attack, defence and results of every failed run."""
        return [(*cell, run) for cell, runs in self._runs.items() for run in runs if failed(run)]
