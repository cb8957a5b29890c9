"""A user's own client: beside ordinary clients over HTTP, and the arguments that it gets."""

import asyncio
import io
import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rampart_fl.services.client_agent.custom import FitEvaluate, numbers, take_part
from rampart_fl.services.console import testing
from rampart_fl.services.console.launcher.processes import free_port
from rampart_fl.services.console.testing import RunningFederation
from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.modelspec import ModelSpec
from rampart_fl.shared.protocol import wire
from rampart_fl.shared.protocol.messages import MOST_METRICS, Ticket

DOCS = Path(__file__).parents[3] / "docs/your-own-client.md"
EXPERIMENT = """
name = "own-clients"
rounds = 3
[data]
dataset = "digits"
clients = 4
[model]
name = "mlp"
hidden = []
[training]
epochs = 30
batch_size = 20
learning_rate = 0.5
[phases.collecting]
count = { min = 1.0 }
"""
SPEC = ModelSpec.of([("bias", (2,)), ("weight", (2, 3))])
MODEL = wire.encode(SPEC, np.arange(8, dtype=np.float32))


@pytest.fixture
def my_client(tmp_path: Path) -> Path:
    """The module that the manual shows."""
    (source,) = re.findall(r"```python\n(# my_client\.py\n.*?)```", DOCS.read_text(), re.DOTALL)
    path = tmp_path / "my_client.py"
    path.write_text(source)
    return path


def test_documented_client_has_the_stated_number_of_lines(my_client: Path) -> None:
    lines = [line for line in my_client.read_text().splitlines() if line and line[0] != "#"]
    assert f"in {len(lines)} lines" in DOCS.read_text()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningFederation]:
    """A federation of this test's own, because the test bars clients from it."""
    with testing.run(Experiment.parse(EXPERIMENT), tmp_path / "federation") as running:
        yield running


@pytest.mark.processes
def test_documented_client_takes_part_beside_ordinary_clients(
    running: RunningFederation, my_client: Path, tmp_path: Path
) -> None:
    """Two ordinary agents, the manual's client as a command, and the same one from Python."""
    names = running.experiment.client_names
    tokens = running.operator.mint(names).tokens
    running.local.clients.start_group("ordinary", None, [0, 1], tokens[:2])
    running.local.processes.python(
        "own",
        "rampart_fl.services.client_agent",
        *("--client", "my_client:Mine", "--aggregator", running.url),
        *("--slots", "2", "--state", str(tmp_path / "state")),
        RAMPART_JOIN_TOKEN=tokens[2],
        PYTHONPATH=os.pathsep.join([str(my_client.parent), *sys.path]),
    )
    source: dict[str, Any] = {}
    exec(my_client.read_text(), source)
    with ThreadPoolExecutor(1) as thread:
        client, state = source["Mine"](3), tmp_path / "other"
        ended = thread.submit(take_part, client, running.url, tokens[3], state)
        running.wait(patience=90)
        assert not ended.done(), "it waits for the next run"
        for name in names[2:]:
            running.operator.decide_everywhere(name, "evict", "the test is over")
        ended.result(30)
    assert running.local.processes["own"].wait(30) == 0
    records = running.run.rounds()
    assert [record.participants for record in records] == [names] * 3
    for name in names[2:]:
        first, last = records[0].metrics[name], records[-1].metrics[name]
        assert last["train_samples"] == last["test_samples"] >= 89
        assert last["loss"] < first["loss"]
        assert last["correct_customized"] / last["test_samples"] > 0.85
    assert all(verdict.decision == "accepted" for verdict in records[-1].verdicts)


@pytest.mark.processes
@pytest.mark.long
def test_documented_test_passes(my_client: Path) -> None:
    folder, manual = my_client.parent, DOCS.read_text()
    for name in ("test_mine.py", "mine.toml"):
        (text,) = re.findall(rf"```\w+\n(# {re.escape(name)}\n.*?)```", manual, re.DOTALL)
        (folder / name).write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", "."],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(DOCS.parents[1] / "src")},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout
    assert re.match(r"\.\s+\[100%\]\n1 passed in [^\n]*\n$", done.stdout), "a clean run"


