"""The charts of a run's report: accuracy, evidence, verdicts and norms over rounds."""

from collections import Counter
from collections.abc import Sequence
from statistics import median

from rampart_fl.services.console.html_report.charts import Band, Line, legend, line_chart, matrix
from rampart_fl.services.console.html_report.markup import Html, section, tag
from rampart_fl.services.console.stored_run import FinishedRun
from rampart_fl.shared.protocol.messages import RoundFacts

MODELS = {
    "customized": ("model received", "one"),
    "local": ("after local training", "two"),
    "personalized": ("personal model", "three"),
}
"""Label and CSS class of each model that clients evaluate."""
SHOWN = 60
"""Maximum number of clients in a chart or a matrix."""
DECISIONS = {
    "accepted": "accepted",
    "rejected": "rejected",
    "abstained": "abstained: the bound on evictions was reached",
    "quarantined": "quarantined or proposed",
    "evicted": "evicted",
    "away": "in quarantine",
    "out": "after an eviction",
    "late": "update too late",
    "absent": "no update",
}
"""The meaning of each colour in the matrix of verdicts, keyed by CSS class."""


def accuracy_chart(run: FinishedRun) -> Html:
    """The accuracy (or error) of each model over rounds, on the honest clients' test samples."""
    sections: list[Html] = []
    marks = {float(n): f"{v.client} {v.decision}" for n, v in run.barrings}
    at = [float(record.round) for record in run.records]
    for measure in ("accuracy", "error"):
        lines = [
            Line(name, run.curves[f"{measure}_{kind}"], style)
            for kind, (name, style) in MODELS.items()
            if f"{measure}_{kind}" in run.curves
        ]
        if lines:
            bounds = (0.0, 1.0) if measure == "accuracy" else None
            label = f"{measure} of the honest clients over rounds"
            sections += [
                line_chart(
                    label, at, lines, marks=marks, bounds=bounds, percent=bounds is not None
                ),
                legend([(line.style, line.name) for line in lines]),
            ]
    about = (
        "Measured on the test samples of all honest clients; only each client's newest "
        "measurement counts. Dashed vertical lines mark rounds in which clients were barred."
    )
    if not sections:
        return section("Accuracy over rounds", tag("p", "No client reported measurements."))
    return section("Accuracy over rounds", tag("p", about, class_="note"), sections)


def evidence_charts(run: FinishedRun) -> list[Html]:
    """A chart for each detector: the clients' scores and the detector's threshold."""
    detectors = dict.fromkeys(v.detector for record in run.records for v in record.verdicts)
    return [one for detector in detectors if (one := _evidence_of(run, detector))]


def _evidence_of(run: FinishedRun, detector: str) -> Html:
    scores: dict[str, list[float | None]] = {}
    limits: list[float | None] = []
    for number, record in enumerate(run.records):
        verdicts = [v for v in record.verdicts if v.detector == detector]
        for verdict in verdicts:
            line = scores.setdefault(verdict.client, [None] * len(run.records))
            line[number] = verdict.score
        thresholds = [v.threshold for v in verdicts if v.threshold is not None]
        limits.append(median(thresholds) if thresholds else None)
    known = [limit for limit in limits if limit is not None]
    if not known or all(v is None for line in scores.values() for v in line):
        return Html()
    barred = {verdict.client for _, verdict in run.barrings}
    shown = sorted(scores, key=lambda client: (client not in barred, _order(scores[client])))
    lines = [
        Line(client, scores[client], "barred" if client in barred else "others")
        for client in reversed(shown[:SHOWN])
    ]
    values = [v for line in lines for v in line.values if v is not None]
    edge = 3 * max(abs(limit) for limit in known)
    bounds = max(min(*values, 0.0), -edge), min(max(*values, *known), edge)
    about = ["The score that the detector compared with its threshold, for each client and round."]
    if min(values) < bounds[0] or max(values) > bounds[1]:
        about.append("Values beyond the axis are drawn at its edge.")
    if len(shown) > SHOWN:
        about.append(
            f"{SHOWN} of {len(shown)} clients: the barred clients, and then the clients with the "
            "highest scores."
        )
    keys = [("limit", "limit"), ("barred", "barred clients"), ("others", "other clients")]
    return section(
        f"Evidence of {detector}",
        tag("p", " ".join(about), class_="note"),
        line_chart(
            f"evidence of {detector} by client over rounds",
            [float(record.round) for record in run.records],
            [*lines, Line("limit", limits, "limit")],
            bounds=bounds,
        ),
        legend(keys if barred else [keys[0], keys[2]]),
    )


