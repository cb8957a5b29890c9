"""Answers to the challenges of other clients: the statistic, its bets, and whom it compares.

Legend: J decoys, K numbers of a sketch, M rows.
"""

import math
from itertools import pairwise

import pytest
import torch

from rampart_fl.shared.robust import Rows
from rampart_fl.shared.robust.evidence import groups
from rampart_fl.shared.robust.evidence.relays import BETS, NOTHING, Relay, averaged, new_part
from rampart_fl.shared.robust.evidence.trials import TrialRecord
from rampart_fl.shared.robust.sketch import Traces

K = 32
DECOYS = 16


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_relay_equals_a_count_by_hand() -> None:
    # Orthogonal to the average (0, 1), the upload is (-1, 0). Its answers are 2, 3, -1, 2.
    asked_JK = torch.tensor([[2.0, 7.0], [3.0, 0.0], [-1.0, 4.0], [2.0, 0.0]])
    relay = Relay.of(torch.tensor([-1.0, 5.0]), torch.tensor([0.0, 1.0]), asked_JK)
    assert relay == Relay(above=3, below=3, count=4), "the tie counts on both sides"


@pytest.mark.parametrize("seed", range(20))
def test_relay_equals_a_slow_computation(seed: int) -> None:
    upload_K, average_K, asked_JK = draw(K, seed=seed), draw(K, seed=99), draw(9, K, seed=seed + 50)
    along = sum(u * a for u, a in zip(upload_K.tolist(), average_K.tolist(), strict=True))
    square = sum(a * a for a in average_K.tolist())
    new = [
        u - a * along / square for u, a in zip(upload_K.tolist(), average_K.tolist(), strict=True)
    ]
    answers = [-sum(x * y for x, y in zip(new, row, strict=True)) for row in asked_JK.tolist()]
    relay = Relay.of(upload_K, average_K, asked_JK)
    assert relay == Relay(
        above=sum(answer >= answers[0] for answer in answers),
        below=sum(answer <= answers[0] for answer in answers),
        count=9,
    )


@pytest.mark.parametrize("tied", [False, True])
def test_bets_gain_nothing_on_average_if_challenge_and_decoys_are_exchangeable(tied: bool) -> None:
    """Each of the answers is equally likely to be the answer to the challenge."""
    asked_JK = draw(1 + DECOYS, K)
    if tied:
        asked_JK[3:9] = asked_JK[3]
    gains = []
    for first in range(1 + DECOYS):
        relay = Relay.of(draw(K, seed=1), draw(K, seed=2), asked_JK.roll(-first, dims=0))
        assert relay is not None
        # Half of the wealth belongs to the bet that begins in round 1.
        gains.append([2 * won for won in relay.settled(NOTHING, 1, most=1e9)])
    means = torch.tensor(gains, dtype=torch.float64).mean(dim=0)
    assert bool((means <= 1 + 1e-12).all())
    assert tied or bool((means > 1 - 1e-12).all())


def test_bets_win_on_both_sides_and_are_capped() -> None:
    wealth = Relay(above=1, below=1 + DECOYS, count=1 + DECOYS).settled(NOTHING, 1, most=1e9)
    opposite = Relay(above=1 + DECOYS, below=1, count=1 + DECOYS).settled(NOTHING, 1, most=1e9)
    assert len(wealth) == 2 * len(BETS)
    assert all(high > 0.5 > low for high, low in zip(wealth[::2], wealth[1::2], strict=True))
    assert opposite == tuple(
        w for pair in zip(wealth[1::2], wealth[::2], strict=True) for w in pair
    )
    capped = Relay(above=1, below=17, count=17).settled((50.0,) * 4, 3, most=20.0)
    assert max(capped) == 20.0


def test_upload_without_a_new_part_gives_no_relay() -> None:
    asked_JK = draw(1 + DECOYS, K)
    assert Relay.of(torch.zeros(K), draw(K), asked_JK) is None
    assert Relay.of(draw(K), draw(K, seed=1), torch.zeros(1 + DECOYS, K)) is None
    assert Relay.of(torch.full((K,), torch.inf), draw(K), asked_JK) is None
    assert new_part(draw(K), torch.zeros(K)).tolist() == draw(K).double().tolist()


def test_average_forgets_earlier_uploads_and_ignores_uploads_that_are_not_finite() -> None:
    average_K = None
    for upload_K in (torch.ones(2), torch.tensor([torch.nan, 1.0]), torch.zeros(2)):
        average_K = averaged(average_K, upload_K)
    assert average_K is not None
    assert average_K.tolist() == pytest.approx([0.8, 0.8])


