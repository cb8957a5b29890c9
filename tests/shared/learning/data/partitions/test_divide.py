"""Parts of a user's own partition: each mistake is refused with the partition's name."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.experiment.schema import Data
from rampart_fl.shared.learning.data.client_data import partition_data
from rampart_fl.shared.learning.data.partitions import Partition, partitions

OwnMember = Callable[..., type]
TABLE = Data(dataset="digits", partition="own", clients=2)
LAST = 1796
A, B = torch.arange(10), torch.arange(10, 20)


def own_partition(given: Any) -> type[Partition]:
    """A partition that returns or raises the given value."""

    class Own(Partition):
        def split(
            self, y: Tensor, clients: int, draws: torch.Generator, groups: Tensor | None = None
        ) -> list[Tensor]:
            if isinstance(given, Exception):
                raise given
            return given

    return Own


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ([A, A.flip(0)], "gave the position 0 to the clients 0 and 1"),
        ([A, torch.cat([B, A[9:]])], "gave the position 9 to the clients 0 and 1"),
        ([A, torch.tensor([20, 21, 20])], "gave client 1 the position 20 more than once"),
        ([A], "returned 1 parts for 2 clients"),
        ([A, B, B + 10], "returned 3 parts for 2 clients"),
        ([A, B + LAST], "gave client 1 the position 1806, outside 0..1796"),
        ([A - 1, B], "gave client 0 the position -1, outside 0..1796"),
        ([A.tolist(), B.tolist()], "gave client 0 a list, not an int64 tensor of positions"),
        ([A, B.int()], "gave client 1 a tensor of torch.int32 with shape (10,)"),
        ([A, B.float()], "gave client 1 a tensor of torch.float32 with shape (10,)"),
        ([A, B[None]], "gave client 1 a tensor of torch.int64 with shape (1, 10)"),
        (None, "returned NoneType, not a list of tensors"),
    ],
)
def test_wrong_parts_are_refused_with_the_name_of_the_partition(
    own_member: OwnMember, given: Any, problem: str
) -> None:
    own_member(partitions, own_partition(given))
    with pytest.raises(ConfigurationError) as caught:
        partition_data(TABLE, 1)
    assert str(caught.value).startswith(f"partition 'own' of my-package==1 {problem}")


@pytest.mark.parametrize("given", [[B, A[:0]], (A.flip(0), B), [A, torch.tensor([LAST])]])
def test_distinct_positions_may_be_unsorted_and_leave_out_samples(
    own_member: OwnMember, given: Any
) -> None:
    own_member(partitions, own_partition(given))
    _, parts = partition_data(TABLE, 1)
    assert [part.tolist() for part in parts] == [sorted(part.tolist()) for part in given]


def test_errors_of_a_partition_name_it(own_member: OwnMember) -> None:
    own_member(partitions, own_partition(KeyError("a")))
    with pytest.raises(KeyError) as caught:
        partition_data(TABLE, 1)
    assert caught.value.__notes__ == ["raised by 'own' of my-package==1"]
