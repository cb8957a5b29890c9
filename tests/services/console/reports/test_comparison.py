"""The table of `rampart compare`, against hand-written rows."""

import re
from typing import Any

from rampart_fl.services.console.reports.comparison import comparison_table

FIGURES: dict[str, Any] = {
    "accuracy": 0.912,
    "accuracy_customized": 0.9,
    "accuracy_local": None,
    "accuracy_personalized": None,
    "clients": 6,
    "rounds": 3,
    "failed_rounds": 0,
    "evicted": [],
    "bytes_per_client": {"down": 2048.0, "up": 2100.0},
    "bytes": 5_000_000,
    "seconds": 75.0,
}


def test_comparison_shows_formatted_metrics_and_differing_settings() -> None:
    other = {
        **FIGURES,
        "accuracy_local": 0.5,
        "failed_rounds": 1,
        "evicted": ["a", "b", "c", "d"],
        "bytes_per_client": {"down": None, "up": None},
        "seconds": None,
    }
    settings = {
        "seed": [1, 2],
        "personalizer": [{"name": "none"}, {"name": "ditto", "lambda": 0.1}],
        "server.rule": [[{"name": "median"}], [{"name": "nnm"}, {"name": "krum"}]],
        "description": ["x" * 50, None],
    }
    text = comparison_table(["a-1", "b-2"], ["finished", "running"], [FIGURES, other], settings)
    assert [re.split(r"\s{2,}", line.strip()) for line in text.splitlines()] == [
        ["a-1", "b-2"],
        ["state", "finished", "running"],
        ["accuracy of the received model", "90.0 %", "90.0 %"],
        ["accuracy after local training", "-", "50.0 %"],
        ["evicted", "nobody", "a, b, c and 1 more"],
        ["clients", "6", "6"],
        ["rounds", "3", "3, 1 failed"],
        ["received per client and round", "2.0 KiB", "-"],
        ["sent per client and round", "2.1 KiB", "-"],
        ["transferred", "4.8 MiB", "4.8 MiB"],
        ["duration", "1 min 15 s", "-"],
        ["settings that differ"],
        ["seed", "1", "2"],
        ["personalizer", "none", '{"name": "ditto", "lambda": 0.1}'],
        ["server.rule", '["median"]', '["nnm", "krum"]'],
        ["description", "x" * 37 + "...", "-"],
    ]
    starts = {line.index("b-2") for line in text.splitlines()[:1]}
    starts |= {line.index("running") for line in text.splitlines()[1:2]}
    assert len(starts) == 1, "columns begin at the same place"
