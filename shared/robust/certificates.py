"""Computes, for each sample, how many hostile clients a majority vote can tolerate.

Legend: T samples, C classes, V voters.
"""

from math import comb

import torch
from torch import Tensor


def winners(votes_TC: Tensor) -> Tensor:
    """For each sample (T,), the label with the most votes; a tie goes to the smaller label.

    >>> winners(torch.tensor([[6, 3, 1], [4, 4, 5], [2, 2, 0]]))
    tensor([0, 2, 0])
    """
    return votes_TC.argmax(dim=1)


def radii(votes_TC: Tensor) -> Tensor:
    """For each sample (T,), the largest m* such that m* hostile clients cannot change the winner.

    Let N_z be the number of votes for class z, and y the winner. Let [z < y] be 1 if z < y, and 0
    otherwise. Then m* = ⌊(N_y - max_{z≠y} (N_z + [z < y])) / 2⌋. The voters are disjoint groups of
    clients, so every hostile client can change only one vote. One changed vote changes a lead by at
    most 2, even if some voters abstain.

    Args:
        votes_TC: number of votes for each class, as integers.

    >>> radii(torch.tensor([[6, 3, 1], [4, 0, 5], [0, 0, 7]]))
    tensor([1, 0, 3])

    Source: FLCert, theorem 1.
    """
    lead_T = _lead(votes_TC.long(), ties=True)
    return torch.div(lead_T, 2, rounding_mode="floor")


def _lead(votes_TC: Tensor, ties: bool) -> Tensor:
    """For each sample (T,), the winner's lead over the strongest rival.

    If `ties` is set, each rival that would win a tie gets one additional vote.
    """
    winner_T1 = winners(votes_TC).unsqueeze(1)
    rivals_TC = votes_TC.clone()
    if ties:
        rivals_TC += (torch.arange(votes_TC.shape[1], device=votes_TC.device) < winner_T1).long()
    rivals_TC.scatter_(1, winner_T1, torch.iinfo(torch.long).min // 2)
    return votes_TC.gather(1, winner_T1).squeeze(1) - rivals_TC.max(dim=1).values


def threshold(hostile: int, clients: int, size: int) -> float:
    """The largest lead that m hostile clients can reverse if subsets of clients vote.

    A lead is a share of the votes. Let m of n clients be hostile. The result is twice the fraction
    of subsets of size k that contain a hostile client: 2 (1 - C(n-m, k) / C(n, k)).

    >>> [round(threshold(m, 50, 5), 3) for m in (1, 2, 3)]
    [0.2, 0.384, 0.552]

    Source: FLCert, theorem 2.
    """
    return 2 * (1 - comb(clients - hostile, size) / comb(clients, size))


def doubt(error: float, classes: int) -> float:
    """The largest probability that `subset_radii` overestimates the radius of a sample.

    The result is `error` for two classes, and (1 + 2/C) `error` for C > 2 classes.

    Over all subsets of k clients, let a be the class with the largest share of the votes, and b the
    class with the second-largest share. A radius is too large only if one of two bounds is wrong:
    the lower bound on the winner's share, or the upper bound on the largest share of another class.
    This other class is b if a wins, and a otherwise. Any class can win, so C lower bounds and two
    upper bounds matter. Each of these C + 2 bounds is wrong with probability at most `error` / C.
    For two classes, a lower bound is wrong if and only if the other class's upper bound is wrong.

    >>> [round(doubt(0.001, classes), 5) for classes in (2, 4, 10)]
    [0.001, 0.0015, 0.0012]
    """
    return error if classes <= 2 else (1 + 2 / classes) * error


def subset_radii(votes_TC: Tensor, clients: int, size: int, error: float = 0.0) -> Tensor:
    """For each sample (T,), the largest m* such that m* hostile clients cannot change the winner.

    The voters are subsets of k clients: either all subsets of k clients, or some of them, drawn at
    random. Let y be the winner, and p_z the share of votes for class z. The result m* is the
    largest m for which p_y - p_z is above `threshold(m)` for every z ≠ y. m* is -1 if the drawn
    subsets leave the winner uncertain even without hostile clients (m = 0).

    Args:
        votes_TC: number of votes for each class; the model of each subset has one vote.
        clients: n, the number of clients.
        size: k, the number of clients in a subset.
        error: determines how often the bounds below may be wrong. If all subsets of k clients
            voted, `error` is 0, because the shares p are then known exactly. If the voters were
            drawn at random, the share of all subsets that vote for a class is not known. For each
            class, the function computes a lower and an upper Clopper-Pearson bound on this share.
            Each bound is wrong with probability at most `error` / C. The radius of a sample is too
            large with probability at most `doubt(error, C)`.

    >>> subset_radii(torch.tensor([[3, 0], [2, 1]]), clients=3, size=1)
    tensor([1, 0])
    """
    votes_TC = votes_TC.long()
    m = torch.full((len(votes_TC),), -1, dtype=torch.long)
    if error:
        lead_T = _sure_lead(votes_TC.cpu(), error)
        beyond = [threshold(hostile, clients, size) for hostile in range(clients - size + 2)]
    else:
        lead_T = _lead(votes_TC, ties=False).cpu()
        every = comb(clients, size)
        # Leads are compared as integers, so that rounding cannot affect the result.
        beyond = [
            2 * (every - comb(clients - hostile, size)) for hostile in range(clients - size + 2)
        ]
        m = torch.where(lead_T == 0, 0, m)  # Without attackers, the winner of a tie is certain.
    for hostile, least in enumerate(beyond):
        m = torch.where(lead_T > least, hostile, m)
    return m


def _sure_lead(votes_TC: Tensor, error: float) -> Tensor:
    """Lower bounds (T,) on winners' leads; wrong with probability at most `doubt(error, C)`."""
    from scipy.stats import beta

    share = error / votes_TC.shape[1]
    total_T1 = votes_TC.sum(dim=1, keepdim=True)
    winner_T1 = winners(votes_TC).unsqueeze(1)
    lower_TC = torch.from_numpy(beta.ppf(share, votes_TC, total_T1 - votes_TC + 1)).nan_to_num(0)
    upper_TC = torch.from_numpy(beta.ppf(1 - share, votes_TC + 1, total_T1 - votes_TC)).nan_to_num(
        1
    )
    rivals_TC = upper_TC.scatter(1, winner_T1, -1.0)
    return lower_TC.gather(1, winner_T1).squeeze(1) - rivals_TC.max(dim=1).values


def certified_counts(correct_T: Tensor, radii_T: Tensor, most: int) -> list[int]:
    """How many samples are still predicted correctly with 0, 1, ..., `most` hostile clients.

    >>> certified_counts(torch.tensor([True, True, False]), torch.tensor([0, 2, 5]), most=2)
    [2, 1, 1]
    """
    return [int((correct_T & (radii_T >= m)).sum()) for m in range(most + 1)]
