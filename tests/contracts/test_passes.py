"""Every stage reads a pool in a file as often as it states."""

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from rampart_fl.shared.robust import Context, Rows, State, linalg, shards, view
from rampart_fl.shared.robust.base import Detector, PreAggregator, Rule, Stage
from rampart_fl.shared.robust.customizers import Customization, Customizer
from rampart_fl.shared.robust.detectors import detectors
from rampart_fl.shared.robust.engine import Plan
from rampart_fl.shared.robust.evidence import challenges
from rampart_fl.shared.robust.pipeline import Pipeline
from rampart_fl.shared.robust.preaggregators import preaggregators
from rampart_fl.shared.robust.rules import rules
from rampart_fl.shared.robust.shards import Part
from rampart_fl.shared.round.pool import Claim, Pool
from rampart_fl.shared.runtime import disk_block
from rampart_fl.shared.runtime.disk_block import BlockStorage, MappedFile
from tests.contracts.conftest import all_challenged
from tests.contracts.test_streaming import IDS, STAGES, D, F, N

STATED: dict[str, Stage] = {name: build() for name, build in STAGES.items()}
OPTIONS: dict[str, tuple[Stage, str, int]] = {
    "rounds of clipping": (
        rules.build("centered_clipping", f=F, iterations=3),
        "2 per iteration",
        2 * 3,
    ),
    "a rule around another": (
        rules.build("performance_aware", f=F, rule="filtering"),
        "1 more than its rule",
        1 + 2,
    ),
    "sampled tests": (
        rules.build("dnc", f=F, sample=8),
        "1, then the random coordinates of each test",
        1,
    ),
    "steps on distances": (rules.build("geometric_median", f=F, iterations=1), "2", 2),
    "weights for blocks": (rules.build("filtering", f=F, block_size=16), "2", 2),
}
"""Members whose parameters matter, what they state, and how many passes this means."""
PHRASES = {
    "2 per iteration": 2,
    "1 more than its rule": 1 + 2,
    "1, then the random coordinates of each test": 1 + 1,
    "as many as its rule": 2,
}
"""How many passes a phrase means for a member with its default parameters. With as few coordinates
as here, the tests of `dnc` draw all of them."""


class CountedFile(MappedFile):
    """A file that counts the coordinates, and all numbers, that passes fetch."""

    fetched = numbers = 0

    def fetch(self, parts: Sequence[Tensor]) -> Future[None]:
        self.fetched += len(parts[0])
        self.numbers += sum(map(len, parts))
        return super().fetch(parts)

    def passes(self) -> float:
        """How many times all coordinates were fetched since the last call."""
        passes, self.fetched = self.fetched / D, 0
        return passes


@pytest.fixture(autouse=True)
def windows_of_16_coordinates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "WINDOW", 1)
    monkeypatch.setattr(shards, "GRAIN", 16)


@pytest.fixture
def rows(tmp_path: Path, updates_ND: Tensor, monkeypatch: pytest.MonkeyPatch) -> Rows:
    """A pool in a file, as the worker fills it: each row is measured when it arrives."""
    monkeypatch.setattr(disk_block, "MappedFile", CountedFile)
    plan = Plan.of("median", screens=["response"], customizer="fedcap")
    pool = Pool(plan, D, torch.ones(D), IDS, BlockStorage(memory=0, folder=tmp_path))
    for client, update_D in zip(IDS, updates_ND, strict=True):
        pool.row(client).copy_(update_D)
        pool.admit(client, start_K=torch.zeros(plan.traces))
    rows = pool.rows(dict.fromkeys(IDS, Claim(1, {"loss_gap": 1.0})), cap=1)
    assert rows.traces is not None
    return rows


@pytest.fixture
def file(rows: Rows) -> CountedFile:
    assert isinstance(rows.file, CountedFile)
    return rows.file


def context() -> Context:
    layout = (("body.weight", 0, 20), ("head.weight", 20, 36), ("head.bias", 36, D))
    ones_D = torch.ones(D)
    return Context(
        round=1, seed=5, reference_D=ones_D, server_update_D=ones_D, layout=layout, head="head"
    )


def in_a_later_round(stage: Stage, rows: Rows, file: CountedFile) -> float:
    """How many passes a stage takes in its second round."""
    if isinstance(stage, Customizer):
        made = stage.apply(rows, rows, State(), context())[0].models
        if made is not None:
            list(made.chunks())
        return file.passes()
    if isinstance(stage, Detector):
        _, state = stage.apply(rows, State(), context())
        file.passes()
        stage.apply(fresh(rows), state, context())
        return file.passes()
    assert isinstance(stage, Rule | PreAggregator)
    _, state, _ = stage.apply(rows, stage.init(D), context())
    file.passes()
    stage.apply(fresh(rows), state, context())
    return file.passes()


