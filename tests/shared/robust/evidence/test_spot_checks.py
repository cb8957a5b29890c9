"""Which clients the detector `response` spot-checks."""

from dataclasses import dataclass, field
from math import inf, nan

import pytest
import torch

from rampart_fl.shared.robust import Context
from rampart_fl.shared.robust.evidence.spot_checks import SpotChecks, chosen

ROUND = 5


@dataclass
class Client:
    """A client whose uploads oppose those of others."""

    agreement: float = -0.1
    compared: int = 3
    credit: float = 0.0
    last_round: int = ROUND
    length: float = 1.0
    suspected: bool = False
    evidence: float = 0.0
    checks: SpotChecks = field(init=False)

    def __post_init__(self) -> None:
        self.checks = SpotChecks(self.agreement, self.compared, self.credit, self.last_round)


def checked(known: dict[str, Client], fraction: float = 1.0, buffered: bool = False) -> list[str]:
    context = Context(round=ROUND, buffered=buffered)
    return chosen(known, fraction, longest=10.0, context=context, name="response")


@pytest.mark.parametrize(
    ("client", "expected"),
    [
        (Client(), True),
        (Client(agreement=-0.03), True),
        (Client(agreement=-0.01), False),
        (Client(agreement=0.5), False),
        (Client(compared=2), False),
        (Client(credit=1.9), True),
        (Client(credit=2.0), False),
        (Client(last_round=ROUND - 1), False),
        (Client(length=10.0), True),
        (Client(length=11.0), False),
        (Client(suspected=True), False),
    ],
)
def test_only_clients_that_oppose_others_and_lack_credit_are_checked(
    client: Client, expected: bool
) -> None:
    assert checked({"a": client}) == ["a"] * expected


def test_nobody_is_checked_under_the_buffered_policy_or_without_spot_checks() -> None:
    assert checked({"a": Client()}, buffered=True) == []
    assert checked({"a": Client()}, fraction=0.0) == []


def test_number_of_checks_is_a_fraction_of_the_present_clients_rounded_up() -> None:
    known = {f"c{i:02d}": Client(agreement=-0.1 if i < 8 else 0.1) for i in range(20)}
    known |= {f"gone-{i}": Client(last_round=ROUND - 1) for i in range(80)}
    for fraction, count in ((0.05, 1), (0.1, 2), (0.11, 3), (1.0, 8)):
        assert len(checked(known, fraction)) == count


def test_clients_with_the_most_evidence_come_first_and_ties_are_random() -> None:
    known = {f"c{i:02d}": Client() for i in range(20)}
    known["c07"].evidence = 0.5
    first, second = set[str](), set[str]()
    for round_ in range(20):
        for client in known.values():
            client.checks.last_round = round_
        picked = chosen(known, 0.1, 10.0, Context(round=round_), "response")
        first.add(picked[0])
        second.add(picked[1])
    assert first == {"c07"}
    assert len(second) > 8


def test_average_agreement_matches_an_independent_sum() -> None:
    checks = SpotChecks()
    for agreement in (0.5, -0.2, 0.0, nan, -inf, 0.1):
        checks.uploaded(agreement)
    assert checks.agreement == pytest.approx(0.8 * 0.8 * 0.5 - 0.8 * 0.2 * 0.2 + 0.2 * 0.1)
    assert checks.compared == 3


def test_clients_that_reverse_updates_rarely_get_credit() -> None:
    """Answers are normal; a shift of -1 makes 42 % of them low, and 2 % of them clear."""

    draws = torch.Generator().manual_seed(3)
    cleared = dict.fromkeys((-1.0, -0.5, 1.0), 0)
    for shift in cleared:
        for answers in (torch.randn(200, 40, generator=draws) + shift).tolist():
            checks = SpotChecks(-0.1, 3)
            for answer in answers:
                checks.answered(clear=answer > 1.036, low=answer < -1.036)
                if not checks.needed:
                    cleared[shift] += 1
                    break
    assert cleared[-1.0] == 0
    assert cleared[-0.5] <= 20
    assert cleared[1.0] == 200
