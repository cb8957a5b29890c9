"""Copies runs to a folder that TensorBoard shows."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rampart_fl.services.console.tracking.tracker import TrackerUnavailable, missing_library

GROUPS = ("accuracy", "error", "verdicts")
"""Prefixes of the names of metrics; TensorBoard groups the metrics that have the same prefix."""


class TensorBoardTracker:
    """Writes a run to a separate folder, for TensorBoard to show.

    Args:
        destination: TensorBoard's folder.
        name: the run's name, which is also the name of the run's folder.
    Raises:
        TrackerUnavailable: tensorboard is not installed, or the folder already contains a run with
            this name.
    """

    def __init__(self, destination: Path, name: str) -> None:
        try:
            from torch.utils import tensorboard
        except ImportError:
            raise missing_library("tensorboard") from None
        self._folder = destination / name
        if self._folder.exists():
            raise TrackerUnavailable(
                f"{self._folder} already exists; a run can be tracked only once"
            )
        library: Any = tensorboard
        self._writer: Any = library.SummaryWriter(str(self._folder))

    def begin(self, parameters: Mapping[str, str], facts: Mapping[str, str], at: float) -> None:
        """See `Tracker`; parameters and facts become tables."""
        self._writer.add_text("parameters", table(parameters), walltime=at)
        self._writer.add_text("run", table(facts), walltime=at)

    def round(
        self, number: int, metrics: Mapping[str, float], events: Mapping[str, str], at: float
    ) -> None:
        """See `Tracker`; events become texts."""
        for name, value in metrics.items():
            group, _, rest = name.partition("_")
            shown = f"{group}/{rest}" if group in GROUPS and rest else f"round/{name}"
            self._writer.add_scalar(shown, value, number, walltime=at)
        if events:
            self._writer.add_text("barred", table(events), number, walltime=at)
        self._writer.flush()  # Show this round now, because the next round may take long.

    def end(
        self, figures: Mapping[str, float], facts: Mapping[str, str], folder: Path, at: float
    ) -> None:
        """See `Tracker`; the files are stored next to TensorBoard's own files."""
        for name, value in figures.items():
            self._writer.add_scalar(f"final/{name}", value, 0, walltime=at)
        self._writer.add_text("end", table(facts), walltime=at)
        self._writer.close()
        shutil.copytree(folder, self._folder, dirs_exist_ok=True)

    def fail(self) -> None:
        """See `Tracker`: removes the folder, so that the failed run does not look complete."""
        self._writer.close()
        shutil.rmtree(self._folder)


def table(values: Mapping[str, str]) -> str:
    """A Markdown table of names and values, both escaped so that they cannot break the table.

    >>> print(table({"a|b": "1"}))
    | | |
    |---|---|
    | a\\|b | 1 |
    """
    rows = [f"| {_cell(name)} | {_cell(value)} |" for name, value in values.items()]
    return "\n".join(["| | |", "|---|---|", *rows])


def _cell(text: str) -> str:
    plain = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;")
    return plain.replace("\\", "\\\\").replace("|", "\\|")
