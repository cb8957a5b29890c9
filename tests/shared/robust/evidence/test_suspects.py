"""Which clients the detector `response` challenges and awaits."""

from math import exp, log

import pytest
import torch

from rampart_fl.shared.robust import Context, Rows
from rampart_fl.shared.robust.customizers import Customization
from rampart_fl.shared.robust.evidence import suspects
from rampart_fl.shared.robust.evidence.client_memory import ClientMemory
from rampart_fl.shared.robust.evidence.responses import ClientAverages

SIZE = 64


def remembered(suspicion: float) -> ClientMemory:
    """A client against which the suspicion has this value after one round."""
    won = exp(suspicion) - 1 / 2  # Half of the first wealth has not been bet yet.
    past = ClientAverages((won,))
    return ClientMemory(9.0, (past,), answered=(0.0,), exceeded=(0.0,), rounds=1, length=1.0)


@pytest.mark.parametrize(
    ("suspicion", "awaited", "challenged"),
    [(log(3) - 0.01, False, False), (log(3) + 0.01, True, False), (log(20) + 0.01, True, True)],
)
def test_clients_are_awaited_before_they_are_challenged(
    suspicion: float, awaited: bool, challenged: bool
) -> None:
    known = {"a": remembered(suspicion), "b": remembered(0.0)}
    rows = Rows.of(torch.randn(4, 40, generator=torch.Generator().manual_seed(1)))
    assert known["a"].suspicion == pytest.approx(suspicion)
    customization = suspects.challenge(
        known, rows, Customization(), torch.zeros(40), "response", Context(), 8.0, 39, SIZE, 0.1
    )
    assert customization.awaited == ({"a"} if awaited else set())
    assert customization.challenged.keys() == ({"a"} if challenged else set())


def checked(known: dict[str, ClientMemory], share: float, context: Context) -> set[str]:
    """The clients that are challenged."""
    rows = Rows.of(torch.randn(4, 40, generator=torch.Generator().manual_seed(1)))
    customization = suspects.challenge(
        known, rows, Customization(), torch.zeros(40), "response", context, 8.0, 39, SIZE, share
    )
    return set(customization.challenged)


def opposed(agreement: float, rounds: int = 3, evidence: float = 0.0) -> ClientMemory:
    """A client with this average agreement, and this evidence after one challenge."""
    one = remembered(0.0)
    one.rounds, one.agreement = rounds, agreement
    if evidence:
        one.trials, won = 1, exp(evidence) - 1 / 2
        one.answered = one.exceeded = (won,)
        assert one.evidence == pytest.approx(evidence)
    return one


def test_clients_that_oppose_others_are_spot_checked_until_they_have_answered() -> None:
    known = {
        "agrees": opposed(0.1),
        "opposes": opposed(-0.1),
        "newcomer": opposed(-0.1, rounds=2),
        "answered once": opposed(-0.1, evidence=-0.6),
    }
    assert checked(known, 1.0, Context()) == {"opposes", "answered once"}
    known["opposes"].trials = 2  # Two challenges without a won bet: the evidence is ln(1 / 3).
    assert checked(known, 1.0, Context()) == {"answered once"}
    assert checked(known, 0.0, Context()) == set()
    assert checked(known, 1.0, Context(buffered=True)) == set()


def test_clients_with_the_most_evidence_are_spot_checked_first() -> None:
    known = {f"c{i:02d}": opposed(-0.1) for i in range(20)}
    known["c07"] = opposed(-0.1, evidence=0.5)
    chosen = [checked(known, 0.1, Context(round=round_)) for round_ in range(20)]
    assert all(len(clients) == 2 and "c07" in clients for clients in chosen)
    assert len(set().union(*chosen)) > 8, "ties are broken at random"


def test_average_agreement_matches_an_independent_sum() -> None:
    one = remembered(0.0)
    for agreement in (0.5, -0.2, 0.1):
        one.agreed(agreement)
    assert one.agreement == pytest.approx(0.8 * 0.8 * 0.5 - 0.8 * 0.2 * 0.2 + 0.2 * 0.1)
