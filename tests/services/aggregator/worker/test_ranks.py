"""The ranks of a worker: a single process, and errors in a call."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from torch import distributed

from rampart_fl.services.aggregator.worker.ranks import RankFailed, Ranks
from rampart_fl.shared.errors import ConfigurationError, PreconditionError, Unavailable


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[Ranks]:
    """A group whose only process is rank 0."""
    store = distributed.FileStore(str(tmp_path / "store"), 1)
    distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    world = distributed.group.WORLD
    yield Ranks(0, 1, world, world)
    distributed.destroy_process_group()


def test_single_process_holds_all_coordinates() -> None:
    ranks = Ranks.connect()
    assert ranks.size == 1 and ranks.part(10) is None
    assert ranks.broadcast("this") == "this"
    assert ranks.gather("this") == ["this"]
    ranks.wait()
    assert str(ranks.device("cuda")) == "cuda"


def test_each_rank_uses_its_own_gpu_unless_one_is_named() -> None:
    third = Ranks(rank=7, size=8, local=3)
    assert [str(third.device(name)) for name in ("cpu", "cuda", "cuda:1")] == [
        "cpu",
        "cuda:3",
        "cuda:1",
    ]


@pytest.mark.parametrize("error", [ConfigurationError("no"), PreconditionError("few")])
def test_errors_that_every_rank_raises_are_not_rank_failures(
    ranks: Ranks, error: Exception
) -> None:
    with pytest.raises(type(error)), ranks.on_all_ranks("close_round"):
        raise error


@pytest.mark.parametrize("error", [Unavailable("the disk is full"), RuntimeError("closed by peer")])
def test_other_errors_raise_rank_failed(ranks: Ranks, error: Exception) -> None:
    message = f"close_round failed on rank 0 of 1 ranks: .*{error}"
    with pytest.raises(RankFailed, match=message), ranks.on_all_ranks("close_round", 3):
        raise error
