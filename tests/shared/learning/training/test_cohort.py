"""Clients' data and batches as blocks: slices are views, and class counts exclude padding."""

import torch

from rampart_fl.shared.experiment.schema import Training
from rampart_fl.shared.learning.data.client_data import ClientData
from rampart_fl.shared.learning.training.cohort import Batches, Cohort


def test_cohort_slices_are_views_and_the_full_slice_is_the_cohort(
    clients: list[ClientData],
) -> None:
    cohort = Cohort.of(clients, torch.float64)
    part = cohort.part(slice(1, 3))
    assert cohort.part(slice(0, 3)) is cohort
    assert part.x_train_KN.data_ptr() == cohort.x_train_KN[1].data_ptr()
    assert (part.train_K, part.test_K, part.classes) == ((7, 4), (4, 2), 10)
    assert torch.equal(part.x_test_KT[0, :4], clients[1].x_test)
    assert torch.equal(part.y_train_KN[1, :4], clients[2].y_train)
    assert torch.equal(part.y_test_KT[1, :2], clients[2].y_test)


def test_class_counts_exclude_padding(clients: list[ClientData]) -> None:
    counts_KC = Cohort.of(clients).counts_KC
    for own, counts_C in zip(clients, counts_KC, strict=True):
        assert counts_C.tolist() == torch.bincount(own.y_train, minlength=10).tolist()


def test_slices_of_batches_keep_each_clients_batches() -> None:
    training = Training(epochs=2, batch_size=4)
    batches = Batches.draw([10, 7, 4], ["a", "b", "c"], training, 5, 3, held_out=0.2)
    part = batches.part(slice(1, 3))
    assert (part.names, part.steps_K, part.steps) == (("b", "c"), batches.steps_K[1:], 4)
    assert torch.equal(part.index_KSB, batches.index_KSB[1:])
    assert torch.equal(part.weight_KSB, batches.weight_KSB[1:])
    assert all(map(torch.equal, part.held, batches.held[1:]))
    assert part.draws(1).names == ("b", "c") and part.draws(1).sizes == batches.draws(1).sizes[1:]


def test_step_is_whole_only_if_no_clients_batch_is_padded() -> None:
    batches = Batches.draw([8, 7], ["a", "b"], Training(epochs=1, batch_size=4), 5, 3)
    assert [batches.whole(step) for step in range(2)] == [True, False]
    assert batches.part(slice(0, 1)).whole(1)


def test_batch_width_is_at_most_the_largest_clients_sample_count() -> None:
    batches = Batches.draw([8, 7], ["a", "b"], Training(epochs=2, batch_size=1000), 5, 3)
    assert (batches.width, batches.steps) == (8, 2)
    assert batches.index_KSB[0].sort().values.tolist() == [list(range(8))] * 2
    assert [batches.whole(step) for step in range(2)] == [False, False]
