"""The live table of `rampart up` and `rampart watch`."""

import sys
import time
from collections.abc import Callable, Collection, Sequence
from types import TracebackType

from rich.console import Group
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.text import Text

from rampart_fl.services.console.display.formats import percent
from rampart_fl.services.console.display.progress import Pace
from rampart_fl.services.console.display.tables import fitting_table, least_width
from rampart_fl.services.console.display.terminal import terminal
from rampart_fl.shared.experiment.eviction import BARRING
from rampart_fl.shared.figures.client_metrics import KINDS, accuracy, attack_success, errors
from rampart_fl.shared.protocol.messages import RoundRecord
from rampart_fl.shared.protocol.runs import RunStatus

SHOWN = 12
"""Number of rounds that the table shows at once."""
EXPLAINED = 4
"""Number of rounds whose decisions are shown below the table."""
MODELS = {
    "customized": "received model",
    "local": "after local training",
    "personalized": "personal model",
}
"""Names of the models that clients measure (see `KINDS`), as in the table of final results."""
NORMS = ("largest norm", "honest norm", "hostile norm")
COLUMNS = ("round", "clients", *MODELS.values(), "backdoor", *NORMS)
OPTIONAL = (
    "backdoor",
    "hostile norm",
    "honest norm",
    "largest norm",
    *(MODELS[k] for k in ("local", "customized")),
)
"""Columns that are left out one after another, in this order, if the terminal is too narrow."""


def two_lines(name: str) -> str:
    """Moves the last word of a column's name to a second line, which keeps the column narrow.

    >>> two_lines("after local training"), two_lines("round")
    ('after local\\ntraining', 'round')
    """
    return "\n".join(name.rsplit(" ", 1))


def largest(norms: dict[str, float], clients: Collection[str]) -> float | None:
    """The largest of the given clients' norms; None if `norms` contains none of these clients."""
    return max((norm for client, norm in norms.items() if client in clients), default=None)


class LiveTable:
    """Shows a live table on standard error; if there is no terminal, prints one line per round.

    Args:
        hostile: ids of the attackers; None if they are unknown. Only a program that starts the
            attackers knows their ids.
        clock: function that returns the time in seconds.
    """

    def __init__(
        self,
        hostile: Collection[str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._roles_known = hostile is not None
        self._hostile = set(hostile or ())
        self._console = terminal(stderr=True)
        self._live = Live(console=self._console, refresh_per_second=4, transient=False)
        self._records_shown = 0
        self._tty = self._console.is_terminal
        self._pace = Pace(clock)

    def __enter__(self) -> "LiveTable":
        if self._tty:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._tty:
            self._live.stop()

    def show(self, status: RunStatus, records: Sequence[RoundRecord]) -> None:
        """Updates the table, or prints a line per new round; `records` has all rounds so far."""
        if self._tty:
            self._live.update(self.picture(status, records))
            return
        for record in records[self._records_shown :]:
            cells = self.cells(record)
            left = self._pace.time_left(record.round + 1, status.rounds)
            parts = [f"{name} {cell}" for name, cell in cells.items() if cell != "-"]
            sys.stderr.write("  ".join([*parts, left]).rstrip() + "\n")
        self._records_shown = len(records)

    def cells(self, record: RoundRecord) -> dict[str, str]:
        """One round as text, keyed by the names of the columns."""
        honest = set(record.metrics) - self._hostile
        norm = largest(record.norms, record.norms.keys() - self._hostile)
        worst = largest(record.norms, self._hostile)
        barred = [v for v in record.verdicts if v.decision in BARRING]
        notes = [f"{v.client} {v.decision}: {v.reason}" for v in barred]
        for decision in ("rejected", "abstained"):
            named = [v.client for v in record.verdicts if v.decision == decision]
            notes += [f"{decision} {', '.join(named)}"] if named else []
        # In the mode `observe`, a client is accepted even if a detector asks to evict or reject it.
        for request in ("evicted", "rejected"):
            named = [
                v.client for v in record.verdicts if v.decision == "accepted" and v.asked == request
            ]
            notes += [f"would be {request}: {', '.join(named)}"] if named else []
        notes += [f"failed: {record.reason}"] if record.status == "failed" else []
        scores = {kind: percent(accuracy(record.metrics, honest, kind)) for kind in KINDS}
        wrong = errors(record.metrics, honest)
        if wrong:  # An estimation task measures errors instead of accuracies.
            scores = {k: "-" if error is None else f"{error:.4g}" for k, error in wrong.items()}
        if self._roles_known:
            norms = {"honest norm": norm, "hostile norm": worst}
        else:
            norms = {"largest norm": norm}
        return {
            "round": str(record.round),
            "clients": str(len(record.participants)),
            **{MODELS[kind]: score for kind, score in scores.items()},
            "backdoor": percent(attack_success(record.metrics, honest, "customized")),
            **{name: "-" if one is None else f"{one:.3g}" for name, one in norms.items()},
            "decisions": "; ".join(notes) or "-",
        }

    def picture(self, status: RunStatus, records: Sequence[RoundRecord]) -> Group:
        """The table, the newest decisions, a progress bar, and a line about the current round.

        Columns without values are left out. If the terminal is still too narrow, the columns in
        `OPTIONAL` are left out, one after another.
        """
        shown = [self.cells(record) for record in records[-SHOWN:]]
        names = [name for name in COLUMNS if name not in OPTIONAL or _has_values(name, shown)]
        width, spare = self._console.width, [name for name in OPTIONAL if name in names]
        while True:
            rows = [[cells[name] for name in names] for cells in shown]
            headings = [two_lines(name) for name in names]
            table = fitting_table(headings, rows, width, justify="right")
            if not spare or least_width(table) <= width:
                break
            names.remove(spare.pop(0))
        table.title, table.title_justify = status.name, "left"
        decided = [cells for cells in shown if cells["decisions"] != "-"][-EXPLAINED:]
        notes = Text(
            "\n".join(f"round {cells['round']}: {cells['decisions']}" for cells in decided)
        )
        done = status.round + (status.phase in {"published", "failed", "evaluating", "done"})
        waits = f"waits for {status.waits_for}  " if status.waits_for else ""
        line = Text(
            f"round {status.round + 1} of {status.rounds}  {status.phase}  "
            f"{len(status.received)} of {len(status.selected)} updates  "
            f"{status.online} of {status.clients} clients online  "
            f"{len(status.evicted)} evicted  {len(status.quarantined)} quarantined  "
            f"{status.status}  {waits}{self._pace.time_left(done, status.rounds)}"
        )
        # Without padding, rich would print the bar and the text on one line, and cut the text.
        bar = Padding(ProgressBar(total=status.rounds, completed=done), 0)
        return Group(table, *([notes] if decided else []), bar, line)


def _has_values(name: str, rows: Sequence[dict[str, str]]) -> bool:
    """Whether a column has a value in any of the rows."""
    return any(cells.get(name, "-") != "-" for cells in rows)
