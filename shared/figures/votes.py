"""Metrics of a vote: the fraction of predictions that stay correct whatever m hostile clients do.

The metrics follow from counts that clients report, so this module does not need torch.
"""

from collections.abc import Collection, Mapping

from rampart_fl.shared.figures.client_metrics import attack_success
from rampart_fl.shared.figures.run_result import VoteFigures
from rampart_fl.shared.protocol.counts import wrong_counts


def certified_curve(
    counts: Mapping[str, Mapping[str, float]], clients: Collection[str]
) -> list[float]:
    """Certified accuracy for m = 0, 1, 2, ... hostile clients; empty if there was no vote.

    Args:
        counts: for each client, its counts `test_samples`, `correct_vote`, `certified_01` and so
            on.
        clients: the honest clients, whose test samples are pooled. A client is ignored if its
            counts are impossible.

    >>> certified_curve({"a": {"test_samples": 4, "correct_vote": 3, "certified_01": 1}}, ["a"])
    [0.75, 0.25]
    """
    whole, correct = "test_samples", "correct_vote"
    known = [counts[c] for c in clients if {whole, correct} <= counts.get(c, {}).keys()]
    known = [one for one in known if not wrong_counts(one)]
    total = sum(one[whole] for one in known)
    if not total:
        return []
    levels = {name for one in known for name in one if name.startswith("certified_")}
    names = [correct, *sorted(levels)]
    return [sum(one.get(name, 0.0) for one in known) / total for name in names]


def vote_figures(
    counts: Mapping[str, Mapping[str, float]], clients: Collection[str]
) -> VoteFigures:
    """The metrics of a vote, for the summary of a run; empty if there was no vote.

    The metrics are `certified` and, if a backdoor is measured, `attack_success_vote`.

    >>> vote_figures({"a": {"test_samples": 2, "correct_vote": 1}}, ["a"]), vote_figures({}, ["a"])
    ({'certified': [0.5]}, {})
    """
    curve, fooled = certified_curve(counts, clients), attack_success(counts, clients, "vote")
    figures: VoteFigures = {"certified": curve} if curve else {}
    return figures if fooled is None else {**figures, "attack_success_vote": fooled}