def round_of(
    uploading: str, known: dict[str, TrialRecord], selected: str, age: float = 0, round_: int = 4
) -> dict[str, Relay]:
    """The relays of a round in which these clients upload."""
    uploads_MK = torch.stack([draw(K, seed=ord(name)) for name in uploading])
    traces = Traces(uploads_MK, torch.zeros_like(uploads_MK))
    rows = Rows.of(
        uploads_MK, ids=list(uploading), metadata={"age": [age] * len(uploading)}, traces=traces
    )
    return groups.relays(known, rows, traces, frozenset(selected), round_)


def records() -> dict[str, TrialRecord]:
    """Clients a to e in one group and f in none; all but e are challenged."""
    known = {name: TrialRecord(9.0, (0.0,), group=name != "f", due_round=3) for name in "abcdef"}
    for name, one in known.items():
        one.average = draw(K, seed=ord(name) + 100)
        one.due_shift = draw(1 + DECOYS, K, seed=ord(name) + 200) if name != "e" else None
    return known


def test_upload_is_compared_with_the_challenges_of_selected_clients_of_its_group() -> None:
    known = records()
    relays = round_of("abcdef", known, "abcdf")
    assert sorted(relays) == ["a", "b", "c", "d", "e"], "f has no group"
    due = {name: one.due_shift for name, one in known.items() if one.due_shift is not None}
    upload_K, average_K = draw(K, seed=ord("a")), known["a"].average
    assert average_K is not None
    expected = Relay.of(upload_K, average_K, (due["b"].double() + due["c"] + due["d"]))
    assert relays["a"] == expected, "its own challenge does not count"
    assert round_of("abcdef", known, "ab")["a"] == Relay.of(upload_K, average_K, due["b"])
    assert "a" not in round_of("abcdef", known, "a"), "nobody else was selected"
    assert round_of("abcdef", known, "abcdf", age=1) == {}, "trained in an earlier round"
    assert round_of("abcdef", known, "abcdf", round_=5) == {}, "the round is an attempt after one"


def test_colluders_cannot_raise_evidence_by_withholding_uploads() -> None:
    """The comparison depends on the clients that the server selected, not on those that upload."""
    known = records()
    every = round_of("abcdef", known, "abcdf")["a"]
    for uploading in ("a", "ab", "acd"):
        assert round_of(uploading, known, "abcdf")["a"] == every


def test_groups_join_clients_over_several_rounds() -> None:
    known = {name: TrialRecord(9.0, (0.0,), trial=10) for name in "abcdefg"}
    rounds = [{"a": ["b"], "b": ["a"], "c": []}, {"d": ["e"], "e": ["d"]}, {"b": ["e"], "e": ["b"]}]
    for similar in rounds:
        groups.merge(known, similar)
    members = {name: groups.others_in_group(known, name) for name in known}
    assert members["a"] == ["b", "d", "e"] and members["c"] == [] == members["g"]
    assert all({one, *members[one]} == {"a", "b", "d", "e"} for one in "abde")
    groups.merge(known, {"f": ["g"], "g": ["f"]})
    assert groups.others_in_group(known, "f") == ["g"], "a new group, apart from the first"


def test_only_clients_on_trial_or_acquitted_have_a_group() -> None:
    known = {name: TrialRecord(9.0, (0.0,)) for name in "abc"}
    similar = {"a": ["b", "c"], "b": ["a", "c"], "c": ["a", "b"]}
    groups.merge(known, similar)
    assert [one.group for one in known.values()] == [0, 0, 0], "nobody is on trial"
    known["a"].trial, known["b"].rest = 10, 20
    groups.merge(known, similar)
    assert [one.group for one in known.values()] == [1, 1, 0], "c sent its first copy"
    known["a"].trial = 0
    groups.merge(known, {"a": [], "b": [], "c": []})
    assert [one.group for one in known.values()] == [0, 1, 0], "the trial of a has ended"


def test_evidence_combines_own_answers_and_relays() -> None:
    one = TrialRecord(9.0, (3.0,), rounds=1, relayed=(7.0,) * 4, compared=1)
    own, relayed = 3.0 + 1 / 2, 7.0 + 1 / 2
    assert one.evidence == pytest.approx(math.log((own + relayed) / 2))
    levels = [TrialRecord(9.0, (w,), rounds=1, relayed=(w,) * 4, compared=1) for w in (0, 1, 2)]
    assert all(low.evidence < high.evidence for low, high in pairwise(levels))
