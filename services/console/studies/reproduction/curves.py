"""The curves of a run: its metrics after every round."""

from collections.abc import Mapping
from math import isfinite
from statistics import fmean

from rampart_fl.shared.figures.client_metrics import (
    KINDS,
    accuracy,
    attack_success,
    best_accuracy,
    error_figures,
    largest_gap,
    newer,
    sides,
)
from rampart_fl.shared.figures.final import server_accuracy
from rampart_fl.shared.protocol.messages import RoundRecord
from rampart_fl.shared.simulation import SimulationResult

Curves = dict[str, list[float | None]]
SIDES = ("honest", "hostile")


def curves(result: SimulationResult) -> Curves:
    """Metrics after every round, keyed by name; metrics that the run lacks are left out.

    The server measures `accuracy_server`. The honest clients measure the other accuracies, `error`,
    `attack_success` and `largest_gap`. Metrics whose names end in `_honest` or `_hostile` describe
    the honest or the hostile clients. The metric `norm_honest`, for example, is the mean norm of
    the honest clients' updates. A metric `entropy_...` is the mean entropy of the clients' models
    on public samples, and `weight_...` is the clients' share of the aggregate.
    """
    both = sides(result.experiment)
    lines: Curves = {}
    newest_of = newer(record.metrics for record in result.records)
    for newest, record in zip(newest_of, result.records, strict=True):
        shares = {kind: accuracy(newest, both[0], kind) for kind in KINDS}
        best, kind = best_accuracy(shares)
        now: dict[str, float | None] = {
            "accuracy": best,
            **{f"accuracy_{kind}": share for kind, share in shares.items()},
            "attack_success": attack_success(newest, both[0], kind),
            "error": error_figures(newest, both[0]).get("error"),
            "accuracy_server": server_accuracy([record.tested]).get("accuracy_server"),
            "largest_gap": largest_gap(newest, both[0]).get("largest_gap"),
        }
        for side, clients in zip(SIDES, both, strict=True):
            now |= {f"{name}_{side}": value for name, value in of_side(record, clients).items()}
        for name, value in now.items():
            lines.setdefault(name, []).append(value if value is None else round(value, 4))
    return {name: line for name, line in lines.items() if any(v is not None for v in line)}


def of_side(record: RoundRecord, clients: list[str]) -> dict[str, float | None]:
    """Mean update norm, mean entropy and total weight of the given clients in a round."""
    measured = (one.per_row["entropy"] for one in record.reports if "entropy" in one.per_row)
    entropies = {name: value for name, value in next(measured, {}).items() if value is not None}
    weights = [record.weights[client] for client in clients if client in record.weights]
    return {
        "norm": _mean(record.norms, clients),
        "entropy": _mean(entropies, clients),
        "weight": sum(weights) if record.weights else None,
    }


def _mean(values: Mapping[str, float], clients: list[str]) -> float | None:
    """The mean of the clients' finite values; None if no client has a finite value."""
    known = [values[client] for client in clients if isfinite(values.get(client, float("nan")))]
    return fmean(known) if known else None
