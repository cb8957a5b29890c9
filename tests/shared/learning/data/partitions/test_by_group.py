"""Natural clients: every client has whole users, and no user belongs to two clients."""

import pytest
import torch

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.learning.data.partitions import partitions

GROUPS = torch.tensor([5, 5, 1, 2, 2, 2, 9, 1])


def test_each_user_belongs_to_exactly_one_client() -> None:
    parts = partitions.build("by_group").split(GROUPS, 2, torch.Generator().manual_seed(1), GROUPS)
    users = [set(GROUPS[part].tolist()) for part in parts]
    assert [len(own) for own in users] == [2, 2]
    assert users[0] | users[1] == {1, 2, 5, 9}
    assert torch.cat(parts).sort().values.tolist() == list(range(8))


def test_data_without_users_or_with_too_few_users_is_rejected() -> None:
    member = partitions.build("by_group")
    with pytest.raises(ConfigurationError, match="natural clients"):
        member.split(GROUPS, 2, torch.Generator())
    with pytest.raises(ConfigurationError, match="4 users are not enough for 5 clients"):
        member.split(GROUPS, 5, torch.Generator(), GROUPS)
