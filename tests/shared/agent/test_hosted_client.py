"""A client of a process: what it does when its disk, its data or its own code fails."""

import errno
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rampart_fl.shared.agent import hosted_client as module
from rampart_fl.shared.agent.acceptance import Policy
from rampart_fl.shared.agent.activity_log import ActivityLog
from rampart_fl.shared.agent.agent_settings import AgentSettings
from rampart_fl.shared.agent.client import RequestRefused
from rampart_fl.shared.agent.host import build_honest_client, check_capabilities
from rampart_fl.shared.agent.hosted_client import HostedClient
from rampart_fl.shared.agent.identity import Identity
from rampart_fl.shared.agent.learning_client import RunFiles
from rampart_fl.shared.agent.loop import ParticipantError, own_errors
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.protocol.messages import Ticket

pytestmark = pytest.mark.anyio
TRAIN = Ticket(kind="train", run="test-1", slot=0, models={"model": "0" * 64})
BARRED = Ticket(kind="evicted", reason="by the operator")


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """No aggregator: the client has an identity, and its tickets are in the test."""

    async def establish(*_: Any, **__: Any) -> Identity:
        return Identity(client_id="ada", token="t" * 43)

    @asynccontextmanager
    async def token_renewal(*_: Any) -> AsyncIterator[None]:
        yield

    monkeypatch.setattr(module, "establish", establish)
    monkeypatch.setattr(module, "token_renewal", token_renewal)
    monkeypatch.setattr(module, "PAUSE", 0.0)
    monkeypatch.setattr(module, "BRIEF", 0.0)


def hosted(folder: Path, thread: ThreadPoolExecutor, **settings: Any) -> HostedClient:
    known = AgentSettings(state=folder, **settings)
    build, check = build_honest_client(known), check_capabilities(known)
    return HostedClient(known, Policy(), build, check, thread, 0)


async def live(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    tickets: list[Ticket],
    participate: Callable[..., Awaitable[Ticket]],
    **settings: Any,
) -> None:
    """Lets a client live with these tickets; `participate` stands for its part in each run."""

    async def next_run(*_: Any) -> Ticket:
        return tickets.pop(0)

    async def run_experiment(*_: Any) -> tuple[Experiment, int]:
        return Experiment.load("digits-benign"), 100

    async def build(*_: Any) -> Any:
        return None

    doubles = {"next_run": next_run, "run_experiment": run_experiment, "participate": participate}
    for name, double in doubles.items():
        monkeypatch.setattr(module, name, double)
    with ThreadPoolExecutor(1) as thread:
        known = AgentSettings(state=folder, **settings)
        client = HostedClient(known, Policy(), build, None, thread, 0)
        await client.live(folder / "ada", None, leaves=False)


@pytest.mark.usefixtures("offline")
async def test_a_client_takes_part_again_after_its_disk_was_full(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tickets, took_part = [TRAIN, TRAIN, BARRED], list[Ticket]()

    async def next_run(*_: Any) -> Ticket:
        return tickets.pop(0)

    async def take_part(self: HostedClient, *arguments: Any) -> Ticket:
        took_part.append(arguments[-1])
        if len(took_part) == 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return TRAIN.model_copy(update={"kind": "done"})

    monkeypatch.setattr(module, "next_run", next_run)
    monkeypatch.setattr(HostedClient, "_take_part", take_part)
    with ThreadPoolExecutor(1) as thread:
        await hosted(tmp_path, thread).live(tmp_path / "ada", None, leaves=False)
    assert took_part == [TRAIN, TRAIN]
    assert "No space left on device" in caplog.text


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("fails", ["lock_folder", "establish", "ActivityLog"])
async def test_a_client_that_starts_while_its_disk_is_full_tries_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture, fails: str
) -> None:
    attempts, works = list[bool](), getattr(module, fails)

    def full_at_first(*arguments: Any, **options: Any) -> Any:
        attempts.append(True)
        if len(attempts) < 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        return works(*arguments, **options)

    async def next_run(*_: Any) -> Ticket:
        return BARRED

    monkeypatch.setattr(module, fails, full_at_first)
    monkeypatch.setattr(module, "next_run", next_run)
    with ThreadPoolExecutor(1) as thread:
        await hosted(tmp_path, thread).live(tmp_path / "ada", None, leaves=False)
    assert len(attempts) == 3
    assert "No space left on device" in caplog.text


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize(
    ("slug", "survives"),
    [
        ("run-not-found", True),
        ("not-a-member", True),
        ("evicted", True),
        ("unauthorized", False),
    ],
)
async def test_a_client_whose_run_was_deleted_while_it_was_away_takes_part_in_the_next_run(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    slug: str,
    survives: bool,
) -> None:
    tickets, former, asked = [TRAIN, BARRED], list[Ticket | None](), list[str]()

    async def next_run(*arguments: Any) -> Ticket:
        former.append(arguments[-1])
        return tickets.pop(0)

    async def run_experiment(_: Any, run: str, __: Path) -> tuple[Experiment, int]:
        asked.append(run)
        raise RequestRefused(404, slug, "there is no run test-1")

    monkeypatch.setattr(module, "next_run", next_run)
    monkeypatch.setattr(module, "run_experiment", run_experiment)
    with ThreadPoolExecutor(1) as thread:
        living = hosted(tmp_path, thread).live(tmp_path / "ada", None, leaves=False)
        if survives:
            await living
            assert "there is no run test-1" in caplog.text
        else:
            with pytest.raises(RequestRefused):
                await living
    assert asked == ["test-1"]
    assert former == ([None, None] if survives else [None])


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("stays", [True, False])
@pytest.mark.parametrize("fails", ["build", "work"])
async def test_a_client_that_cannot_train_waits_for_the_next_run_if_it_is_told_to(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, stays: bool, fails: str
) -> None:
    tickets, sat_out = [TRAIN, BARRED], list[Ticket]()
    experiment = Experiment.load("digits-benign")

    async def next_run(*_: Any) -> Ticket:
        return tickets.pop(0)

    async def run_experiment(*_: Any) -> tuple[Experiment, int]:
        return experiment, 100

    async def build(*_: Any) -> Any:
        if fails == "build":
            raise RuntimeError("cannot train")

    async def participate(*_: Any) -> Ticket:
        with own_errors():
            raise RuntimeError("cannot train")

    async def sit_out(_: Any, ticket: Ticket) -> Ticket:
        sat_out.append(ticket)
        return ticket.model_copy(update={"kind": "done"})

    for name, double in {
        "next_run": next_run,
        "run_experiment": run_experiment,
        "participate": participate,
        "sit_out": sit_out,
    }.items():
        monkeypatch.setattr(module, name, double)
    with ThreadPoolExecutor(1) as thread:
        known = AgentSettings(state=tmp_path, stay_after_errors=stays)
        client = HostedClient(known, Policy(), build, None, thread, 0)
        if stays:
            await client.live(tmp_path / "ada", None, leaves=False)
        else:
            with pytest.raises(RuntimeError, match="cannot train"):
                await client.live(tmp_path / "ada", None, leaves=False)
    assert sat_out == ([TRAIN] if stays else [])


