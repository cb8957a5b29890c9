"""The vocabulary of robust aggregation: state, reports, verdicts and the stages of a pipeline.

Rows and context, which stages work on, are known here too: whoever writes a stage imports this.

Legend of shape suffixes: M rows that a stage sees, D coordinates.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor

from rampart_fl.shared.errors import PreconditionError
from rampart_fl.shared.experiment.eviction import Asked as Asked
from rampart_fl.shared.experiment.eviction import Decision as Decision
from rampart_fl.shared.families.registry import Member
from rampart_fl.shared.robust.context import Context as Context
from rampart_fl.shared.robust.context import Need
from rampart_fl.shared.robust.rows import Rows as Rows
from rampart_fl.shared.robust.view import CHUNK as CHUNK


@dataclass(frozen=True, eq=False)
class State:
    """What a stage carries from one round to the next: tensors by name, and whose rows they hold.

    Args:
        tensors: any tensors, by name.
        ids: for a tensor with one row per client, the clients, by the tensor's name.
    """

    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    ids: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def by_id(self, name: str) -> dict[str, Tensor]:
        """Rows of a per-client tensor by client id; empty before the first round."""
        if name not in self.tensors:
            return {}
        return dict(zip(self.ids[name], self.tensors[name], strict=True))


@dataclass(frozen=True, eq=False)
class Report:
    """What one stage did: a number per row it received, and totals.

    Args:
        stage: the member's name.
        ids: the rows that the stage received.
        per_row: (M,) columns by name; "weight" is a row's coefficient in the result where the
            result is linear in the rows, "score" what the stage ranked rows by.
        values: totals by name.
    """

    stage: str
    ids: tuple[str, ...] = ()
    per_row: Mapping[str, Tensor] = field(default_factory=dict)
    values: Mapping[str, float | int | str] = field(default_factory=dict)

    def column(self, name: str) -> dict[str, float]:
        """One column as numbers by client id."""
        return dict(zip(self.ids, self.per_row[name].tolist(), strict=True))


@dataclass(frozen=True)
class Verdict:
    """What a detector says of one client in one round, or what is done about it, and why.

    A detector says `accepted`, `rejected` (leave the row out of this round) or `evicted` (bar the
    client for good; an operator may reinstate it); `rampart_fl.shared.robust.eviction` makes of
    that what is done. The evidence is `score` against `threshold`.
    """

    client: str
    decision: Decision
    detector: str
    score: float
    threshold: float
    reason: str
    evidence: float = 0.0
    """Evidence accumulated over rounds, where the detector keeps any."""
    asked: Asked | None = None
    """What the detector asked for, where something else is done."""


class Stage(Member, ABC):
    """A step of a pipeline: `init` makes its state, `apply` is pure."""

    breakdown: ClassVar[str] = ""
    """How many hostile rows it tolerates, for the catalogue: "f < n/2"; "none" where one row can
    move the result anywhere, "inherited" where the stages around it decide."""
    complexity: ClassVar[str] = ""
    """Cost in rows n and coordinates d, for the catalogue."""

    def needs(self) -> frozenset[Need]:
        """What it asks of its context beside round, seed and reference; its stages' included."""
        parts = (getattr(self, key) for key in type(self).model_fields)
        return frozenset[Need]().union(*(p.needs() for p in parts if isinstance(p, Stage)))

    def init(self, dim: int) -> State:
        """State before the first round, for updates of `dim` coordinates."""
        del dim
        return State()


class Bounded(Stage):
    """A stage that tolerates up to `f` hostile rows."""

    f: int = Field(default=0, ge=0)
    """Declared bound on hostile rows; rows dropped as non-finite count against it."""

    def tolerated(self, rows: Rows) -> int:
        """The bound that remains once non-finite rows are gone: max(0, f - dropped)."""
        return max(0, self.f - len(rows.dropped))

    def require(self, rows: Rows, least: int, bound: str) -> None:
        """Raises `PreconditionError` with n and f unless at least `least` rows are there."""
        if len(rows) < least:
            raise PreconditionError(
                f"{self.name} needs {bound}: n={len(rows)}, f={self.tolerated(rows)}"
                + (f" after dropping {len(rows.dropped)} non-finite rows" if rows.dropped else "")
            )

    def require_majority(self, rows: Rows) -> int:
        """The tolerated f, once n > 2f holds."""
        f = self.tolerated(rows)
        self.require(rows, 2 * f + 1, f"n > 2f = {2 * f} rows")
        return f


class Rule(Bounded):
    """Aggregates rows into one vector."""

    @abstractmethod
    def apply(self, rows: Rows, state: State, context: Context) -> tuple[Tensor, State, Report]:
        """The aggregate (D,), the next state, and what counted how much.

        Never writes to its arguments and never returns a view of them. `rows` is not empty.
        """


class PreAggregator(Bounded):
    """Maps rows to rows before a rule."""

    @abstractmethod
    def apply(self, rows: Rows, state: State, context: Context) -> tuple[Rows, State, Report]:
        """The new rows (a new mix over the same pool), the next state, and what was done."""


class Detector(Stage):
    """Judges every row; `screen` detectors run before the rule, `audit` ones after it."""

    when: Literal["screen", "audit"] = "screen"
    alone: ClassVar[bool] = False
    """Whether it judges every row by itself, whatever the others are."""
    retraces: ClassVar[bool] = False
    """Whether it asks of each row if training from the global model could have caused it."""

    @property
    def traces(self) -> int:
        """Numbers of the sketches that it remembers rows by (`Rows.traces`); 0 for none."""
        return 0

    @abstractmethod
    def apply(
        self, rows: Rows, state: State, context: Context
    ) -> tuple[tuple[Verdict, ...], State]:
        """One verdict per row, in the rows' order, and the next state.

        All rows are judged before any is removed. Verdicts on rows dropped as non-finite may
        follow; without one such a row is rejected. Evidence stays, whatever the verdict: what is
        done about it is decided elsewhere, and `forget` follows where a client is barred.
        """

    def forget(self, state: State, clients: Collection[str]) -> State:
        """The state without the rows of clients that were barred: who comes back begins anew."""
        tensors, ids = dict(state.tensors), dict(state.ids)
        for name, held in state.ids.items():
            kept = [i for i, client in enumerate(held) if client not in clients]
            if len(kept) < len(held):
                tensors[name] = tensors[name][kept]
                ids[name] = tuple(held[i] for i in kept)
        return State(tensors, ids)
