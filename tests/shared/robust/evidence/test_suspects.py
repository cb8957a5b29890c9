"""Which clients the detector `response` challenges and awaits."""

from math import exp, log

import pytest
import torch

from rampart_fl.shared.robust import Context, Rows
from rampart_fl.shared.robust.customizers import Customization
from rampart_fl.shared.robust.evidence import suspects
from rampart_fl.shared.robust.evidence.answers import Answer
from rampart_fl.shared.robust.evidence.client_memory import CALM, ClientMemory
from rampart_fl.shared.robust.evidence.objections import CohortLimits, Upload
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
        known, rows, Customization(), torch.zeros(40), "response", Context(), 8.0, 39, SIZE
    )
    assert customization.awaited == ({"a"} if awaited else set())
    assert customization.challenged.keys() == ({"a"} if challenged else set())


def test_spot_checked_clients_are_challenged_and_awaited() -> None:
    known = {"a": remembered(0.0), "b": remembered(0.0)}
    rows = Rows.of(torch.randn(4, 40, generator=torch.Generator().manual_seed(1)))
    for given, expected in ((rows, {"a"}), (Rows.of(rows.block_ND[:2]), set())):
        customization = suspects.challenge(
            known,
            given,
            Customization(),
            torch.zeros(40),
            "response",
            Context(),
            8.0,
            39,
            SIZE,
            "a",
        )
        assert customization.challenged.keys() == customization.awaited == expected


@pytest.mark.parametrize(
    ("suspected", "boldness"), [(True, [2.0, 1.0, 2.0]), (False, [1.0, 0.5, 1.0])]
)
def test_challenges_grow_only_for_suspects(suspected: bool, boldness: list[float]) -> None:
    """The second upload is too long, so the next challenge is half as large."""
    usual = CohortLimits(1.0, 10.0, (True,), -0.1, overshoot=2.0, stretched=3.0, chance=0.15)
    one, low = remembered(0.0), Answer(correlation=-0.1, strength=-0.1, rank=1, count=40)
    reached = []
    for times in (1.0, 11.0, 1.0):
        upload = Upload(times, (None,), "challenged", passive=False, answer=low)
        suspects.learn(one, upload, usual, suspected)
        reached.append(one.boldness)
        one.calm = CALM
    assert reached == boldness
    assert one.checks.credit == -3.0
