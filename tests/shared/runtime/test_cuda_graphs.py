"""CUDA graphs: one graph per combination of shapes; a graph gives the function's bits."""

import pytest
import torch
from torch import Tensor

from rampart_fl.shared.learning.network.models.published import FedCAPCIFAR
from rampart_fl.shared.learning.network.stacked import Stacked
from rampart_fl.shared.learning.training.personalizers import Batch
from rampart_fl.shared.learning.training.scoring import SCORINGS
from rampart_fl.shared.learning.training.task import mean_loss_gradients
from rampart_fl.shared.runtime import cuda_graphs
from rampart_fl.shared.runtime.cuda_graphs import CudaGraphs, Function
from tests.other_device import DEVICE, SUMS

on_gpu = pytest.mark.skipif(DEVICE.type != "cuda", reason="needs a GPU: make test-gpu")


class Recorder:
    """Stands in for `CudaGraph`, which needs a GPU: counts recordings, and calls the function."""

    def __init__(self) -> None:
        self.recorded: list[tuple[int, ...]] = []

    def __call__(self, function: Function, inputs: tuple[Tensor, ...], pool: object) -> Function:
        self.recorded.append(tuple(inputs[0].shape))
        return function


def double(x: Tensor) -> Tensor:
    return 2 * x


def test_graph_is_recorded_once_per_variant_and_shapes() -> None:
    recorder = Recorder()
    graphs = CudaGraphs(recorder)
    for size in (3, 5, 3, 5):
        assert torch.equal(graphs.run(double, "a", (torch.ones(size),)), torch.full((size,), 2.0))
    assert recorder.recorded == [(3,), (5,)]
    graphs.run(double, "b", (torch.ones(3),))
    graphs.run(double, "a", (torch.ones(3, dtype=torch.float64),))
    assert recorder.recorded == [(3,), (5,), (3,), (3,)]


def test_graph_that_was_used_least_recently_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_graphs, "MOST", 2)
    recorder = Recorder()
    graphs = CudaGraphs(recorder)
    for size in (1, 2, 1, 3, 1, 2):
        graphs.run(double, "a", (torch.ones(size),))
    assert recorder.recorded == [(1,), (2,), (3,), (2,)]


@on_gpu
def test_gradients_of_a_graph_are_those_of_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    network = Stacked(FedCAPCIFAR().build((3, 32, 32), 10))
    draws = torch.Generator().manual_seed(3)

    def gradients(k: int) -> tuple[Tensor, Tensor]:
        models_KD = 0.05 * torch.randn(k, network.spec.dim, generator=draws)
        x_KB = torch.rand(k, 4, 3, 32, 32, generator=draws)
        batch = Batch(x_KB, torch.arange(4 * k).view(k, 4) % 10, torch.full((k, 4), 0.25))
        far = Batch(batch.x_KB.to(DEVICE), batch.y_KB.to(DEVICE), batch.weight_KB.to(DEVICE))
        (here_KD,) = mean_loss_gradients(network, SCORINGS["classification"], batch, [models_KD])
        (there_KD,) = mean_loss_gradients(
            network, SCORINGS["classification"], far, [models_KD.to(DEVICE)]
        )
        return there_KD, here_KD

    held = [gradients(k) for k in (3, 2, 3, 2)]
    assert all(torch.allclose(there.cpu(), here, **SUMS) for there, here in held)
    recorded_KD = held[0][0]
    monkeypatch.setattr(Stacked, "can_record", lambda self, x_KB: False)
    draws.manual_seed(3)
    assert torch.equal(gradients(3)[0], recorded_KD)
