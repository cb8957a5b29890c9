"""`rampart report`: complete and valid HTML, in which no text of a client is markup."""

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from rampart_fl.services.console.html_report.markup import VOID
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.experiment.toml import to_toml
from rampart_fl.shared.protocol.messages import RoundRecord

Rampart = Callable[..., Any]
HOSTILE = "<img src=x onerror=alert(1)>"
SMALL = """
name = "small"
description = "six clients, of which one replaces the model"
rounds = 4
model = { name = "mlp", hidden = [8] }
training = { epochs = 1, batch_size = 20 }
personalizer = { name = "fedcap", lambda = 0.1 }
[data]
dataset = "digits"
clients = 6
samples = 60
[server]
detectors = ["robust_distance"]
customizer = { name = "fedcap", alpha = 10, phi = 0.1 }
[[attackers]]
count = 1
attack = "model_replacement"
"""


class Page(HTMLParser):
    """Reads a file, and fails at an end tag that is missing or wrong."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(source)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs), f"an attribute stands twice in {tag}"
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        """All that a reader sees."""
        return " ".join(" ".join(self.words).split())

    def named(self, tag: str) -> list[dict[str, str | None]]:
        """The attributes of all elements of a kind."""
        return [attributes for name, attributes in self.tags if name == tag]


def check(source: str) -> Page:
    """Checks that a page is valid HTML, has no scripts and loads nothing from elsewhere."""
    assert source.startswith("<!doctype html>")
    page = Page(source)
    names = {tag for tag, _ in page.tags}
    assert not names & {"script", "iframe", "object", "link", "base", "form", "img", "a", "use"}
    for _, attributes in page.tags:
        assert not [name for name in attributes if name.startswith("on")]
        assert not attributes.keys() & {"style", "href", "src", "xlink:href"}
    assert not re.search(r"url\(|@import|https?://", source)
    (style,) = re.findall(r"<style>(.*?)</style>", source, re.DOTALL)
    allowed = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    (policy,) = [a for a in page.named("meta") if a.get("http-equiv")]
    assert policy["http-equiv"] == "Content-Security-Policy"
    content = str(policy["content"]).split("; ")
    assert {"default-src 'none'", f"style-src 'sha256-{allowed}'"} <= set(content)
    assert "prefers-color-scheme: dark" in style and "@media print" in style
    classes = {c for _, a in page.tags for c in (a.get("class") or "").split()}
    unknown = {c for c in classes if f".{c} " not in style and f".{c}," not in style}
    assert unknown <= {"name", "note", "warning", "kind"} | {"number"}, unknown
    assert all(svg["aria-label"] for svg in page.named("svg"))
    return page


@pytest.fixture
def written(rampart: Rampart, tmp_path: Path) -> Callable[..., Page]:
    """Makes a report with the command, and checks it."""

    def make(source: Path) -> Page:
        out = tmp_path / "reports" / "report.html"
        said = rampart("report", str(source), "--out", str(out))
        assert said.code == 0, said.err
        assert said.out == f"{out}\n"
        return check(out.read_text())

    return make


def test_run_report_shows_digests_accuracy_and_evicted_clients(
    rampart: Rampart, written: Callable[..., Page], tmp_path: Path
) -> None:
    file, folder = tmp_path / "small.toml", tmp_path / "run"
    file.write_text(SMALL)
    assert rampart("simulate", str(file), "--out", str(folder)).code == 0
    page = written(folder)
    result = json.loads((folder / "result.json").read_text())
    (evicted,) = result["evicted"]
    records = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    verdicts = [v for record in records for v in record["verdicts"]]
    (verdict,) = [v for v in verdicts if v["decision"] == "evicted"]
    for expected in (
        "six clients, of which one replaces the model",
        result["experiment_digest"] + " , as in the results",
        f"Digest of the final models {result['models_digest']}",
        hashlib.sha256((folder / "records.jsonl").read_bytes()).hexdigest(),
        f"{evicted} {next(r['round'] for r in records if verdict in r['verdicts'])} evicted "
        f"robust_distance {verdict['score']:.3g} {verdict['threshold']:.3g} {verdict['reason']}",
        f"{100 * result['accuracy_local']:.1f} %",
        "Evidence of robust_distance",
        "Norms of updates",
        f"{evicted}: evicted in round",
    ):
        assert expected in page.text, expected
    labels = [svg["aria-label"] for svg in page.named("svg")]
    assert labels == [
        "accuracy of the honest clients over rounds",
        "evidence of robust_distance by client over rounds",
        "decision on every client in every round",
        "norms of updates over rounds",
    ]
    curves = [a for a in page.named("path") if str(a["class"]).startswith("line")]
    assert len([a for a in curves if a["class"] in {"line one", "line two", "line three"}]) == 4


def test_run_report_names_the_kind_of_models_digest(
    rampart: Rampart, written: Callable[..., Page], tmp_path: Path
) -> None:
    file, folder = tmp_path / "small.toml", tmp_path / "run"
    file.write_text(SMALL)
    assert rampart("simulate", str(file), "--rounds", "1", "--out", str(folder)).code == 0
    result = json.loads((folder / "result.json").read_text())
    digest = result.pop("models_digest")
    # The results of `rampart up` have another digest.
    for figures, shown in (
        ({**result, "models_digest": digest}, {"Digest of the final models"}),
        ({**result, "blobs_digest": digest}, {"Digest of the final models' blobs"}),
        (result, set()),
    ):
        (folder / "result.json").write_text(json.dumps(figures))
        page = written(folder)
        assert {word for word in page.words if word.startswith("Digest of the final")} == shown
        assert (digest in page.text) == bool(shown)


def hostile_run(folder: Path, names: list[str]) -> None:
    """Writes a run whose clients have these names."""
    experiment = Experiment.parse(SMALL)
    folder.mkdir()
    (folder / "experiment.toml").write_text(to_toml(experiment.tables()))
    members = [{"client_id": name, "slot": slot} for slot, name in enumerate(names)]
    (folder / "members.json").write_text(json.dumps(members))
    verdicts = [
        {"client": name, "decision": "evicted", "detector": "<b>d", "reason": f"{name}\u202e"}
        | {"score": 2.0, "threshold": 1.0}
        for name in names
    ]
    fields = {"round": 0, "status": "failed", "reason": "</td></table><script>x</script>"}
    record = RoundRecord.model_validate(
        {**fields, "verdicts": verdicts, "participants": names, "warnings": ["<i>w"]}
        | {"norms": dict.fromkeys(names, 1.0), "metrics": {names[0]: {"test_samples": 4.0}}}
    )
    (folder / "rounds.jsonl").write_text(record.model_dump_json() + "\n")


def test_hostile_text_of_clients_is_escaped(written: Callable[..., Page], tmp_path: Path) -> None:
    names = [HOSTILE, "a\"b'c&d", "</title><p>", "two\u202eowt", "--><!--", "]]>{x}"]
    hostile_run(tmp_path / "run", names)
    page = written(tmp_path / "run")
    assert HOSTILE in page.text and "a\"b'c&d" in page.text
    assert "failed: </td></table><script>x</script>" in page.text
    assert "two\\u202eowt" in page.text and "\u202e" not in page.text
    assert "the run was interrupted" in page.text


def test_hostile_text_in_study_files_is_escaped(
    written: Callable[..., Page], tmp_path: Path
) -> None:
    cell = {"attack": HOSTILE, "defence": "<b>x", "accuracy_local": 0.5, "spread": {}}
    run = {"seed": 1, "evicted": [HOSTILE], "experiment_digest": "<i>", "error": HOSTILE}
    table = {"experiment": HOSTILE, "attacks": [HOSTILE], "defences": ["<b>x"], "<u>": "<s>"}
    (tmp_path / "matrix.json").write_text(json.dumps({**table, "cells": [{**cell, "runs": [run]}]}))
    assert page_names(written(tmp_path / "matrix.json")) == {HOSTILE}
    row = {"<b>": HOSTILE, "f": 1, "runs": 1, "accuracy": 0.5, "spread": {"accuracy": 0.1}}
    sweep = {"experiment": HOSTILE, "experiment_digest": "<i>", "axes": ["f", "<b>"]}
    rows = [row, {**row, "f": 2, "accuracy": 0.75}]
    (tmp_path / "sweep.json").write_text(json.dumps({**sweep, "sweep": rows}))
    assert page_names(written(tmp_path / "sweep.json")) == {HOSTILE}


def page_names(page: Page) -> set[str]:
    """The texts of the page that consist of the hostile name."""
    return {word for word in page.words if word == HOSTILE}


def cells(page: Page) -> Iterator[str]:
    """The classes of all cells of tables."""
    return (str(a.get("class")) for a in page.named("td"))


def test_matrix_report_has_one_table_per_metric(
    written: Callable[..., Page], tmp_path: Path
) -> None:
    def cell(attack: str, value: float | None) -> dict[str, Any]:
        runs = [{"seed": 1, "evicted": ["c"], "experiment_digest": "d1"}]
        figures = {"accuracy_local": value, "fpr": 0.25, "spread": {"accuracy_local": 0.125}}
        return {"attack": attack, "defence": "median", **figures, "runs": runs}

    table = {"experiment": "m", "clients": 6, "attacks": ["none", "lie"], "defences": ["median"]}
    table["cells"] = [cell("none", 0.97), cell("lie", None)]
    (tmp_path / "matrix.json").write_text(json.dumps(table))
    page = written(tmp_path)
    assert "Accuracy after local training Attack median none 97.0 ± 12.5 lie -" in page.text
    assert "FPR Attack median none 25.0 lie 25.0" in page.text
    assert list(cells(page)).count("heat heat10") == 1 and "heat heat8" in cells(page)
    assert hashlib.sha256((tmp_path / "matrix.json").read_bytes()).hexdigest() in page.text


def test_sweep_report_plots_points_in_order_of_the_swept_value(
    written: Callable[..., Page], tmp_path: Path
) -> None:
    rows = [
        {"f": f, "rule": "median", "accuracy": 0.5 + f / 10, "runs": 2, "spread": {"accuracy": 0.1}}
        for f in (2, 0, 1)
    ]
    table = {"experiment": "s", "experiment_digest": "d", "axes": ["f", "rule"], "sweep": rows}
    file = tmp_path / "sweep.json"
    file.write_text(json.dumps(table))
    page = written(file)
    (path,) = [a for a in page.named("path") if a["class"] == "line one"]
    heights = [float(y) for y in re.findall(r"[ML][\d.]+ ([\d.]+)", str(path["d"]))]
    assert heights == sorted(heights, reverse=True) and len(set(heights)) == 3, "in order of f"
    assert "2 median 2 0.7 ± 0.1" in page.text
    assert [a["aria-label"] for a in page.named("svg")] == ["accuracy over f"]


def test_run_report_counts_examined_clients(
    rampart: Rampart, written: Callable[..., Page], tmp_path: Path
) -> None:
    file, folder = tmp_path / "small.toml", tmp_path / "run"
    text = SMALL.replace('"robust_distance"', '"challenge"').replace("clients = 6", "clients = 10")
    text = text.replace("count = 1", "count = 4").replace('"model_replacement"', '"ipm"')
    file.write_text(text.replace("rounds = 4", "rounds = 5\nfraction = 0.5"))
    assert rampart("simulate", str(file), "--out", str(folder)).code == 0
    records = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    page = written(folder)
    assert "Updates Only judged Not accepted" in page.text
    assert any(record["examined"] for record in records)
    for record in records:
        taken = f"{record['round']} published {len(record['participants'])}"
        assert f"{taken} {len(record['examined'])}" in page.text


def test_missing_or_damaged_results_are_refused(rampart: Rampart, tmp_path: Path) -> None:
    said = rampart("report", str(tmp_path), "--out", str(tmp_path / "r.html"))
    assert said.code == 1 and "holds no run, matrix or sweep" in said.err
    (tmp_path / "matrix.json").write_text('{"cells": [{}]}')
    said = rampart("report", str(tmp_path), "--out", str(tmp_path / "r.html"))
    assert said.code == 1 and "matrix.json is damaged" in said.err
    hostile_run(tmp_path / "run", ["a", "b"])
    with (tmp_path / "run/rounds.jsonl").open("a") as file:
        file.write('{"round": 1, "status": "publ')
    said = rampart("report", str(tmp_path / "run"), "--out", str(tmp_path / "r.html"))
    assert said.code == 1 and "a record is damaged" in said.err
    assert not (tmp_path / "r.html").exists()
