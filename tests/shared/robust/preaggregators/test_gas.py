"""GAS, checked against its definition."""

import pytest
import torch

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.robust import Context, Rows, State, aggregate
from rampart_fl.shared.robust.preaggregators import preaggregators


def kept(block_ND: torch.Tensor, f: int, seed: int = 0, **parameters: object) -> tuple[str, ...]:
    stage = preaggregators.build("gas", f=f, **parameters)
    return stage.apply(Rows.of(block_ND), State(), Context(seed=seed))[0].ids


def test_single_piece_scores_rows_by_their_distance_to_the_median() -> None:
    block_ND = torch.randn(9, 20, generator=torch.Generator().manual_seed(0))
    distances = (block_ND - aggregate(block_ND, "median")).norm(dim=1)
    nearest = sorted(distances.argsort()[:7].tolist())
    assert kept(block_ND, 2, pieces=1) == tuple(str(i) for i in nearest)


def test_pieces_of_one_coordinate_score_rows_by_absolute_differences() -> None:
    block_ND = torch.randn(9, 20, generator=torch.Generator().manual_seed(0))
    sums = (block_ND - aggregate(block_ND, "median")).abs().sum(dim=1)
    nearest = sorted(sums.argsort()[:7].tolist())
    assert kept(block_ND, 2, pieces=10_000) == tuple(str(i) for i in nearest)


@pytest.mark.parametrize("rule", ["krum", "median", {"name": "trimmed_mean", "b": 2}, "bulyan"])
def test_far_rows_are_never_kept(rule: object) -> None:
    block_ND = torch.randn(11, 60, generator=torch.Generator().manual_seed(1))
    block_ND[[1, 7]] += 50
    for seed in range(3):
        survivors = kept(block_ND, 2, seed, rule=rule, pieces=8)
        assert len(survivors) == 9 and not {"01", "07"} & set(survivors)


def test_gas_followed_by_the_mean_averages_the_kept_rows() -> None:
    block_ND = torch.randn(8, 30, generator=torch.Generator().manual_seed(2))
    stages = [{"name": "gas", "rule": "krum", "pieces": 5}, "weighted_mean"]
    survivors = [int(i) for i in kept(block_ND, 2, rule="krum", pieces=5)]
    torch.testing.assert_close(aggregate(block_ND, stages, f=2), block_ND[survivors].mean(dim=0))


def test_invalid_wrapped_rules_are_rejected_at_construction() -> None:
    with pytest.raises(ConfigurationError, match="krun"):
        preaggregators.build("gas", rule="krun")
    with pytest.raises(ConfigurationError, match="fltrust needs whole models"):
        preaggregators.build("gas", rule="fltrust")
