"""Evidence by betting: by hand, against the written-out definition, and against its level."""

import math
import random
from statistics import NormalDist

import numpy as np
import pytest

from rampart_fl.shared.robust.evidence.betting import Bet, evidence, limit


def written_out(objections: list[bool], p: float, q: float) -> float:
    """The e-value by its definition: a separate term for every start of a bet."""
    gains = [q / p if objected else (1 - q) / (1 - p) for objected in objections]
    t = len(gains)
    begun = sum(math.prod(gains[j - 1 :]) / (j * (j + 1)) for j in range(1, t + 1))
    return begun + 1 / (t + 1)


def gathered(objections: list[bool], *bets: Bet) -> float:
    """The evidence of these bets after these rounds."""
    wealth = [0.0] * len(bets)
    for number, objected in enumerate(objections, start=1):
        wealth = [
            bet.settled(one, number, bet.gain(objected))
            for bet, one in zip(bets, wealth, strict=True)
        ]
    return evidence(wealth, len(objections))


def test_evidence_of_two_objections_matches_hand_computation() -> None:
    """p = 1/4, q = 1/2: gains 2 and 2. 1/2·4 + 1/6·2 + 1/3 = 8/3."""
    assert gathered([True, True], Bet(0.25, 0.5)) == pytest.approx(math.log(8 / 3))


@pytest.mark.parametrize("seed", range(5))
def test_recursion_equals_the_sum_over_all_starts(seed: int) -> None:
    draws = random.Random(seed)
    objections = [draws.random() < 0.4 for _ in range(30)]
    expected = math.log(written_out(objections, 0.1, 0.5))
    assert gathered(objections, Bet(0.1, 0.5)) == pytest.approx(expected)
    both = [written_out(objections, 0.1, q) for q in (0.5, 0.9)]
    bets = [Bet(0.1, q) for q in (0.5, 0.9)]
    assert gathered(objections, *bets) == pytest.approx(math.log(sum(both) / 2))


def test_bets_on_several_shares_detect_faint_and_blatant_attackers() -> None:
    """A third of the rounds, or all of them: no single share is best for both."""
    shares = [Bet(0.1, q) for q in (0.3, 0.9)]
    faint, blatant = [t % 3 == 0 for t in range(60)], [True] * 8
    assert gathered(faint, *shares) > gathered(faint, shares[1]) + 5
    assert gathered(blatant, *shares) > gathered(blatant, shares[0]) + 5


def test_gains_of_three_ranks_match_hand_computation() -> None:
    """p = Φ(-1) and q = 1/2, so θ = 1; z = Φ^-1(1/6), 0 and Φ^-1(5/6) = ±0.96742."""
    bet = Bet(NormalDist().cdf(-1), 0.5)
    mean = (math.exp(0.9674215661) + 1 + math.exp(-0.9674215661)) / 3
    for rank, shift in ((1, 0.9674215661), (2, 0.0), (3, -0.9674215661)):
        assert bet.gain_at(rank, 3) == pytest.approx(math.exp(shift) / mean)
    assert bet.gain_at(1, 1) == 1, "a rank among one answer tells nothing"


@pytest.mark.parametrize(("share", "count"), [(0.35, 9), (0.6, 40), (0.9, 40)])
def test_gains_of_ranks_average_to_one_and_decrease(share: float, count: int) -> None:
    gains = [Bet(0.15, share).gain_at(rank, count) for rank in range(1, count + 1)]
    assert math.fsum(gains) / count == pytest.approx(1)
    assert gains == sorted(gains, reverse=True)


def test_bets_on_ranks_grow_faster_than_bets_on_objections() -> None:
    """Answers one or two standard deviations low; the lowest 15 % of 40 draw an objection."""
    draws = np.random.default_rng(3)
    for shift, share in ((-1.0, 0.35), (-2.0, 0.6)):
        bet, ranked, objected = Bet(0.15, share), 0.0, 0.0
        for _ in range(2_000):
            rank = 1 + int((draws.normal(size=39) <= draws.normal(shift)).sum())
            ranked += math.log(bet.gain_at(rank, 40))
            objected += math.log(bet.gain(rank <= 6))
        assert ranked > 1.2 * objected > 0


def test_expected_e_value_is_one_at_the_tolerated_objection_rate() -> None:
    """Over all 2^8 courses of eight rounds, weighted by their probability."""
    p, total = 0.1, 0.0
    for course in range(2**8):
        objections = [bool(course >> t & 1) for t in range(8)]
        chance = math.prod(p if objected else 1 - p for objected in objections)
        total += chance * math.exp(gathered(objections, Bet(p, 0.5)))
    assert total == pytest.approx(1)


def test_client_that_turns_hostile_late_is_detected() -> None:
    bet = Bet(0.1, 0.5)
    late = gathered([False] * 50 + [True] * 12, bet)
    assert late > limit(1e-3, 0, 20)
    assert late > math.log(math.prod([5 / 9] * 50 + [5] * 12)) + 10


def test_shares_of_the_level_sum_to_less_than_the_level() -> None:
    draws, joined, spent = random.Random(1), 0, 0.0
    for _ in range(200):
        together = draws.randint(1, 9)
        spent += together * math.exp(-limit(0.01, joined, together))
        joined += together
    assert 0.009 < spent < 0.01


@pytest.mark.parametrize("level", [0.1, 0.01])
def test_false_evictions_stay_below_the_level(level: float) -> None:
    """Ten clients, 60 rounds, objections as likely as tolerated; the long run is a benchmark."""
    runs, clients, bet = 4000, 10, Bet(0.1, 0.5)
    draws = np.random.default_rng(7)
    wealth, evicted = np.zeros((runs, clients)), np.zeros(runs, dtype=bool)
    high = math.exp(limit(level, 0, clients))
    for number in range(1, 61):
        objected = draws.random((runs, clients)) < bet.p
        gains = np.where(objected, bet.q / bet.p, (1 - bet.q) / (1 - bet.p))
        wealth = (wealth + 1 / (number * (number + 1))) * gains
        evicted |= (wealth + 1 / (number + 1) > high).any(axis=1)
    assert evicted.mean() <= level
