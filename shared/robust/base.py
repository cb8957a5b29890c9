"""The basic types of robust aggregation: state, reports, verdicts and the stages of a pipeline.

This module also exports `Rows` and `Context`, so the author of a stage needs no other import.

Legend of shape suffixes: M rows that a stage sees, D coordinates.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, TypeVar, get_args

from pydantic import Field
from torch import Tensor

from rampart_fl.shared.errors import ConfigurationError, TooFewRows
from rampart_fl.shared.experiment.eviction import Decision as Decision
from rampart_fl.shared.experiment.eviction import RequestedDecision as RequestedDecision
from rampart_fl.shared.families.registry import FamilyMember
from rampart_fl.shared.robust.context import Context as Context
from rampart_fl.shared.robust.context import Need
from rampart_fl.shared.robust.rows import Rows as Rows
from rampart_fl.shared.robust.view import CHUNK as CHUNK
from rampart_fl.shared.runtime.disk_block import Block, MappedFile

Outcome = TypeVar("Outcome")


@dataclass(frozen=True, eq=False)
class State:
    """What a stage keeps between rounds: named tensors, and the client ids of their rows.

    Args:
        tensors: the tensors, keyed by name.
        ids: the client ids of a tensor's rows, keyed by the tensor's name. Only tensors with one
            row per client have an entry in `ids`.
        vectors: names of the tensors (..., D) whose last dimension contains the coordinates. If
            processes (ranks) divide the coordinates among themselves, each rank has only the
            values at its own coordinates.
        files: the files of the tensors that are not in memory, keyed by the tensor's name.
    """

    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    ids: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    vectors: frozenset[str] = frozenset()
    files: Mapping[str, MappedFile] = field(default_factory=dict, repr=False)

    def block(self, name: str) -> Block:
        """A tensor, together with its file if the tensor is stored in a file."""
        return Block(self.tensors[name], self.files.get(name))

    def by_id(self, name: str) -> dict[str, Tensor]:
        """The rows of a per-client tensor, keyed by client id; empty before the first round."""
        if name not in self.tensors:
            return {}
        return dict(zip(self.ids[name], self.tensors[name], strict=True))


@dataclass(frozen=True, eq=False)
class Report:
    """What one stage did: values for each row that it received, and overall values.

    Args:
        stage: the stage's name.
        ids: the ids of the rows that the stage received.
        per_row: columns (M,), keyed by name. The column "weight" contains a row's coefficient in
            the result, if the result is linear in the rows. The column "score" contains the number
            by which the stage ranked the row.
        values: overall values of the stage, keyed by name.
    """

    stage: str
    ids: tuple[str, ...] = ()
    per_row: Mapping[str, Tensor] = field(default_factory=dict)
    values: Mapping[str, float | int | str] = field(default_factory=dict)

    def column(self, name: str) -> dict[str, float]:
        """The values of one column of `per_row`, keyed by client id."""
        return dict(zip(self.ids, self.per_row[name].tolist(), strict=True))


@dataclass(frozen=True)
class Verdict:
    """A detector's request or the server's decision about one client in one round, with the reason.

    A detector asks for `accepted`, `rejected` (leave the row out of this round) or `evicted` (bar
    the client for good; an operator may reinstate it). `rampart_fl.shared.robust.eviction` turns a
    detector's request into the final decision. The request follows from comparing `score` with
    `threshold`.
    """

    client: str
    decision: Decision
    detector: str
    score: float
    threshold: float
    reason: str
    evidence: float = 0.0
    """Evidence accumulated over rounds; 0 if the detector accumulates no evidence."""
    asked: RequestedDecision | None = None
    """The decision that the detector asked for, if the final decision is different."""


class Stage(FamilyMember, ABC):
    """A step of a pipeline; `init` creates the initial state, and `apply` is a pure function."""

    breakdown: ClassVar[str] = ""
    """For the catalogue: how many hostile rows the stage tolerates, such as "f < n/2". The value
    "none" means that one row can move the result anywhere. The value "inherited" means that this
    number depends on the stages around this stage."""
    complexity: ClassVar[str] = ""
    """For the catalogue: the cost for n rows and d coordinates."""
    passes: ClassVar[str] = ""
    """For the catalogue: how many times the stage reads all rows of a pool that is stored in a
    file. A stage that cannot use a pool from a file states the reason after "in memory only: "."""
    remembers: ClassVar[bool] = False
    """Whether the stage keeps a row of d coordinates for each client from round to round."""
    kept_vectors: ClassVar[int] = 0
    """Number of vectors of d coordinates that the stage keeps from round to round, for all clients
    together."""
    streams: ClassVar[bool] = True
    """Whether the stage can process a pool from a file without loading the whole pool into
    memory."""

    def needs(self) -> frozenset[Need]:
        """What the stage needs from its context, besides the round, the seed and the reference.

        The result includes the needs of all stages that are fields of this stage.
        """
        parts = (getattr(self, key) for key in type(self).model_fields)
        return frozenset[Need]().union(*(p.needs() for p in parts if isinstance(p, Stage)))

    def unstreamed(self) -> "tuple[Stage, ...]":
        """The stages with `streams = False`: this stage, and stages in its fields."""
        parts = (getattr(self, key) for key in type(self).model_fields)
        inner = tuple(stage for p in parts if isinstance(p, Stage) for stage in p.unstreamed())
        return inner if self.streams else (self, *inner)

    @property
    def memory_reason(self) -> str:
        """Why the stage needs the whole pool in memory; "" if the stage can read it from a file."""
        prefix, _, reason = self.passes.partition("in memory only: ")
        return "" if prefix else reason

    @property
    def divides(self) -> bool:
        """Whether processes (ranks) can share the stage's work, each with some coordinates."""
        return self.streams

    def history_rows(self, clients: int) -> int:
        """The largest size of the stage's history during a round, in rows of d coordinates.

        A stage returns a new state, and does not change the old one. The rows of both states are
        therefore in memory at the same time. The result includes the histories of stages that are
        values of this stage's fields.

        Args:
            clients: the number of different clients that may take part over all rounds.
        """
        parts = (getattr(self, key) for key in type(self).model_fields)
        inner = sum(p.history_rows(clients) for p in parts if isinstance(p, Stage))
        return inner + 2 * clients * self.remembers

    def undivided(self) -> tuple[str, ...]:
        """Names of the stages that ranks cannot split: this stage, and stages in its fields."""
        parts = (getattr(self, key) for key in type(self).model_fields)
        inner = tuple(name for p in parts if isinstance(p, Stage) for name in p.undivided())
        return inner if self.divides else (self.name, *inner)

    def init(self, dim: int) -> State:
        """The state before the first round, for updates of `dim` coordinates."""
        del dim
        return State()