@pytest.mark.processes
def test_documented_plain_client_takes_part(
    rampart_run: Callable[[Experiment], RunningFederation], tmp_path: Path
) -> None:
    (source,) = re.findall(r"```python\n(# plain\.py\n.*?)```", DOCS.read_text(), re.DOTALL)
    assert "rampart_fl" not in source
    (tmp_path / "plain.py").write_text(source)
    plan = Experiment.parse(EXPERIMENT).model_dump(mode="json")
    plan["data"]["clients"] = 2
    plan["server"]["customizer"] = {"name": "fedcap"}
    running = rampart_run(Experiment.from_tables(plan))
    for name, token in zip("ab", running.operator.mint(["a", "b"]).tokens, strict=True):
        command = [sys.executable, str(tmp_path / "plain.py"), running.url, token]
        running.local.processes.start(name, command)
    running.wait(patience=90)
    assert [running.local.processes[name].wait(30) for name in "ab"] == [0, 0]
    assert [record.participants for record in running.run.rounds()] == [["a", "b"]] * 3
    assert running.run.evaluations().keys() == {"a", "b"}


@pytest.mark.processes
def test_documented_commands_end_with_the_records_of_the_run(my_client: Path) -> None:
    """The commands run as the page shows them, but on free ports."""
    folder, manual = my_client.parent, DOCS.read_text(encoding="utf-8")
    (table,) = re.findall(r"```toml\n(# mine\.toml\n.*?)```", manual, re.DOTALL)
    (folder / "mine.toml").write_text(table)
    (block,) = re.findall(r"```sh\n(redis=.*?)```", manual, re.DOTALL)
    redis, port = free_port(), free_port()
    block = block.replace("$redis ", f"$redis --port {redis} ").replace("8440", str(port))
    scripts = str(Path(sys.executable).parent)
    mine = {
        "PATH": os.pathsep.join([scripts, os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join([str(DOCS.parents[1] / "src"), str(folder)]),
        "RAMPART_REDIS_URL": f"redis://127.0.0.1:{redis}",
        "RAMPART_PORT": str(port),
    }
    with (
        (folder / "out").open("wb") as out,
        subprocess.Popen(
            ["bash", "-e", "-c", block],
            cwd=folder,
            env={**os.environ, **mine},
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as shell,
    ):
        try:
            code = shell.wait(timeout=200)
        finally:
            os.killpg(shell.pid, signal.SIGKILL)  # Redis, the aggregator and the clients.
    printed = (folder / "out").read_text(encoding="utf-8")
    assert code == 0, (printed, *(log.read_text() for log in folder.glob("*.log")))
    assert len(re.findall(r"^ *│? *\d+ .*published", printed, re.MULTILINE)) >= 5, printed


class Counting:
    """Adds 1 to every parameter, and remembers the configurations that it gets."""

    def __init__(self) -> None:
        self.configs: list[dict[str, Any]] = []
        self.fitted: Any = None
        self.answer: Any = None
        self.samples: Any = 7
        self.measured: Any = (0.5, 4, {"accuracy": 0.75})

    def fit(self, parameters: list[np.ndarray], config: dict[str, Any]) -> Any:
        self.configs.append(config)
        for array in parameters:
            array += 1
        result = parameters if self.answer is None else self.answer
        if self.fitted is not None:
            return self.fitted
        return result, self.samples, {"effort": np.float32(2), "loss": 9.0}

    def evaluate(self, parameters: list[np.ndarray], config: dict[str, Any]) -> Any:
        self.configs.append(config)
        return self.measured


def make(client: Any, folder: Path, cap: int = 5) -> FitEvaluate:
    return FitEvaluate(client, Experiment.parse(EXPERIMENT), "me", folder, cap)


def ticket(kind: Any = "train", round_: int = 4) -> Ticket:
    return Ticket(round=round_, kind=kind, models={"model": "0" * 64}, experiment="0" * 64)


def test_upload_contains_the_trained_model_samples_and_metrics(tmp_path: Path) -> None:
    client = Counting()
    upload = asyncio.run(make(client, tmp_path).work(ticket(), MODEL))
    head = wire.read_header(io.BytesIO(upload), len(upload), SPEC)
    report = wire.read_report(head, sample_cap=5)
    assert wire.read_model(upload, SPEC).tolist() == [1.0] * 8
    assert report.samples == 5
    assert report.metrics == {
        "effort": 2,
        "loss": 0.5,
        "accuracy": 0.75,
        "correct_customized": 3,
        "test_samples": 4,
        "train_samples": 7,
    }
    measured, trained = client.configs
    assert measured == trained
    facts = {"round": 4, "kind": "train", "client": "me", "tensors": ["bias", "weight"]}
    assert facts.items() <= trained.items()
    assert (trained["epochs"], trained["batch_size"], trained["learning_rate"]) == (30, 20, 0.5)


@pytest.mark.parametrize("number", [np.nan, -np.inf, 1e60])
def test_non_finite_parameters_are_reported_as_diverged(tmp_path: Path, number: float) -> None:
    client = Counting()
    client.answer = [np.full(tensor.shape, number) for tensor in SPEC.tensors]
    upload = asyncio.run(make(client, tmp_path).work(ticket(), MODEL))
    head = wire.read_header(io.BytesIO(upload), len(upload), SPEC)
    assert wire.read_report(head, sample_cap=5).diverged
    assert wire.read_model(upload, SPEC).tolist() == [0.0] * 8


def test_repeated_ticket_gets_the_same_upload_without_training_again(tmp_path: Path) -> None:
    client = Counting()
    first = asyncio.run(make(client, tmp_path).work(ticket(), MODEL))
    again = asyncio.run(make(client, tmp_path).work(ticket(), MODEL))
    assert again == first
    assert len(client.configs) == 2
    asyncio.run(make(client, tmp_path).work(ticket(round_=5), MODEL))
    assert len(client.configs) == 4


def test_probe_is_trained_but_not_evaluated(tmp_path: Path) -> None:
    client = Counting()
    asyncio.run(make(client, tmp_path).work(ticket("probe"), MODEL))
    assert [config["kind"] for config in client.configs] == ["probe"]


def test_final_model_is_evaluated(tmp_path: Path) -> None:
    measured = asyncio.run(make(Counting(), tmp_path).evaluate(ticket("evaluate"), MODEL))
    assert measured == {"loss": 0.5, "accuracy": 0.75, "correct_customized": 3, "test_samples": 4}


@pytest.mark.parametrize(
    "answer", [[np.zeros(2)], [np.zeros(2), np.zeros((3, 2))], [np.zeros((2, 3)), np.zeros(2)]]
)
def test_parameters_of_other_shapes_are_refused(tmp_path: Path, answer: Any) -> None:
    client = Counting()
    client.answer = answer
    message = r"fit returned shapes .*; the model has bias \(2,\), weight \(2, 3\)"
    with pytest.raises(ConfigurationError, match=message):
        asyncio.run(make(client, tmp_path).work(ticket(), MODEL))


def test_training_on_zero_samples_is_refused(tmp_path: Path) -> None:
    client = Counting()
    client.samples = 0
    with pytest.raises(ConfigurationError, match="0 samples"):
        asyncio.run(make(client, tmp_path).work(ticket(), MODEL))


ARRAYS = [np.zeros(2), np.zeros((2, 3))]
NO_WHOLE_NUMBER = r"as the number of samples; it must be a whole number from 0 to 1000000000"


@pytest.mark.parametrize(
    ("fitted", "message"),
    [
        ((ARRAYS, 7), r"fit must return \(parameters, number of samples, metrics\), not"),
        (ARRAYS, r"fit must return \(parameters, number of samples, metrics\), not"),
        (7, r"fit must return \(parameters, number of samples, metrics\), not 7"),
        ((None, 7, {}), "fit must return arrays of numbers: 'NoneType' object is not iterable"),
        ((["a", "b"], 7, {}), "fit must return arrays of numbers: could not convert string"),
        ((ARRAYS, 7, None), "the metrics must be a dict, not None"),
        ((ARRAYS, 7, [1.0]), r"the metrics must be a dict, not \[1.0\]"),
        ((ARRAYS, 12.5, {}), f"fit returned 12.5 {NO_WHOLE_NUMBER}"),
        ((ARRAYS, float("nan"), {}), f"fit returned nan {NO_WHOLE_NUMBER}"),
        ((ARRAYS, None, {}), f"fit returned None {NO_WHOLE_NUMBER}"),
        ((ARRAYS, 10**10, {}), f"fit returned 10000000000 {NO_WHOLE_NUMBER}"),
    ],
)
def test_wrong_results_of_fit_are_refused(tmp_path: Path, fitted: Any, message: str) -> None:
    client = Counting()
    client.fitted = fitted
    with pytest.raises(ConfigurationError, match=message):
        asyncio.run(make(client, tmp_path).work(ticket(), MODEL))


@pytest.mark.parametrize(
    ("measured", "message"),
    [
        ((0.5, 4), r"evaluate must return \(loss, number of samples, metrics\), not \(0.5, 4\)"),
        (0.5, r"evaluate must return \(loss, number of samples, metrics\), not 0.5"),
        ((0.5, 4, None), "the metrics must be a dict, not None"),
        ((0.5, 0.5, {}), f"evaluate returned 0.5 {NO_WHOLE_NUMBER}"),
        ((0.5, -199, {}), f"evaluate returned -199 {NO_WHOLE_NUMBER}"),
    ],
)
def test_wrong_results_of_evaluate_are_refused(tmp_path: Path, measured: Any, message: str) -> None:
    client = Counting()
    client.measured = measured
    with pytest.raises(ConfigurationError, match=message):
        asyncio.run(make(client, tmp_path).evaluate(ticket("evaluate"), MODEL))


@pytest.mark.parametrize("samples", [7, 7.0, np.int64(7), np.float32(7)])
def test_whole_numbers_of_any_type_are_accepted(tmp_path: Path, samples: Any) -> None:
    client = Counting()
    client.samples = samples
    upload = asyncio.run(make(client, tmp_path, cap=100).work(ticket(), MODEL))
    report = wire.read_report(wire.read_header(io.BytesIO(upload), len(upload), SPEC), 100)
    assert (report.samples, report.metrics["train_samples"]) == (7, 7)


def test_unreportable_metrics_are_left_out_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        kept = numbers({"a": 1, "b": float("inf"), "C": 2.0, "d": "warm", "e": None})
    assert kept == {"a": 1.0}
    assert len(caplog.records) == 4


def test_metrics_beyond_the_maximum_number_are_left_out_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    client = Counting()
    client.measured = 0.5, 4, {"accuracy": 0.75, **{f"class_{n}": 0.5 for n in range(100)}}
    participant = make(client, tmp_path)
    upload = asyncio.run(participant.work(ticket(), MODEL))
    report = wire.read_report(wire.read_header(io.BytesIO(upload), len(upload), SPEC), 5)
    measured = asyncio.run(participant.evaluate(ticket("evaluate"), MODEL))
    for metrics in (report.metrics, measured):
        assert MOST_METRICS - 2 <= len(metrics) <= MOST_METRICS
        assert {
            "accuracy",
            "loss",
            "test_samples",
            "correct_customized",
            "class_0",
        } <= metrics.keys()
        assert "class_99" not in metrics
    assert report.metrics["train_samples"] == 7
    assert "'class_99' with value 0.5 cannot be reported" in caplog.text


@pytest.mark.parametrize("accuracy", [75.0, -0.1, 1.01])
def test_accuracy_outside_0_to_1_is_left_out_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, accuracy: float
) -> None:
    client = Counting()
    client.measured = 0.5, 4, {"accuracy": accuracy}
    measured = asyncio.run(make(client, tmp_path).evaluate(ticket("evaluate"), MODEL))
    assert measured == {"loss": 0.5, "test_samples": 4}
    assert caplog.messages == [f"the metric 'accuracy' with value {accuracy} cannot be reported"]


def test_impossible_counts_are_left_out_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The aggregator would refuse the report, and with it the update."""
    client = Counting()
    client.measured = 0.5, 4, {"correct_local": 5, "fooled_local": 2, "triggered_samples": 1}
    upload = asyncio.run(make(client, tmp_path).work(ticket(), MODEL))
    report = wire.read_report(wire.read_header(io.BytesIO(upload), len(upload), SPEC), 5)
    assert {"test_samples", "triggered_samples"} <= report.metrics.keys()
    assert not {"correct_local", "fooled_local"} & report.metrics.keys()
    assert len(caplog.records) == 2
