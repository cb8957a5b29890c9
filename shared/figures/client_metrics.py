"""The metrics of clients after each round, from the clients' own measurements.

Accuracies and rates are fractions from 0 to 1. This module needs no torch.
"""

from collections.abc import Iterable, Iterator, Mapping
from math import inf
from typing import get_args

from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.figures.run_result import Accuracies, Errors, LargestGap, ModelKind

KINDS: tuple[ModelKind, ...] = get_args(ModelKind)
MetricsByClient = Mapping[str, Mapping[str, float]]
"""The measurements of a round, keyed by client."""


def latest(records: Iterable[MetricsByClient]) -> dict[str, dict[str, float]]:
    """Each client's newest metrics, from the metrics of all rounds in order.

    >>> latest([{"a": {"loss": 2.0}, "b": {"loss": 3.0}}, {"a": {"loss": 1.0}}])
    {'a': {'loss': 1.0}, 'b': {'loss': 3.0}}
    """
    newest: dict[str, dict[str, float]] = {}
    for after in newer(records):
        newest = after
    return newest


def newer(records: Iterable[MetricsByClient]) -> Iterator[dict[str, dict[str, float]]]:
    """Yields each client's newest metrics after every round."""
    newest: dict[str, dict[str, float]] = {}
    for record in records:
        own = {client: {**newest.get(client, {}), **metrics} for client, metrics in record.items()}
        newest = {**newest, **own}
        yield newest


def accuracy(metrics: MetricsByClient, clients: Iterable[str], kind: str) -> float | None:
    """The fraction of the given clients' test samples that are classified correctly.

    The result is None if the clients have no model of this kind.

    >>> accuracy({"a": {"test_samples": 4, "correct_local": 3}}, ["a"], "local")
    0.75
    """
    return _share(metrics, clients, f"correct_{kind}", "test_samples")


def errors(metrics: MetricsByClient, clients: Iterable[str]) -> dict[ModelKind, float | None]:
    """Mean squared error over the given clients' test samples, keyed by kind of model.

    The result is empty if the task is classification.

    >>> errors({"a": {"test_samples": 2, "error_local": 3.0, "error_customized": 5.0}}, ["a"])
    {'customized': 2.5, 'local': 1.5, 'personalized': None}
    """
    names = list(clients)
    each = {kind: _share(metrics, names, f"error_{kind}", "test_samples", inf) for kind in KINDS}
    return {} if all(error is None for error in each.values()) else each


def error_figures(metrics: MetricsByClient, clients: Iterable[str]) -> Errors:
    """The errors of the given clients, as a part of a run's result.

    >>> error_figures({"a": {"test_samples": 2, "error_local": 3.0, "error_customized": 5.0}}, "a")
    {'error': 2.5, 'error_customized': 2.5, 'error_local': 1.5, 'error_personalized': None}
    """
    each = errors(metrics, clients)
    if not each:
        return {}
    received_and_own = (each["customized"], each["personalized"])
    return {
        "error": min((error for error in received_and_own if error is not None), default=None),
        "error_customized": each["customized"],
        "error_local": each["local"],
        "error_personalized": each["personalized"],
    }


def attack_success(metrics: MetricsByClient, clients: Iterable[str], kind: str) -> float | None:
    """The fraction of the clients' triggered test samples that a model classifies as the target.

    Samples of the target class itself are left out. The result is None if there is no trigger.

    >>> attack_success({"a": {"triggered_samples": 4, "fooled_local": 1}}, ["a"], "local")
    0.25
    """
    return _share(metrics, clients, f"fooled_{kind}", "triggered_samples")


def largest_gap(metrics: MetricsByClient, clients: Iterable[str]) -> LargestGap:
    """The largest decrease of any client's training loss during local training.

    A large gap means that the received model fits the client's data poorly. The result is empty if
    no client measured a gap.

    >>> largest_gap({"a": {"loss_gap": 0.5}, "b": {"loss_gap": 0.75}, "x": {}}, ["a", "b", "x"])
    {'largest_gap': 0.75}
    """
    gaps = [metrics[c]["loss_gap"] for c in clients if "loss_gap" in metrics.get(c, {})]
    return {"largest_gap": max(gaps)} if gaps else {}


def _share(
    metrics: MetricsByClient,
    clients: Iterable[str],
    part: str,
    whole: str,
    most: float = 1.0,
) -> float | None:
    """The sum of the clients' counts `part`, divided by the sum of their counts `whole`.

    A client is ignored if its `part` is above `most` times its `whole`. The aggregator checks the
    counts in each report. However, `part` and `whole` may come from two different reports, and
    older versions did not check counts.
    """
    known = (metrics[c] for c in clients if {part, whole} <= metrics.get(c, {}).keys())
    counted = [one for one in known if 0 <= one[part] <= most * one[whole]]
    total = sum(one[whole] for one in counted)
    return sum(one[part] for one in counted) / total if total else None


def accuracies(
    experiment: Experiment, rounds: Iterable[MetricsByClient]
) -> list[dict[ModelKind, float | None]]:
    """The honest clients' accuracy after every round, keyed by kind of model.

    Each accuracy is computed over the test samples of all honest clients, from each client's newest
    measurement. If a client was not selected or is evicted, the client's newest measurement is from
    an earlier round.
    """
    honest, _ = sides(experiment)
    return [{kind: accuracy(newest, honest, kind) for kind in KINDS} for newest in newer(rounds)]


def sides(experiment: Experiment) -> tuple[list[str], list[str]]:
    """The names of the honest and the hostile clients, as two lists ordered by slot."""
    pairs = list(zip(experiment.client_names, experiment.roles, strict=True))
    return [c for c, role in pairs if role is None], [c for c, role in pairs if role is not None]


def best_accuracy(values: Mapping[ModelKind, float | None]) -> tuple[float | None, ModelKind]:
    """The higher of the customized and the personalized accuracy, and the kind of its model.

    >>> best_accuracy({"customized": 0.5, "local": 1.0, "personalized": None})
    (0.5, 'customized')
    """
    kinds: tuple[ModelKind, ...] = ("customized", "personalized")
    known = [(share, kind) for kind in kinds if (share := values[kind]) is not None]
    return max(known, key=lambda one: one[0], default=(None, "customized"))


def accuracy_figures(values: Mapping[ModelKind, float | None]) -> Accuracies:
    """The accuracies of all kinds of model, as a part of a run's result."""
    return {
        "accuracy": best_accuracy(values)[0],
        "accuracy_customized": values["customized"],
        "accuracy_local": values["local"],
        "accuracy_personalized": values["personalized"],
    }
