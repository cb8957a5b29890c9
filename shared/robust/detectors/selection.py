"""Selection: rejects the clients to which a robust rule gives little or no weight."""

from typing import Literal

from pydantic import Field

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.robust.base import Context, Detector, Rows, State, Verdict
from rampart_fl.shared.robust.detectors import detectors, verdict_for
from rampart_fl.shared.robust.rules import WrappedRule


@detectors.register("selection")
class Selection(Detector):
    """Rejects every client whose weight in a rule's result is at most `threshold` times 1/n.

    The rule may be any rule whose result is linear in the rows; the detector's state includes the
    rule's state. The score is n times the row's weight, where n is the number of rows. The score is
    1 if the row has the same weight as in an unweighted mean, and 0 if the rule leaves the row out.
    """

    paper = "a rule's own selection, such as Blanchard et al., 2017 (Multi-Krum)"
    breakdown = "none: if colluders get selected, honest clients are evicted instead"
    complexity = "that of its rule"
    passes = "as many as its rule"
    f: int = Field(default=0, ge=0)
    """Declared bound on the number of hostile rows; the rule gets the same bound."""
    rule: WrappedRule = Field(default="multi_krum")  # type: ignore[assignment]  # built from it
    """The rule, given by its name, as a dictionary (a TOML table), or as a `Rule` object."""
    threshold: float = Field(default=0.0, ge=0)
    """Largest weight at which a client is rejected, in units of the uniform weight 1/n."""
    decision: Literal["rejected", "evicted"] = "rejected"
    """What the detector asks for if a client's weight is at most the threshold."""

    def init(self, dim: int) -> State:
        return self.rule.init(dim)

    def apply(
        self, rows: Rows, state: State, context: Context
    ) -> tuple[tuple[Verdict, ...], State]:
        _, state, report = self.rule.apply(rows, state, context)
        if "weight" not in report.per_row:
            raise ConfigurationError(
                f"selection needs a rule that yields weights, not {self.rule.name!r}"
            )
        scores = {client: len(rows) * w for client, w in report.column("weight").items()}
        return tuple(map(self._judge, scores, scores.values())), state

    def _judge(self, client: str, score: float) -> Verdict:
        out = score <= self.threshold
        return verdict_for(
            self,
            client,
            score,
            self.threshold,
            self.decision if out else None,
            f"{self.rule.name} gives it {{0}} of a uniform weight, "
            + ("at most {1}" if out else "more than {1}"),
        )