def _order(line: Sequence[float | None]) -> float:
    return -max((value for value in line if value is not None), default=0.0)


def verdict_matrix(run: FinishedRun) -> Html:
    """Draws the decision on every client in every round."""
    by_round = [decided_in(record) for record in run.records]
    counts = {
        client: Counter(decided[client] for decided in by_round if client in decided)
        for client in run_clients(run)
    }
    order = sorted(counts, key=lambda client: (-_weight(counts[client]), client))
    rows = [(c, _line([decided.get(c, "") for decided in by_round])) for c in order[:SHOWN]]
    used = {decision for _, row in rows for decision in row}
    keys = [(style, name) for style, name in DECISIONS.items() if style in used]
    about = "Clients with the most serious decisions are at the top."
    if len(order) > SHOWN:
        about += f" {SHOWN} of {len(order)} clients; the table of clients has all of them."
    rounds = [record.round for record in run.records]
    label = "decision on every client in every round"
    return section(
        "Verdicts",
        tag("p", about, class_="note"),
        matrix(label, rounds, rows),
        legend(keys),
    )


def _line(decisions: Sequence[str]) -> list[str]:
    """One client's row of the matrix; after an eviction, rounds without a decision become "out".

    >>> _line(["accepted", "evicted", "", "accepted", ""])
    ['accepted', 'evicted', 'out', 'accepted', '']
    """
    line, out = list[str](), False
    for decision in decisions:
        out = decision == "evicted" or (out and not decision)
        line.append(decision or ("out" if out else ""))
    return line


def decided_in(record: RoundFacts) -> dict[str, str]:
    """Each client's entry for a round: the decision, "away" (in quarantine), "late" or "absent"."""
    away = dict.fromkeys(record.quarantined, "away")
    missing = dict.fromkeys(record.missing, "absent") | dict.fromkeys(record.late, "late")
    return away | missing | {v.client: v.decision for v in record.verdicts}


def _weight(counts: Counter[str]) -> int:
    barred = counts["evicted"] * 1000 + counts["proposed"] * 100 + counts["quarantined"] * 100
    return barred + counts["rejected"] + counts["abstained"]


def run_clients(run: FinishedRun) -> list[str]:
    """All clients of a run: first the run's members, then clients that are only in the records."""
    seen = (client for record in run.records for client in record.participants)
    clients = (v.client for record in run.records for v in record.verdicts)
    return list(dict.fromkeys([*run.slots, *seen, *clients]))


def norm_chart(run: FinishedRun) -> Html:
    """Draws the median norm of updates with a band around it, and the norms of barred clients."""
    middles: list[float | None] = []
    low: list[float | None] = []
    high: list[float | None] = []
    for record in run.records:
        norms = list(record.norms.values())
        middle = median(norms) if norms else None
        spread = median(abs(n - middle) for n in norms) if middle is not None else None
        middles.append(middle)
        low.append(None if middle is None or spread is None else max(middle - 3 * spread, 0.0))
        high.append(None if middle is None or spread is None else middle + 3 * spread)
    known = [value for value in high if value is not None]
    if not known:
        return section("Norms of updates", tag("p", "The records have no norms."))
    barred = dict.fromkeys(verdict.client for _, verdict in run.barrings)
    lines = [
        Line(client, [record.norms.get(client) for record in run.records], "barred")
        for client in list(barred)[:SHOWN]
    ]
    keys = [("one", "median of all clients, and three median absolute deviations around it")]
    keys += [("barred", "clients that were barred")] if barred else []
    largest = max((v for line in lines for v in line.values if v is not None), default=0.0)
    edge = 4 * max(known)
    about = "Norms of the calibrated updates."
    about += " Values beyond the axis are drawn at its edge." if largest > edge else ""
    return section(
        "Norms of updates",
        tag("p", about, class_="note"),
        line_chart(
            "norms of updates over rounds",
            [float(record.round) for record in run.records],
            [*lines, Line("median", middles, "one")],
            bands=[Band(low, high)],
            bounds=(0.0, min(max(largest, *known), edge)),
        ),
        legend(keys),
    )
