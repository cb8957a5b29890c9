"""Finished runs are cached, not repeated, and read back from a truncated file."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.detection.combinations import DEFAULT, Combination
from benchmarks.detection.report import renew
from benchmarks.detection.runs import Cache, Run, bare, execute, finish
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.figures.client_metrics import accuracy, latest, sides
from rampart_fl.shared.simulation import Simulation

ONE = Combination("digits", "2 classes", 10, 1.0, 1, "mlp", 3, "global", seed=3)
ATTACKERS = [{"count": 3, "attack": "sign_flip"}]


def run(**changes: Any) -> Run:
    return replace(Run(ONE.tables(DEFAULT, ATTACKERS), {"attack": "sign_flip"}), **changes)


@pytest.mark.processes
def test_finished_run_is_read_from_the_cache(tmp_path: Path) -> None:
    path = tmp_path / "cache.jsonl"
    ((_, first),) = finish([run()], Cache.of(path), jobs=1)
    ((_, again),) = finish([run()], Cache.of(path), jobs=1)
    assert first == again
    assert len(path.read_text().splitlines()) == 1
    assert (first["rounds"], first["honest"], first["hostile"]) == (3, 7, 3)


def test_cache_key_depends_on_every_option_but_label_and_seconds() -> None:
    other = run(tables=ONE.tables([{"name": "norm_bound"}], ATTACKERS))
    runs = [run(), run(claim=1), run(settles=True), run(network=True), other]
    runs += [run(without="detectors"), run(without="attackers")]
    assert len({one.key for one in runs}) == len(runs)
    assert run(label={"attack": "another name"}, seconds=1.0).key == run().key


def test_source_is_compared_without_docstrings_and_comments() -> None:
    source = 'LIMIT = 3\n"""Of what."""\n\n\ndef over(x):\n    """Whether it is over."""\n'
    source += "    return x > LIMIT  # strictly\n"
    reworded = source.replace("Of what.", "The limit.").replace("  # strictly", "")
    assert bare(reworded) == bare(source)
    assert bare(source.replace(">", ">=")) != bare(source)
    assert bare('def f():\n    """Does nothing."""') == "def f():\n    pass"


def test_truncated_cache_line_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "cache.jsonl"
    path.write_text(json.dumps({"key": "whole"}) + '\n{"key": "cu')
    assert set(Cache.of(path).entries) == {"whole"}
    assert path.read_text() == '{"key": "whole"}\n'


def test_failed_run_is_reported_and_not_cached(tmp_path: Path) -> None:
    path = tmp_path / "cache.jsonl"
    impossible = replace(ONE, partition="users")
    assert finish([Run(impossible.tables())], Cache.of(path), jobs=1) == []
    assert not path.exists()
    assert "natural clients" in execute(Run(impossible.tables()))["error"]


def test_claimed_sample_counts_move_the_weighted_mean() -> None:
    """The attackers behave honestly, but claim one sample or very many."""
    plain = ONE.tables([], [{"count": 3, "attack": {"name": "sign_flip", "until_round": 0}}])
    light, heavy = (execute(Run(plain, claim=claim)) for claim in (1, 10_000))
    assert light["local"] != heavy["local"]


def test_report_sections_are_replaced_independently(tmp_path: Path) -> None:
    path, order = tmp_path / "report.md", ["first", "second"]
    for section, text in (("second", "two"), ("first", "one"), ("second", "anew")):
        renew(path, section, text, order)
    text = path.read_text()
    assert "two" not in text
    assert text.index("one") < text.index("anew")


def test_run_untouched_by_detectors_equals_the_run_without_detectors() -> None:
    """The comparison therefore needs no second run."""
    mixed = replace(ONE, partition="Dirichlet 1")
    entries = execute(Run(mixed.tables(DEFAULT), without="detectors"))
    assert (entries["silenced"], entries["challenged"]) == (0, 0)
    bare = execute(Run(mixed.tables([])))
    assert entries["without"] == {name: bare[name] for name in entries["without"]}
    assert entries["without"] == {name: entries[name] for name in entries["without"]}


def test_run_altered_by_a_detector_is_paired_with_a_run_without_detectors() -> None:
    strict = [{"name": "norm_bound", "threshold": 1e-3}]
    entries = execute(Run(ONE.tables(strict), without="detectors"))
    assert entries["silenced"] or entries["honest_evicted"]
    bare = execute(Run(ONE.tables([])))
    assert entries["without"] == {name: bare[name] for name in entries["without"]}
    assert entries["without"]["received"] != entries["received"]


@pytest.mark.processes
def test_cached_run_is_not_repeated_for_its_pair(tmp_path: Path) -> None:
    path = tmp_path / "cache.jsonl"
    judged = run(tables=ONE.tables([{"name": "norm_bound", "threshold": 1e-3}]))
    ((_, first),) = finish([judged], Cache.of(path), jobs=1)
    path.write_text(path.read_text().replace(f'"rounds": {ONE.rounds}', '"rounds": 99'))
    pair = replace(judged, without="detectors")
    ((_, both),) = finish([pair], Cache.of(path), jobs=1)
    assert both["rounds"] == 99
    assert both["key"] == pair.key != judged.key
    assert both["core_s"] > first["core_s"]
    whole = execute(pair)
    assert both["without"] == whole["without"] != {name: whole[name] for name in whole["without"]}


def test_attack_is_compared_with_the_same_run_of_honest_clients() -> None:
    """Both accuracies are those of the seven clients that are honest in either run."""
    attacked = ONE.tables([], ATTACKERS)
    entries = execute(Run(attacked, without="attackers"))
    clients = Simulation.of(Experiment.from_tables(attacked | {"attackers": []}))
    records = [clients.step() for _ in range(ONE.rounds)]
    honest, hostile = sides(Experiment.from_tables(attacked))
    assert (len(honest), len(hostile)) == (7, 3)
    last = latest([record.metrics for record in records])
    assert entries["without"]["received"] == accuracy(last, honest, "customized")
    assert entries["without"]["received"] > entries["received"]