class ToleratesF(Stage):
    """A stage that tolerates up to `f` hostile rows."""

    f: int = Field(default=0, ge=0)
    """Declared bound on the number of hostile rows. Rows that are not finite are left out, and
    count as hostile rows. Detectors may leave too few rows for a result with this bound. In this
    case, some of the clients that are left out or barred also count as hostile rows, but only as
    many as necessary. Barred clients are evicted, in quarantine or proposed for eviction."""

    def tolerated(self, rows: Rows) -> int:
        """The bound on hostile rows among the remaining rows: max(0, f - dropped)."""
        return max(0, self.f - len(rows.dropped))

    def require(self, rows: Rows, least: int, bound: str) -> None:
        """Raises `TooFewRows` with n and f if there are fewer than `least` rows."""
        if len(rows) < least:
            raise TooFewRows(
                f"{self.name} needs {bound}: n={len(rows)}, f={self.tolerated(rows)}"
                + (f" after leaving out {len(rows.dropped)}" if rows.dropped else "")
            )

    def require_majority(self, rows: Rows) -> int:
        """Checks that there are more than 2f rows; returns f, which `tolerated` computes."""
        f = self.tolerated(rows)
        self.require(rows, 2 * f + 1, f"n > 2f = {2 * f} rows")
        return f


