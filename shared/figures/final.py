"""The final metrics of a federation, from the clients' measurements and the evictions.

Only the program that started an experiment knows which clients are hostile. The final metrics are
therefore computed by programs that start experiments: the simulator, the console and benchmarks.
This module needs no torch.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from statistics import fmean
from typing import cast

from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.figures.client_metrics import (
    KINDS,
    MetricsByClient,
    accuracies,
    accuracy,
    accuracy_figures,
    attack_success,
    best_accuracy,
    error_figures,
    largest_gap,
    latest,
    sides,
)
from rampart_fl.shared.figures.run_result import (
    AccuracySource,
    AttackSuccess,
    Costs,
    Decisions,
    Detection,
    FinalFigures,
    ServerAccuracy,
)
from rampart_fl.shared.protocol.messages import RoundRecord

TARGETS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
"""Target accuracies. A run reports the number of rounds until each target was first reached."""


def detection(
    honest: Collection[str], hostile: Collection[str], evicted: Collection[str]
) -> Detection:
    """The accuracy, false positive rate and false negative rate of evictions.

    A client whose decision is "quarantined", "proposed" or "rejected" is not treated as evicted.

    >>> detection(["a", "b", "c"], ["x"], ["x", "a"])
    {'dacc': 0.75, 'fpr': 0.3333333333333333, 'fnr': 0.0}
    """
    wrong = len(set(honest) & set(evicted))
    missed = len(set(hostile) - set(evicted))
    return {
        "dacc": 1 - (wrong + missed) / (len(honest) + len(hostile)) if hostile else None,
        "fpr": wrong / len(honest) if honest else None,
        "fnr": missed / len(hostile) if hostile else None,
    }


def server_accuracy(
    tested: Iterable[Mapping[str, float]], accuracy_of: AccuracySource = "last"
) -> ServerAccuracy:
    """The global model's accuracy on the server's test samples; empty if there are no such samples.

    >>> server_accuracy([{"test_samples": 4, "correct_customized": 3}, {}])
    {'accuracy_server': 0.75}
    """
    shares = [accuracy({"server": one}, ["server"], "customized") for one in tested]
    last = final_accuracy(shares, accuracy_of)
    return {} if last is None else {"accuracy_server": last}


def final_accuracy(values: Sequence[float | None], which: AccuracySource) -> float | None:
    """The final accuracy of a run, given its rounds' accuracies; None if no accuracy is known.

    >>> final_accuracy([None, 0.25, 0.75, 0.5], "mean5"), final_accuracy([0.5, 0.75, 0.25], "best")
    (0.5, 0.75)
    """
    known = [value for value in values if value is not None]
    if not known:
        return None
    ends = {"last": known[-1], "end": known[-1], "mean5": fmean(known[-5:]), "best": max(known)}
    return ends[which]


def rounds_to(values: Sequence[float | None], target: float) -> int | None:
    """The number of rounds until the target was first reached; None if it was never reached.

    >>> rounds_to([0.5, 0.75, 0.9, 0.7], 0.75), rounds_to([0.5], 0.75)
    (2, None)
    """
    reached = (n for n, value in enumerate(values, 1) if value is not None and value >= target)
    return next(reached, None)


def final_figures(
    experiment: Experiment,
    rounds: Sequence[MetricsByClient],
    evicted: Collection[str],
    accuracy_of: AccuracySource = "last",
    evaluations: Mapping[str, Mapping[str, float]] = {},
    tested: Iterable[Mapping[str, float]] = (),
) -> FinalFigures:
    """The final metrics of a run; for a kind of model that no client has, the accuracy is None.

    All metrics of clients are computed from each client's newest measurement. The newest
    measurement of an evicted honest client belongs to the last model that the client received.
    `attack_success` is measured at the end of the run, whatever `accuracy_of` is.
    `rounds_to_accuracy` has a key for each accuracy in `TARGETS`. The values of
    `rounds_to_accuracy` are computed from the accuracies of all rounds, whatever `accuracy_of` is.

    Args:
        experiment: the experiment, which defines the roles of the clients.
        rounds: the metrics of every round in order, each keyed by client.
        evicted: the clients that are evicted at the end.
        accuracy_of: the source of the final accuracies; see `AccuracySource`.
        evaluations: the clients' metrics of the models that the last aggregation produced; used
            if `accuracy_of` is "end".
        tested: the server's counts on its own test samples, for every round in order.
    """
    count = len(rounds)
    rounds = [*rounds, evaluations] if accuracy_of == "end" else rounds
    honest, hostile = sides(experiment)
    curve = accuracies(experiment, rounds)
    shares = {kind: final_accuracy([one[kind] for one in curve], accuracy_of) for kind in KINDS}
    each = [best_accuracy(one)[0] for one in curve[:count]]
    newest = latest(rounds)
    fooled = {kind: attack_success(newest, honest, kind) for kind in KINDS}
    known = {f"attack_success_{kind}": one for kind, one in fooled.items() if one is not None}
    return {
        **error_figures(newest, honest),
        **accuracy_figures(shares),
        "rounds_to_accuracy": {str(target): rounds_to(each, target) for target in TARGETS},
        "attack_success": fooled[best_accuracy(shares)[1]],
        **cast(AttackSuccess, known),
        **largest_gap(newest, honest),
        **detection(honest, hostile, evicted),
        "evicted": sorted(evicted),
        **server_accuracy(tested, accuracy_of),
    }


def decisions(experiment: Experiment, records: Sequence[RoundRecord]) -> Decisions:
    """The number of client-rounds with each decision, separately for honest and hostile clients.

    A client-round is a pair of a client and a round. If a client was already in quarantine before
    the round's result was computed, the client-round counts as "away". `silenced` is the fraction
    of client-rounds in which the client's row was not accepted, separately for honest and hostile
    clients. The client-rounds that count as "away" are included in `silenced`. Rows that a round
    only examines do not count.

    Args:
        experiment: the experiment, which defines the roles of the clients.
        records: the records of all rounds.
    """
    counts: dict[str, dict[str, int]] = {}
    silenced: dict[str, float | None] = {}
    for side, names in zip(("honest", "hostile"), sides(experiment), strict=True):
        clients = set(names)
        verdicts = Counter(
            verdict.decision
            for record in records
            for verdict in record.verdicts
            if verdict.client in clients.difference(record.examined)
        )
        away = sum(client in clients for record in records for client in record.quarantined)
        counts[side] = {**dict(sorted(verdicts.items())), "away": away}
        total = sum(counts[side].values())
        silenced[side] = 1 - verdicts["accepted"] / total if total else None
    return {"decisions": counts, "silenced": silenced}


def costs(records: Sequence[RoundRecord]) -> Costs:
    """The costs of rounds: bytes per client and round, and seconds per round for each step.

    Args:
        records: the records of all rounds; records without sizes or times are ignored.
    """
    steps = dict.fromkeys(step for record in records for step in record.timings)
    down = [size for record in records for size in record.bytes_down.values()]
    up = [size for record in records for size in record.bytes_up.values()]
    timed = [record.timings for record in records if record.timings]
    return {
        "bytes_per_client": {
            "down": fmean(down) if down else None,
            "up": fmean(up) if up else None,
        },
        "seconds_per_round": {
            step: round(sum(one.get(step, 0.0) for one in timed) / len(timed), 6) for step in steps
        },
    }
