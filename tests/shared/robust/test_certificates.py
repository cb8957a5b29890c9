"""Certificates of votes: worked examples, and every attack on tiny federations."""

from itertools import combinations, product
from math import comb

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rampart_fl.shared.robust.certificates import (
    _sure_lead,
    certified_counts,
    doubt,
    radii,
    subset_radii,
    threshold,
    winners,
)


def winner(votes: list[int]) -> int:
    """The reference implementation: the first class with the most votes."""
    return votes.index(max(votes))


def counts(ballot: tuple[int, ...], classes: int) -> list[int]:
    return [ballot.count(c) for c in range(classes)]


def test_radii_and_winners_of_worked_examples() -> None:
    assert radii(torch.tensor([[6, 3, 1]])).tolist() == [1]
    assert radii(torch.tensor([[4, 0, 5]])).tolist() == [0]
    assert winners(torch.tensor([[4, 0, 5]])).tolist() == [2]


@pytest.mark.parametrize("voters", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("classes", [2, 3])
def test_radius_of_disjoint_groups_equals_brute_force_over_changed_votes(
    voters: int, classes: int
) -> None:
    for ballot in product(range(classes), repeat=voters):
        before = winner(counts(ballot, classes))
        safe = 0
        for m in range(1, voters + 1):
            if any(
                winner(counts(tuple(turned), classes)) != before
                for places in combinations(range(voters), m)
                for answers in product(range(classes), repeat=m)
                if (turned := list(ballot))
                and [turned.__setitem__(p, a) for p, a in zip(places, answers, strict=True)]
            ):
                break
            safe = m
        votes = torch.tensor([counts(ballot, classes)])
        if safe < voters:  # If all votes may change without effect, only one class exists.
            assert radii(votes).tolist() == [safe], ballot


@given(st.lists(st.integers(0, 9), min_size=2, max_size=6))
def test_certificate_holds_if_hostile_clients_win_over_abstaining_groups(
    votes: list[int],
) -> None:
    m, y = int(radii(torch.tensor([votes]))), winner(votes)
    for z in range(len(votes)):
        changed = [*votes]
        changed[z] += m  # m groups without clients get hostile clients.
        assert winner(changed) == y


def test_thresholds_of_random_subsets_equal_known_values() -> None:
    assert [threshold(m, 50, 5) for m in (1, 2, 3)] == pytest.approx([0.2, 0.384, 0.552], abs=5e-4)


@pytest.mark.parametrize(("clients", "size"), [(3, 1), (4, 2), (4, 3), (5, 2)])
def test_radius_of_all_subsets_never_exceeds_brute_force(clients: int, size: int) -> None:
    draws = torch.Generator().manual_seed(1)
    subsets = list(combinations(range(clients), size))
    for _ in range(60):
        ballot = torch.randint(0, 2, (len(subsets),), generator=draws)
        ballot = (ballot * torch.randint(0, 2, ballot.shape, generator=draws)).tolist()
        y = winner(counts(tuple(ballot), 2))
        safe = -1
        for m in range(clients + 1):
            # With two classes, the worst attack flips all subsets with a hostile client.
            worst = [
                [1 - y if set(s) & set(bad) else v for s, v in zip(subsets, ballot, strict=True)]
                for bad in combinations(range(clients), m)
            ]
            if any(winner(counts(tuple(votes), 2)) != y for votes in worst):
                break
            safe = m
        radius = int(subset_radii(torch.tensor([counts(tuple(ballot), 2)]), clients, size))
        assert 0 <= radius <= safe


def test_unanimous_subsets_get_the_largest_valid_radius() -> None:
    n, k = 6, 2
    every = comb(n, k)
    m = int(subset_radii(torch.tensor([[every, 0, 0]]), n, k))
    assert every > 2 * (every - comb(n - m, k))
    assert every <= 2 * (every - comb(n - m - 1, k))


def test_sampled_subsets_certify_less_and_abstain_if_uncertain() -> None:
    votes = torch.tensor([[60, 0], [0, 60], [31, 29]])
    sure = subset_radii(votes, 50, 5, error=0.001)
    assert sure.tolist()[2] == -1
    assert sure[0] == sure[1] > 0
    assert (sure <= subset_radii(votes * comb(50, 5) // 60, 50, 5)).all()
    careful = subset_radii(votes, 50, 5, error=1e-9)
    assert (careful <= sure).all()


@pytest.mark.slow
def test_certificates_of_sampled_subsets_respect_the_error_rate() -> None:
    # The true share is 0.8; the certified lead may exceed the true lead in at most 5% of the draws.
    draws, wrong, runs = torch.Generator().manual_seed(3), 0, 400
    true = 0.8 - 0.2
    levels = [threshold(m, 40, 2) for m in range(40)]
    allowed = max(m for m, level in enumerate(levels) if true > level)
    for _ in range(runs):
        first = int((torch.rand(50, generator=draws) < 0.8).sum())
        radius = int(subset_radii(torch.tensor([[first, 50 - first]]), 40, 2, error=0.05))
        wrong += radius > allowed
    assert wrong <= 0.05 * runs


def test_certified_counts_include_only_correct_predictions() -> None:
    right = torch.tensor([True, False, True, True])
    assert certified_counts(right, torch.tensor([0, 9, 2, -1]), 3) == [2, 1, 1, 0]


@pytest.mark.parametrize(("classes", "voters"), [(2, 40), (3, 20), (4, 12)])
def test_exact_probability_of_a_wrong_lead_is_at_most_the_doubt(classes: int, voters: int) -> None:
    """All outcomes of a draw are enumerated, for many true shares."""
    counts_OC = [
        (*some, voters - sum(some))
        for some in product(range(voters + 1), repeat=classes - 1)
        if sum(some) <= voters
    ]
    votes_OC = torch.tensor(counts_OC)
    leads_O, first_O1 = _sure_lead(votes_OC, 0.1), winners(votes_OC)[:, None]
    draws, likeliest = torch.Generator().manual_seed(1), 0.0
    for turn in range(100):
        share_C = torch.rand(classes, generator=draws, dtype=torch.float64) ** (1 + turn % 4)
        share_C /= share_C.sum()
        rivals_OC = share_C.expand(len(votes_OC), -1).scatter(1, first_O1, -1.0)
        true_O = share_C[first_O1[:, 0]] - rivals_OC.max(dim=1).values
        law = torch.distributions.Multinomial(voters, share_C, validate_args=False)
        wrong_O = (leads_O > true_O) & (leads_O > 0)
        likeliest = max(likeliest, float(law.log_prob(votes_OC.double()).exp()[wrong_O].sum()))
    assert 0.01 < likeliest <= doubt(0.1, classes)