def fresh(rows: Rows) -> Rows:
    """The same rows, without the distances that earlier stages have measured."""
    squares_N = rows.pool_statistics.squares_N
    return replace(rows, pool_statistics=type(rows.pool_statistics)(squares_N=squares_N))


def stated(stage: Stage) -> int:
    """The number of passes that a stage with default parameters states."""
    return PHRASES.get(stage.passes) or int(stage.passes.partition(",")[0])


@pytest.mark.parametrize("name", STATED)
def test_stages_that_refuse_rows_in_a_file_state_a_reason(name: str) -> None:
    stage = STATED[name]
    assert stage.passes.startswith("in memory only: ") is not stage.streams


ELSEWHERE = ("gas", "clustered", "flcert")
COUNTED = [name for name, s in STATED.items() if s.streams and s.name not in ELSEWHERE]
"""Stages whose passes are counted here; the next tests count those of the others."""


@pytest.mark.parametrize("name", COUNTED)
def test_stage_takes_the_number_of_passes_that_it_states(
    name: str, rows: Rows, file: CountedFile
) -> None:
    stage = STATED[name]
    if stage.name in ("monna", "sign_guard") and linalg.backend() != "native":
        pytest.skip("without a compiler, reads the pivot again, or reads no pass for the signs")
    assert in_a_later_round(stage, rows, file) == stated(stage)


@pytest.mark.parametrize(
    ("name", "says", "passes"),
    [
        ("clustered", "1, then the base rule's over the rows of each cluster", 1 + 1),
        ("flcert", "the base rule's over the rows of each group", 1),
    ],
)
def test_groups_read_only_their_own_rows(
    name: str, says: str, passes: int, rows: Rows, file: CountedFile
) -> None:
    stage = STATED[f"customizer {name}"]
    assert stage.passes == says
    file.numbers = 0
    in_a_later_round(stage, rows, file)
    assert file.numbers == passes * N * D


def test_gas_reads_every_coordinate_once_in_pieces(
    rows: Rows, file: CountedFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Tensor] = []

    def note(self: Part, block_ND: Tensor, which_C: Tensor, *of_file: MappedFile) -> Tensor:
        drawn.append(which_C)
        return gathered(self, block_ND, which_C, *of_file)

    gathered = Part.gathered
    monkeypatch.setattr(Part, "gathered", note)
    stage = preaggregators.build("gas", f=F, pieces=7)
    stage.apply(rows, State(), context())
    assert stage.passes == "1, split into `pieces` reads of scattered coordinates"
    assert len(drawn) == 7 and torch.cat(drawn).sort().values.tolist() == list(range(D))
    assert file.passes() == 0


@pytest.mark.parametrize("name", OPTIONS)
def test_parameters_change_the_passes_as_stated(name: str, rows: Rows, file: CountedFile) -> None:
    stage, says, passes = OPTIONS[name]
    assert stage.passes == says
    assert in_a_later_round(stage, rows, file) == passes


MIXED = [name for name in rules.names() if STATED[f"rule {name}"].streams and name != "monna"]
"""Rules that accept mixed rows in a file. `monna` has a pivot, which mixing removes."""


@pytest.mark.parametrize("name", MIXED)
def test_mixed_rows_take_at_most_one_pass_more(name: str, rows: Rows, file: CountedFile) -> None:
    stage = STATED[f"rule {name}"]
    assert isinstance(stage, Rule)
    mixed, _, _ = preaggregators.build("bucketing").apply(rows, State(), context())
    stage = stage.model_copy(update={"f": 0})
    stage.apply(mixed, stage.init(D), context())
    assert file.passes() <= stated(stage) + (2 if name == "fltrust" else 1)


def test_stages_of_a_pipeline_share_the_distances(rows: Rows, file: CountedFile) -> None:
    pipeline = Pipeline.of(["nnm", "multi_krum"], f=F)
    pipeline.apply(rows, pipeline.init(D), context())
    assert file.passes() == 2, "one for all distances, and one for the mean"


@pytest.mark.parametrize("name", ["response", "challenge"])
def test_challenges_take_two_passes(
    name: str, rows: Rows, file: CountedFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One pass sketches row by row, which the file does not count; one writes the models."""
    detector = detectors.build(name)
    assert isinstance(detector, challenges.Challenger)
    _, state = detector.apply(rows, State(), context())
    state = all_challenged(name, state, monkeypatch)
    file.passes()
    custom, _ = detector.challenge(rows, Customization(), torch.ones(D), state, context())
    assert len(custom.challenged) == N and custom.models is not None
    list(custom.models.chunks())
    assert detector.passes.startswith("0, and 2 for the models of ")
    assert file.passes() == 1
