"""Part IID, part sorted: sizes stay even, and the sorted part is a run of labels."""

import torch

from rampart_fl.shared.learning.data.partitions import partitions


def test_four_fifths_of_each_client_are_sorted_by_label() -> None:
    y = torch.arange(10).repeat(50)
    parts = partitions.build("iid_plus_sorted").split(y, 10, torch.Generator().manual_seed(2))
    assert [len(part) for part in parts] == [50] * 10
    for client, part in enumerate(parts):
        run = y[part].bincount(minlength=10)[max(client - 1, 0) : client + 2].sum()
        assert 40 <= run < 50, "the client's other samples are drawn from all classes"


def test_iid_share_of_one_gives_every_client_all_classes() -> None:
    y = torch.arange(10).repeat(50)
    member = partitions.build("iid_plus_sorted", iid=1.0)
    parts = member.split(y, 5, torch.Generator().manual_seed(2))
    assert min(len(y[part].unique()) for part in parts) == 10