@pytest.mark.usefixtures("offline")
async def test_a_client_that_takes_part_in_a_run_tidies_the_folders_of_former_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It was offline when these runs ended, so nobody told it that they had ended."""
    runs, tickets = tmp_path / "ada/runs", [TRAIN.model_copy(update={"run": "test-3"}), BARRED]
    state = {"model": torch.zeros(2)}
    for run in ("test-1", "test-2", "test-3"):
        former = TRAIN.model_copy(update={"run": run})
        RunFiles(runs / run).keep(former, b"the bytes of an upload", state)

    async def participate(*arguments: Any) -> Ticket:
        found = sorted(str(path.relative_to(runs)) for path in runs.glob("*/*"))
        assert found == ["test-2/personal.safetensors", "test-3/train.kept"]
        return TRAIN.model_copy(update={"run": "test-3", "kind": "evicted"})

    await live(monkeypatch, tmp_path, tickets, participate, personal_models_kept=1)
    assert tickets == [], "the client asked for its next run"


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize(
    ("last", "over"),
    [
        (TRAIN.model_copy(update={"kind": "done"}), True),
        (TRAIN.model_copy(update={"kind": "offer", "run": "test-2"}), True),
        (Ticket(kind="wait"), True),
        (TRAIN.model_copy(update={"kind": "evicted"}), False),
        (BARRED, False),
    ],
    ids=["done", "next-run", "deleted", "evicted", "barred"],
)
async def test_a_client_that_may_return_to_its_run_keeps_its_state(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, last: Ticket, over: bool
) -> None:
    tickets, folder = [TRAIN, BARRED], tmp_path / "ada/runs/test-1"
    RunFiles(folder).keep(TRAIN, b"the bytes of an upload", {"model": torch.zeros(2)})

    async def participate(*_: Any) -> Ticket:
        return last

    await live(monkeypatch, tmp_path, tickets, participate)
    left = ["personal.safetensors"] if over else ["train.kept"]
    assert [path.name for path in folder.iterdir()] == left


@pytest.mark.parametrize(
    ("error", "disk"),
    [
        (OSError(errno.ENOSPC, "full"), True),
        (OSError(errno.EIO, "broken"), True),
        (FileNotFoundError(errno.ENOENT, "my.csv"), False),
        (TimeoutError(), False),
        (ValueError("a bug"), False),
    ],
)
def test_only_errors_of_a_full_or_broken_disk_are_worth_a_repetition(
    error: Exception, disk: bool
) -> None:
    with pytest.raises(OSError if disk else ParticipantError), own_errors():
        raise error


@pytest.mark.parametrize(
    "arrays",
    [
        {"x_train": (4, 8, 8), "y_train": [0, 1, 2, 3]},
        {"x_train": (4, 3, 3), "y_train": [0, 1, 2, 3]},
        {"x_train": (4, 8, 8), "y_train": [0, 1, 2, 10]},
    ],
)
async def test_a_client_declines_runs_that_its_own_data_do_not_fit(
    tmp_path: Path, arrays: Mapping[str, Any]
) -> None:
    own = tmp_path / "secret.npz"
    x, y = np.zeros(arrays["x_train"], np.float32), np.array(arrays["y_train"])
    np.savez(own, x_train=x, y_train=y, x_test=x, y_test=y)
    part = Experiment.load("digits-benign").client_part()
    with ThreadPoolExecutor(1) as thread:
        client = hosted(tmp_path, thread, data_file=own)
        accept, reason, _ = await client._decide(ActivityLog(tmp_path), "test-1", part)
    fits = x.shape == (4, 8, 8) and max(y) < 10
    assert accept == fits
    assert reason == ("" if fits else "the client's own data do not fit this experiment")
    (line,) = (tmp_path / "activity.jsonl").read_text().splitlines()
    assert json.loads(line).get("data") == (str(own) if fits else None)