def with_tolerable_f(
    apply: Callable[[Rows], Outcome], rows: Rows, left_out: Sequence[str]
) -> Outcome:
    """Applies stages to rows; lowers the stages' bound f if there are too few rows for this bound.

    Args:
        apply: callback that applies the stages.
        rows: the rows that remain.
        left_out: clients that detectors left out of this round, and clients that are barred. As few
            of these clients as possible count as hostile rows, because honest clients may be among
            them.
    Raises:
        TooFewRows: there are too few rows even if all these clients count as hostile.
    """
    for client in left_out:
        try:
            return apply(rows)
        except TooFewRows:
            rows = replace(rows, dropped=(*rows.dropped, client))
    return apply(rows)


class Rule(ToleratesF):
    """Aggregates rows into one vector."""

    affine: ClassVar[bool] = False
    """Whether the result also contains results of earlier rounds, in addition to the rows."""

    @abstractmethod
    def apply(self, rows: Rows, state: State, context: Context) -> tuple[Tensor, State, Report]:
        """The aggregate (D,), the next state, and a report with the weight of each row.

        The method never writes to its arguments and never returns a view of an argument. `rows` is
        never empty.
        """


class PreAggregator(ToleratesF):
    """Maps rows to new rows, which a rule then aggregates."""

    @abstractmethod
    def apply(self, rows: Rows, state: State, context: Context) -> tuple[Rows, State, Report]:
        """The new rows (combinations of the pool's rows), the next state, and a report."""


class Detector(Stage):
    """Judges every row; `screen` detectors run before the rule, `audit` detectors after it."""

    when: Literal["screen", "audit"] = "screen"
    alone: ClassVar[bool] = False
    """Whether the verdict on each row depends on this row alone, and not on other clients' rows. If
    no row of a round is finite, only detectors with `alone = True` run."""
    retraces: ClassVar[bool] = False
    """Whether the detector checks that each row could come from training the global model."""

    @property
    def traces(self) -> int:
        """Size of the sketches (`Rows.traces`) that the detector keeps; 0 if it keeps none."""
        return 0

    @abstractmethod
    def apply(
        self, rows: Rows, state: State, context: Context
    ) -> tuple[tuple[Verdict, ...], State]:
        """One verdict per row, in the rows' order, and the next state.

        A detector gets all finite rows, including those that other detectors reject. It can also
        judge rows that are not finite (`rows.dropped`). If no detector judges a row that is not
        finite, the row is rejected. A detector that asks for an eviction keeps the client's
        evidence in the state, because the final decision may be different. The engine calls
        `forget` when a client is barred.
        """

    def judge(
        self, rows: Rows, state: State, context: Context
    ) -> tuple[tuple[Verdict, ...], State]:
        """Calls `apply`, and checks that each row has one verdict.

        Raises:
            ConfigurationError: a row does not have exactly one verdict, a verdict is about a client
                that sent no row, or the detector asks for a decision that it is not allowed to
                make.
        """
        with self.own_errors():
            verdicts, state = self.apply(rows, state, context)
        judged = {verdict.client for verdict in verdicts}
        if len(judged) < len(verdicts) or not {*rows.ids} <= judged <= {*rows.ids, *rows.dropped}:
            raise ConfigurationError(
                f"detector {self.origin} must give one verdict per row: it gave {len(verdicts)} "
                f"verdicts for {len(rows)} rows"
            )
        for verdict in verdicts:
            if verdict.decision not in get_args(RequestedDecision):
                raise ConfigurationError(
                    f"detector {self.origin} may ask for {', '.join(get_args(RequestedDecision))}, "
                    f"not for {verdict.decision!r}"
                )
        return tuple(verdicts), state

    def history_rows(self, clients: int) -> int:
        # While `forget` copies the next state, the old state is also still in memory.
        return super().history_rows(clients) + clients * self.remembers

    def forget(self, state: State, clients: Collection[str]) -> State:
        """The state without the rows of barred clients; a client that returns starts without a
        row."""
        tensors, ids, files = dict(state.tensors), dict(state.ids), dict(state.files)
        for name, held in state.ids.items():
            kept = [i for i, client in enumerate(held) if client not in clients]
            if len(kept) < len(held):
                block = state.block(name).select(kept)
                tensors[name] = block.tensor
                ids[name] = tuple(held[i] for i in kept)
                files.pop(name, None)
                if block.file is not None:
                    files[name] = block.file
        return State(tensors, ids, state.vectors, files)
