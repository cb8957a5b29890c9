"""The report of one run."""

import time
from collections import Counter
from statistics import median
from typing import Any

from rampart_fl.services.console.display.formats import percent
from rampart_fl.services.console.html_report.markup import Html, section, table, tag
from rampart_fl.services.console.html_report.page import code, facts, page, tiles
from rampart_fl.services.console.html_report.run_charts import (
    MODELS,
    accuracy_chart,
    decided_in,
    evidence_charts,
    norm_chart,
    run_clients,
    verdict_matrix,
)
from rampart_fl.services.console.stored_run import EXPERIMENT, MODELS_DIGESTS, FinishedRun
from rampart_fl.shared.figures.duration import seconds_of
from rampart_fl.shared.protocol.messages import VerdictRecord


def run_report(run: FinishedRun) -> str:
    """The report of a run as an HTML file."""
    experiment = run.experiment
    about = experiment.description or "A federated learning run."
    return page(
        "Run",
        experiment.name,
        about,
        [
            _summary(run),
            _what_ran(run),
            _evictions(run),
            accuracy_chart(run),
            *evidence_charts(run),
            verdict_matrix(run),
            norm_chart(run),
            _clients(run),
            _rounds(run),
            section("The experiment", tag("pre", _toml(run))),
        ],
    )


def _summary(run: FinishedRun) -> Html:
    figures, failed = run.figures, sum(record.status == "failed" for record in run.records)
    shown: dict[str, Any] = {}
    for kind, (name, _) in MODELS.items():
        for measure in ("accuracy", "error"):
            curve = run.curves.get(f"{measure}_{kind}")
            value = figures.get(f"{measure}_{kind}", curve and curve[-1])
            if value is not None:
                text = percent(value) if measure == "accuracy" else f"{value:.4g}"
                shown[f"{measure.capitalize()}, {name}"] = text
    shown["Evicted"] = f"{len(run.evicted)} of {len(run.slots)}"
    shown["Rounds"] = f"{len(run.records)}, {failed} failed" if failed else len(run.records)
    if figures.get("dacc") is not None:
        shown["Judged correctly"] = percent(figures["dacc"])
        shown["Honest evicted"] = percent(figures["fpr"])
        shown["Attackers not evicted"] = percent(figures["fnr"])
    if figures.get("attack_success") is not None:
        shown["Attack success"] = percent(figures["attack_success"])
    warnings = dict.fromkeys(warning for record in run.records for warning in record.warnings)
    if not figures:
        missing = "The folder has no final metrics: the run was interrupted, or is still running."
        warnings = {missing: None, **warnings}
    return tag("section", tiles(shown), [tag("p", one, class_="warning") for one in warnings])


def _what_ran(run: FinishedRun) -> Html:
    experiment, provenance, digest = run.experiment, run.provenance, run.experiment.digest()
    recorded = run.figures.get("experiment_digest", provenance.get("experiment_digest"))
    same = "as in the results" if recorded == digest else f"but the results name {recorded}"
    server = experiment.server
    rows = {
        "Run": provenance.get("run"),
        "Submitted by": provenance.get("submitted_by"),
        "Rounds": f"{experiment.rounds}, policy {experiment.policy}, seed {experiment.seed}",
        "Clients": _clients_of(run),
        "Data": f"{_member(experiment.data.dataset)}, {_member(experiment.data.partition)}",
        "Model": _member(experiment.model),
        "Personalizer": _member(experiment.personalizer),
        "Rule": ", ".join(map(_member, server.rule)),
        "Detectors": ", ".join(map(_member, server.detectors)) or "none",
        "Customizer": _member(server.customizer),
        "Eviction": f"mode {server.eviction.mode}, by {server.eviction.by}",
        "Began": _moment(min((r.opened_at for r in run.records if r.opened_at), default=0.0)),
        "Ended": _moment(max((r.closed_at for r in run.records), default=0.0)),
        "Digest of the experiment": [code(digest), f", {same}" if recorded else ""],
        **{
            label: code(models)
            for name, label in MODELS_DIGESTS.items()
            if (models := run.figures.get(name))
        },
        "Versions of the aggregator": ", ".join(
            f"{name} {number}" for name, number in provenance.get("versions", {}).items()
        ),
    }
    files = [[code(name), code(digest)] for name, digest in sorted(run.digests.items())]
    return section(
        "What ran",
        facts(rows),
        tag("h3", "Files that this report was made from, with their SHA-256"),
        table(["File", "SHA-256"], files),
    )


