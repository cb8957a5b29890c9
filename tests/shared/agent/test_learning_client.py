"""A client's work on tickets: privacy budget, repeatable noise, diverged updates, devices."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import torch

from rampart_fl.shared.agent.learning_client import LearningClient
from rampart_fl.shared.learning.data.client_data import client_data
from rampart_fl.shared.learning.training.local import LocalResult
from rampart_fl.shared.learning.training.privacy import STEPS
from rampart_fl.shared.protocol import wire
from rampart_fl.shared.protocol.messages import ClientReport, Ticket, TicketKind
from tests.other_device import NAME, SUMS, other_device
from tests.shared.learning.conftest import make_experiment


class Private:
    """A client with noised gradients, four steps a round."""

    def __init__(self, folder: Path, dtype: str = "F32", **training: Any) -> None:
        experiment = make_experiment(
            data={"dataset": "digits", "clients": 4, "samples": 40},
            model={"name": "mlp", "hidden": [4]},
            training={"epochs": 1, "batch_size": 8, **training},
        )
        data = client_data(experiment.data, 0, experiment.seed)
        thread = ThreadPoolExecutor(1)
        self.client = LearningClient(experiment, "a", data, folder, 100, thread, dtype)
        learner = self.client.learner
        self.model = wire.encode(learner.spec, learner.initial_model().numpy())

    def work(self, kind: TicketKind, round_: int) -> bytes:
        """The client's upload for a ticket."""
        ticket = Ticket(round=round_, kind=kind, experiment="0" * 64)
        return asyncio.run(self.client.work(ticket, self.model))

    @property
    def steps(self) -> float:
        """Noised steps so far, as the stored state counts them."""
        return float(self.client._state()[STEPS])


@pytest.mark.slow
def test_probes_and_training_rounds_both_spend_privacy_budget(tmp_path: Path) -> None:
    pytest.importorskip("opacus", reason="the privacy accountant is an optional extra")
    one = Private(tmp_path, privacy={"noise_multiplier": 1.0})
    result = [one.steps]
    for kind, round_ in (("probe", 0), ("train", 0), ("train", 1), ("probe", 2), ("train", 2)):
        one.work(kind, round_)
        result.append(one.steps)
    assert result == [0, 4, 8, 12, 16, 20]
    assert Private(tmp_path, privacy={"noise_multiplier": 1.0}).steps == 20


def test_repeated_ticket_is_answered_with_the_same_noise(tmp_path: Path) -> None:
    one = Private(tmp_path, output_noise=0.5)
    first = one.work("train", 0)
    assert one.work("train", 0) == first
    assert Private(tmp_path, output_noise=0.5).work("train", 0) == first
    assert Private(tmp_path / "other", output_noise=0.5).work("train", 0) != first


@pytest.mark.parametrize(("dtype", "size"), [("F32", float("nan")), ("F16", 1e6)])
def test_non_finite_or_overflowing_update_is_reported_as_diverged(
    tmp_path: Path, dtype: str, size: float
) -> None:
    client = Private(tmp_path, dtype=dtype).client
    ticket = Ticket(round=0, kind="train", experiment="0" * 64)
    update_D = torch.full((client.learner.spec.dim,), size)
    result = LocalResult(update_D, {}, {"loss_before": 2.0, "loss_after": float("inf")})
    upload = client._keep(ticket, *asyncio.run(client.finish(ticket, result)), result)
    head = wire.read_header(BytesIO(upload), len(upload), client.learner.spec)
    assert wire.read_report(head, 100) == ClientReport(
        samples=client._samples, metrics={"loss_before": 2.0, "loss_gap": 0.0}, diverged=True
    )
    wire.check_finite(BytesIO(upload), head)


class SameThread(Executor):
    """Runs functions on the caller's thread, because a pretended device exists on one thread."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(fn(*args, **kwargs))
        return done


@pytest.mark.slow
@pytest.mark.parametrize(
    "tables",
    [
        {"personalizer": "fedcap"},
        {"personalizer": "fedfomo", "server": {"rule": "mean", "customizer": "fedfomo"}},
        {"training": {"epochs": 1, "batch_size": 8, "privacy": {"noise_multiplier": 1.0}}},
    ],
    ids=str,
)
def test_client_on_another_device_sends_the_same_update(
    tmp_path: Path, tables: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rampart_fl.shared.agent.learning_client.secrets.randbits", lambda _: 5)
    monkeypatch.setattr("rampart_fl.shared.learning.training.privacy.epsilon", lambda *_: 0.0)
    training = {"epochs": 1, "batch_size": 8}
    experiment = make_experiment(
        **{
            "data": {"dataset": "digits", "clients": 4, "samples": 40},
            "model": {"name": "mlp", "hidden": [4]},
            "training": training,
            **tables,
        }
    )
    data = client_data(experiment.data, 0, experiment.seed)

    def rounds(folder: Path, device: str) -> tuple[list[torch.Tensor], dict[str, float]]:
        client = LearningClient(
            experiment, "a", data, folder, 100, SameThread(), device=torch.device(device)
        )
        spec = client.learner.spec
        models = [client.learner.initial_model() + 0.1 * round_ for round_ in range(3)]
        encoded = [wire.encode(spec, model_D.numpy()) for model_D in models]
        updates = []
        for round_ in range(2):
            ticket = Ticket(round=round_, kind="train", experiment="0" * 64)
            asyncio.run(client.receive(ticket, {"peer_0": encoded[2]}))
            upload = asyncio.run(client.work(ticket, encoded[round_]))
            updates.append(torch.from_numpy(wire.read_model(upload, spec).copy()))
        others = {"vote_0": encoded[0], "vote_1": encoded[1]}
        asyncio.run(client.receive(ticket, others))
        return updates, asyncio.run(client.evaluate(ticket, encoded[2]))

    expected, metrics = rounds(tmp_path / "here", "cpu")
    with other_device():
        updates, observed = rounds(tmp_path / "there", NAME)
    for update_D, expected_D in zip(updates, expected, strict=True):
        torch.testing.assert_close(update_D, expected_D, **SUMS)
    assert observed == pytest.approx(metrics)
    assert "correct_vote" in observed
