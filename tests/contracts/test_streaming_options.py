"""Options and combinations of stages give the same bits for a pool in memory and in a file.

`test_streaming.py` covers every member with its defaults and all rows. Here are options that read
rows in another way, subsets of rows, and whole rounds, each with both kinds of kernels.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from rampart_fl.shared.robust import Context, Rows, State, shards, view
from rampart_fl.shared.robust.customizers import Customization, customizers
from rampart_fl.shared.robust.detectors import detectors
from rampart_fl.shared.robust.engine import Plan, run_round
from rampart_fl.shared.robust.evidence import challenges
from rampart_fl.shared.robust.pipeline import Pipeline
from rampart_fl.shared.robust.preaggregators import preaggregators
from rampart_fl.shared.robust.rules import rules
from rampart_fl.shared.round.pool import Claim, Pool
from rampart_fl.shared.runtime.disk_block import BlockStorage
from tests.contracts.conftest import all_challenged
from tests.contracts.test_streaming import IDS, PREAGGREGATORS, RULES, D, both, same

LAYOUT = (("body.weight", 0, 20), ("head.weight", 20, 36), ("head.bias", 36, D))
AFTER = ("geometric_median", "multi_krum", "trimmed_mean", "centered_clipping", "sign_guard")
"""Rules that read products, distances, sorted columns or signs of mixed rows, or of some rows."""


@pytest.fixture(autouse=True)
def windows_of_16_coordinates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "WINDOW", 1)
    monkeypatch.setattr(shards, "GRAIN", 16)


@pytest.fixture(autouse=True, params=["auto", "torch"])
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAMPART_KERNELS", request.param)


def context() -> Context:
    ones_D = torch.ones(D)
    return Context(
        round=1, seed=5, reference_D=torch.linspace(0, 1, D), server_update_D=ones_D, layout=LAYOUT
    )


def aggregates(stages: list[Any], pair: tuple[Rows, Rows]) -> list[Tensor]:
    """The aggregate of the rows in memory and in a file."""
    made = []
    for rows in pair:
        pipeline = Pipeline.of(stages, f=1)
        made.append(pipeline.apply(rows, pipeline.init(D), context())[0])
    return made


@pytest.mark.parametrize(
    "stages",
    [
        [{"name": "filtering", "block_size": 7}],
        [{"name": "no_regret", "block_size": 20}],
        [{"name": "dnc", "sample": 8}],
        [{"name": "gas", "pieces": 3}, "median"],
        [{"name": "gas", "pieces": 3}, "geometric_median"],
        [{"name": "performance_aware", "rule": "filtering"}],
    ],
    ids=str,
)
def test_options_give_the_same_bits(stages: list[Any], updates_ND: Tensor, tmp_path: Path) -> None:
    assert torch.equal(*aggregates(stages, both(updates_ND, tmp_path)))


@pytest.mark.parametrize("after", AFTER)
@pytest.mark.parametrize("before", preaggregators.names())
def test_rules_give_the_same_bits_after_preaggregators(
    before: str, after: str, updates_ND: Tensor, tmp_path: Path
) -> None:
    stage = {"name": before, **PREAGGREGATORS.get(before, {})}
    assert torch.equal(*aggregates([stage, after], both(updates_ND, tmp_path)))


@pytest.mark.parametrize("name", [name for name in rules.names() if rules.get(name).streams])
def test_rules_give_the_same_bits_for_some_of_the_rows(
    name: str, updates_ND: Tensor, tmp_path: Path
) -> None:
    held, filed = both(updates_ND, tmp_path)
    pair = held.keep([9, 0, 2, 3, 5, 6, 8]), filed.keep([9, 0, 2, 3, 5, 6, 8])
    assert torch.equal(*aggregates([{"name": name, **RULES.get(name, {})}], pair))


def test_models_of_similar_last_layers_have_the_same_bits(
    updates_ND: Tensor, tmp_path: Path
) -> None:
    member, made = customizers.build("fedcap", similarity="last_layer"), []
    for rows in both(updates_ND, tmp_path):
        models = member.apply(rows, rows, State(), context())[0].models
        assert models is not None
        made.append(models.block(list(models.names)))
    assert torch.equal(*made)


@pytest.mark.parametrize("name", ["response", "challenge"])
def test_challenged_models_have_the_same_bits(
    name: str, updates_ND: Tensor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    detector, made, challenged = detectors.build(name), [], []
    assert isinstance(detector, challenges.Challenger)
    for rows in both(updates_ND, tmp_path):
        with monkeypatch.context() as patch:
            _, state = detector.apply(rows, State(), context())
            custom, after = detector.challenge(
                rows,
                Customization(),
                torch.ones(D),
                all_challenged(name, state, patch),
                context(),
            )
        assert custom.models is not None
        made.append((custom.models.block(list(custom.models.names)), after))
        challenged.append(custom.challenged)
    assert torch.equal(made[0][0], made[1][0]) and same(made[0][1], made[1][1])
    assert challenged[0] == challenged[1] and len(challenged[0]) == len(IDS)


@pytest.mark.parametrize("calibrate", [True, False])
@pytest.mark.parametrize("name", ["median", "weighted_mean", "sign_guard"])
def test_rounds_with_running_statistics_give_the_same_bits(
    name: str, calibrate: bool, updates_ND: Tensor, tmp_path: Path
) -> None:
    """A round's rows end with statistics, which the stages do not see."""
    parameters = 36
    plan = Plan.of(
        name,
        [{"name": "norm_bound", "threshold": 50.0}, "response"],
        {"name": "fedcap", "phi": 0.3},
        calibrate=calibrate,
        f=1,
    )
    statistics = (("~norm.running_mean", parameters, 38), ("~norm.running_var", 38, D))
    layout = (("body.weight", 0, 20), ("head.weight", 20, parameters))
    made = []
    for memory in (None, 0):
        reference_D = torch.linspace(0, 1, D)
        pool = Pool(plan, parameters, reference_D, IDS, BlockStorage(memory, tmp_path))
        for client, update_D in zip(IDS, updates_ND, strict=True):
            pool.row(client).copy_(update_D)
            started = (update_D.flip(0).clone(), reference_D)
            pool.admit(client, torch.zeros(plan.traces), started)
        rows = pool.rows(dict.fromkeys(IDS, Claim(3, {})), cap=5)
        assert (rows.file is None) == (memory is None)
        seen = Context(
            round=1, seed=5, reference_D=reference_D, layout=layout, statistics=statistics
        )
        outcome = run_round(plan, rows, plan.init(parameters), seen, pool.judged(rows))
        models = outcome.customization.models
        assert models is not None
        made.append((outcome, models.block(list(models.names))))
    (held, held_LD), (filed, filed_LD) = made
    assert torch.equal(held.global_D, filed.global_D) and torch.equal(held_LD, filed_LD)
    assert held.verdicts == filed.verdicts and same(held.state, filed.state)