def _clients_of(run: FinishedRun) -> str:
    groups = [
        f"{group.count} with {_member(group.attack or group.data_attack)}"
        for group in run.experiment.attackers
    ]
    attackers = f"; attackers: {', '.join(groups)}" if groups else ""
    return f"{len(run.slots)}{attackers}"


def _member(member: Any) -> str:
    if isinstance(member, str) or member is None:
        return str(member)
    table = member if isinstance(member, dict) else member.model_dump()
    rest = ", ".join(f"{key} {value}" for key, value in table.items() if key != "name")
    return f"{table.get('name', '')} ({rest})" if rest else str(table.get("name", ""))


def _evictions(run: FinishedRun) -> Html:
    rows = [
        [
            tag("td", verdict.client, class_="name"),
            round_,
            verdict.decision,
            verdict.detector,
            _number(verdict.score),
            _number(verdict.threshold),
            tag("td", verdict.reason, class_="reason"),
        ]
        for round_, verdict in run.barrings
    ]
    by_verdict = {v.client for _, v in run.barrings if v.decision == "evicted"}
    others = [client for client in run.evicted if client not in by_verdict]
    notes = []
    if others:
        named = f"Evicted without a verdict, that is, by an operator: {', '.join(others)}."
        notes = [tag("p", named)]
    if not rows and not others:
        return section("Who was barred, and why", tag("p", "Nobody was barred."))
    head = ["Client", "Round", "Decision", "Detector", "Evidence", "Limit", "Reason"]
    evictions = table(head, rows, numbers=(1, 4, 5)) if rows else ""
    return section("Who was barred, and why", evictions, notes)


def _clients(run: FinishedRun) -> Html:
    newest: dict[str, VerdictRecord] = {}
    counts: dict[str, Counter[str]] = {client: Counter() for client in run_clients(run)}
    norms: dict[str, list[float]] = {}
    for record in run.records:
        for client, decision in decided_in(record).items():
            counts.setdefault(client, Counter())[decision] += 1
        newest |= {v.client: v for v in record.verdicts}
        for client, norm in record.norms.items():
            norms.setdefault(client, []).append(norm)
    rows = []
    for client, counted in counts.items():
        last = newest.get(client)
        rows.append(
            [
                tag("td", client, class_="name"),
                counted["accepted"],
                counted["rejected"] + counted["abstained"],
                counted["away"],
                counted["late"],
                counted["absent"],
                _number(last.score if last else None),
                _number(last.threshold if last else None),
                _number(median(norms[client]) if client in norms else None),
                "evicted" if client in run.evicted else last.decision if last else "-",
            ]
        )
    head = ["Client", "Accepted", "Left out", "In quarantine", "Late", "Absent"]
    head += ["Last evidence", "Limit", "Median norm", "At the end"]
    return section("Clients", table(head, rows, numbers=range(1, 9)))


def _rounds(run: FinishedRun) -> Html:
    curves = {kind: name for kind, (name, _) in MODELS.items() if f"accuracy_{kind}" in run.curves}
    rows, summons = [], any(record.examined for record in run.records)
    for number, record in enumerate(run.records):
        left_out = sum(v.decision != "accepted" for v in record.verdicts)
        seconds = seconds_of(record)
        rows.append(
            [
                record.round,
                record.status if record.status == "published" else f"failed: {record.reason}",
                len(record.participants),
                *([len(record.examined)] if summons else []),
                left_out,
                len(record.late),
                len(record.missing) - len(record.late),
                *(percent(run.curves[f"accuracy_{kind}"][number]) for kind in curves),
                f"{seconds:.2f} s" if seconds else "-",
            ]
        )
    head = ["Round", "Result", "Updates", *(["Only judged"] if summons else [])]
    head += ["Not accepted", "Late", "Absent"]
    head += [f"Accuracy, {name}" for name in curves.values()] + ["Time"]
    numbers = [0, *range(2, len(head))]
    return section("Rounds", table(head, rows, numbers=numbers))


def _toml(run: FinishedRun) -> str:
    return (run.folder / EXPERIMENT).read_text(encoding="utf-8").strip()


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds)) if seconds else ""


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"
