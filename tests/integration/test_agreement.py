"""Real agents and the simulator get the same result from the same experiment.

Legend: D coordinates.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from pydantic import SecretStr

from rampart_fl.services.aggregator.state.blobs import Blobs
from rampart_fl.services.aggregator.state.stores import Stores
from rampart_fl.services.console.launcher.client_processes import ClientProcesses
from rampart_fl.services.console.launcher.forked import ForkedProcesses
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.figures.final import final_figures
from rampart_fl.shared.learning.training.learner import Learner
from rampart_fl.shared.protocol.messages import Receipt
from rampart_fl.shared.runtime.tokens import mint
from rampart_fl.shared.simulation import simulate
from tests.integration.in_process_federation import QUICK, Hosted, vector

Host = Callable[..., Hosted]
SMALL = """
name = "agreement"
seed = 3
rounds = {rounds}
fraction = {fraction}
[data]
dataset = "digits"
partition = {{ name = "classes_per_client", classes = 2 }}
clients = {clients}
[server]
detectors = ["response"]
customizer = {{ name = "fedcap", alpha = 10, phi = 0.1 }}
"""
ATTACKERS = """
[[attackers]]
count = 2
attack = "sign_flip"
"""


GROUPS = """
[[attackers]]
count = 2
attack = { name = "gaussian", std = 0.5 }
[[attackers]]
count = 2
data_attack = { name = "dba", width = 2, gap = 1, epochs = 2, learning_rate = 0.02 }
"""


def small(**sizes: float) -> str:
    """An experiment's file."""
    return SMALL.format(**sizes) + QUICK


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps every blob, so that a test can read the models of early rounds at the end."""
    monkeypatch.setattr(Blobs, "delete", lambda self, digests, before: {})


@contextmanager
def agents(
    hosted: Hosted, experiment: Experiment, folder: Path, tap: str | None = None
) -> Iterator[ClientProcesses]:
    """Starts agents and attackers of this federation as processes."""
    own = folder / "agents"
    processes = ForkedProcesses(own / "logs")
    try:
        yield ClientProcesses(experiment, own, hosted.operator, processes, test_tap=tap)
    finally:
        processes.stop_all()


@pytest.mark.usefixtures("kept")
def test_federation_over_http_matches_the_simulator(host: Host, tmp_path: Path) -> None:
    text = small(rounds=6, fraction=0.8, clients=6) + ATTACKERS
    experiment = Experiment.parse(text)
    expected, hosted = simulate(experiment), host(experiment)
    first = simulate(Experiment.parse(text.replace("rounds = 6", "rounds = 1")))
    with agents(hosted, experiment, tmp_path) as clients:
        clients.start()
        status = hosted.wait(patience=120)
    records = hosted.run.rounds()

    blobs = Blobs(tmp_path / "blobs" / hosted.settings.namespace / hosted.run.id)
    for digest, model_D in [
        (records[0].models["global"], first.global_D),
        *((digest, first.models[name]) for name, digest in records[0].customized.items()),
    ]:
        with blobs.open(digest) as file:
            np.testing.assert_allclose(vector(file.read()), model_D, rtol=0, atol=1e-5)

    assert len(records) == len(expected.records)
    for record, simulated in zip(records, expected.records, strict=True):
        assert record.participants == simulated.participants
        assert record.probed == simulated.probed
        decided = [(v.client, v.decision, v.detector) for v in record.verdicts]
        assert decided == [(v.client, v.decision, v.detector) for v in simulated.verdicts]
        assert record.norms == pytest.approx(simulated.norms, rel=1e-2)
        assert record.bytes_down == simulated.bytes_down
        assert record.bytes_up == pytest.approx(simulated.bytes_up, abs=40), "digits of metrics"
        assert list(record.mixing) == list(simulated.mixing)
        for name, shares in simulated.mixing.items():
            assert record.mixing[name] == pytest.approx(shares, abs=1e-3)
    assert any(record.mixing for record in records)
    metrics = final_figures(experiment, [record.metrics for record in records], status.evicted)
    assert metrics["evicted"] == expected.figures["evicted"]
    assert any(record.probed for record in records)
    for name, value in expected.figures.items():
        if name.startswith("accuracy"):
            assert metrics[name] == pytest.approx(value, abs=0.005), name


def test_challenges_over_http_match_the_simulator(host: Host, tmp_path: Path) -> None:
    """Challenged senders of copies start from their own models, and get equal verdicts.

    Some rounds summon senders that were not drawn.
    """
    attack = '[[attackers]]\ncount = 3\nattack = { name = "ipm", epsilon = 0.5 }\n'
    text = small(rounds=6, fraction=0.6, clients=10) + attack
    experiment = Experiment.parse(text.replace('"response"', '"response", "challenge"'))
    expected, hosted = simulate(experiment), host(experiment)
    with agents(hosted, experiment, tmp_path) as clients:
        clients.start()
        status = hosted.wait(patience=120)
    records = hosted.run.rounds()
    assert any(name.startswith("challenge:") for record in records for name in record.customized)
    assert any(record.examined for record in records)
    for record, simulated in zip(records, expected.records, strict=True):
        assert record.examined == simulated.examined
        assert set(record.weights) <= set(record.participants) - set(record.examined)
        assert record.probed == simulated.probed
        decided = [(v.client, v.decision, v.detector) for v in record.verdicts]
        assert decided == [(v.client, v.decision, v.detector) for v in simulated.verdicts]
        assert record.norms == pytest.approx(simulated.norms, rel=1e-2)
        assert record.bytes_down == simulated.bytes_down
    metrics = final_figures(experiment, [record.metrics for record in records], status.evicted)
    for name, value in expected.figures.items():
        if name.startswith("accuracy"):
            assert metrics[name] == pytest.approx(value, abs=0.005), name


@pytest.mark.parametrize(
    "eviction",
    [
        pytest.param('mode = "observe"', marks=pytest.mark.long),
        pytest.param('mode = "reject"', marks=pytest.mark.long),
        'mode = "quarantine", rounds = 2',
        'by = "operator", patience = 1',
        "",
    ],
)
def test_every_eviction_mode_over_http_matches_the_simulator(
    host: Host, tmp_path: Path, eviction: str
) -> None:
    """With two attackers and f = 1, only one may be excluded at a time."""
    text = small(rounds=5, fraction=1.0, clients=5) + ATTACKERS.replace("sign_flip", "gaussian")
    text = text.replace('"response"', '{ name = "norm_bound", threshold = 3 }')
    text = text.replace("[server]", f"[server]\nf = 1\neviction = {{ {eviction} }}")
    experiment = Experiment.parse(text.replace('"gaussian"', '{ name = "gaussian", std = 1.0 }'))
    expected, hosted = simulate(experiment), host(experiment)
    with agents(hosted, experiment, tmp_path) as clients:
        clients.start()
        status = hosted.wait(patience=120)
    for record, simulated in zip(hosted.run.rounds(), expected.records, strict=True):
        assert record.participants == simulated.participants
        assert record.quarantined == simulated.quarantined
        assert record.mode == simulated.mode == experiment.server.eviction.mode
        assert record.probed == simulated.probed
        verdicts = [(v.client, v.decision, v.asked) for v in record.verdicts]
        assert verdicts == [(v.client, v.decision, v.asked) for v in simulated.verdicts]
    assert status.evicted == expected.figures["evicted"]


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize("placement", ["random", "last"])
def test_attacker_groups_over_http_match_the_simulator(
    host: Host, tmp_path: Path, placement: str
) -> None:
    """An attacker's noise, or its part of the trigger, depends on its index among all attackers."""
    text = small(rounds=2, fraction=1.0, clients=6).replace("detectors", "# detectors")
    text = text.replace("[server]", 'reserved = 100\n[server]\ntest = { dataset = "digits" }')
    experiment = Experiment.parse(f'placement = "{placement}"\n{text}{GROUPS}')
    noise, bars = experiment.attackers
    honest = None
    assert (
        experiment.roles
        == {
            "random": [bars, honest, noise, honest, bars, noise],
            "last": [honest, honest, noise, noise, bars, bars],
        }[placement]
    )
    expected, hosted = simulate(experiment), host(experiment)
    with agents(hosted, experiment, tmp_path) as clients:
        clients.start()
        assert clients.processes.names == [f"clients-{number}" for number in range(3)], (
            "without colluders, there is no cohort"
        )
        hosted.wait(patience=120)
    last = hosted.run.rounds()[-1]
    assert last.norms == pytest.approx(expected.records[-1].norms, rel=1e-3)
    assert last.tested == pytest.approx(expected.records[-1].tested, abs=1)
    assert last.tested["test_samples"] == 100
    with Blobs(tmp_path / "blobs" / hosted.settings.namespace / hosted.run.id).open(
        last.models["global"]
    ) as file:
        np.testing.assert_allclose(vector(file.read()), expected.global_D, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("lie", "fraction"),
    [('{ name = "lie" }', 1.0), ('{ name = "lie", z = 1, knows = "full" }', 0.7)],
    ids=["partial", "full"],
)
def test_colluders_over_http_use_the_updates_of_all_attackers_as_in_the_simulator(
    host: Host, tmp_path: Path, lie: str, fraction: float
) -> None:
    """Other attackers share their updates, too, and the tap does not count them as honest."""
    text = small(rounds=2, fraction=fraction, clients=8).replace("detectors", "# detectors")
    groups = f"""
[[attackers]]
count = 1
attack = {lie}
[[attackers]]
count = 1
attack = "sign_flip"
[[attackers]]
count = 1
data_attack = {{ name = "dba", width = 2, gap = 1, scale = 3 }}
"""
    experiment, tap = Experiment.parse(text + groups), mint()
    expected, hosted = simulate(experiment), host(experiment, test_tap=SecretStr(tap))
    with agents(hosted, experiment, tmp_path, tap) as clients:
        clients.start()
        hosted.wait(patience=240)
        clients.processes.check()
        waits = (tmp_path / "agents" / "logs" / "cohort.log").read_text().count("timed out")
    for record, simulated in zip(hosted.run.rounds(), expected.records, strict=True):
        assert record.norms == pytest.approx(simulated.norms, rel=1e-3)
    assert waits == 0, "every attacker has reported"


def test_colluders_over_http_do_not_count_evicted_attackers_as_in_the_simulator(
    host: Host, tmp_path: Path
) -> None:
    """The factor of IPM is the number of participants, which an eviction lowers."""
    text = small(rounds=3, fraction=1.0, clients=7)
    text = text.replace('"response"', '{ name = "norm_bound", threshold = 100 }')
    groups = """
[[attackers]]
count = 2
attack = "ipm"
[[attackers]]
count = 1
attack = { name = "gaussian", std = 10 }
"""
    experiment = Experiment.parse(text + groups)
    expected, hosted = simulate(experiment), host(experiment)
    with agents(hosted, experiment, tmp_path) as clients:
        clients.start()
        status = hosted.wait(patience=120)
    assert len(status.evicted) == 1 and status.evicted == expected.figures["evicted"]
    for record, simulated in zip(hosted.run.rounds(), expected.records, strict=True):
        assert record.participants == simulated.participants
        assert record.norms == pytest.approx(simulated.norms, rel=1e-2)


@pytest.mark.usefixtures("kept")
def test_scores_of_uncalibrated_uploads_over_http_match_the_simulator(
    host: Host, tmp_path: Path
) -> None:
    """Without calibration, detectors judge raw uploads, and whole models are mixed and averaged."""
    text = small(rounds=3, fraction=0.6, clients=4)
    experiment = Experiment.parse(text.replace("[server]", "[server]\ncalibrate = false"))
    expected, hosted = simulate(experiment), host(experiment)
    with agents(hosted, experiment, tmp_path) as clients:
        clients.start()
        hosted.wait(patience=120)
    records = hosted.run.rounds()
    assert any(record.probed for record in records)
    for record, simulated in zip(records, expected.records, strict=True):
        scores = {v.client: v.score for v in simulated.verdicts}
        assert {v.client: v.score for v in record.verdicts} == pytest.approx(scores, rel=1e-3)
        assert record.norms == pytest.approx(simulated.norms, rel=1e-3)
    with Blobs(tmp_path / "blobs" / hosted.settings.namespace / hosted.run.id).open(
        records[-1].models["global"]
    ) as file:
        np.testing.assert_allclose(vector(file.read()), expected.global_D, rtol=0, atol=1e-4)


@pytest.mark.usefixtures("kept")
def test_running_statistics_over_http_match_the_simulator(host: Host, tmp_path: Path) -> None:
    """Customized and probed clients get only the median of the statistics, also over HTTP."""
    text = small(rounds=3, fraction=0.6, clients=4).replace(
        'name = "cnn"\nchannels = [4, 8]\nhidden = 16',
        'name = "wide_resnet"\ndepth = 10\nwidth = 1',
    )
    experiment = Experiment.parse(text.replace("clients = 4", "clients = 4\nsamples = 20"))
    expected, hosted = simulate(experiment), host(experiment)
    with agents(hosted, experiment, tmp_path) as clients:
        clients.start()
        hosted.wait(patience=120)
    blobs = Blobs(tmp_path / "blobs" / hosted.settings.namespace / hosted.run.id)

    def read(digest: str) -> np.ndarray:
        with blobs.open(digest) as file:
            return vector(file.read())

    records, end = hosted.run.rounds(), Learner.of(experiment).spec.trainable
    assert any(record.probed for record in records)
    last = records[-1]
    np.testing.assert_allclose(read(last.models["global"]), expected.global_D, rtol=0, atol=1e-3)
    for record in records:
        held_S = read(record.models["global"])[end:]
        assert len(held_S) == 2 * (16 + 16 + 16 + 32 + 32 + 64 + 64)
        for digest in record.customized.values():
            np.testing.assert_array_equal(read(digest)[end:], held_S)


DIVERGING = """
name = "diverging"
seed = 3
rounds = 2
[data]
dataset = "digits"
partition = { name = "classes_per_client", imbalance = 40 }
clients = 6
[model]
name = "mlp"
hidden = [16, 16, 16]
[training]
epochs = 1
batch_size = 150
learning_rate = 1e12
"""


def test_diverged_clients_continue_over_http_as_in_the_simulator(
    host: Host, tmp_path: Path
) -> None:
    """One step of this size leaves a finite update but no finite loss; two steps leave neither."""
    experiment = Experiment.parse(DIVERGING + QUICK[QUICK.index("[phases") :])
    expected, hosted = simulate(experiment), host(experiment)
    with agents(hosted, experiment, tmp_path) as clients:
        clients.start()
        hosted.wait(patience=120)
        clients.processes.check()
    records = hosted.run.rounds()
    decided = [[(v.client, v.decision, v.detector) for v in record.verdicts] for record in records]
    assert [len({decision for _, decision, _ in one}) for one in decided] == [2, 1]
    for record, simulated in zip(records, expected.records, strict=True):
        assert (record.status, record.participants) == (simulated.status, simulated.participants)
        assert record.missing == simulated.missing == []
        reasons = [(v.client, v.decision, v.detector, v.reason) for v in simulated.verdicts]
        assert [(v.client, v.decision, v.detector, v.reason) for v in record.verdicts] == reasons
        assert record.bytes_up == pytest.approx(simulated.bytes_up, abs=40), "digits of metrics"
        for client, metrics in simulated.metrics.items():
            assert record.metrics[client] == pytest.approx(metrics), client
            assert metrics["loss_gap"] == 0
            assert "loss_after" not in metrics


def test_uploads_in_every_format_are_accepted(host: Host, tmp_path: Path) -> None:
    formats = [("F32", "true"), ("F16", "false"), ("BF16", "true")]
    experiment = Experiment.parse(small(rounds=2, fraction=1.0, clients=3))
    expected, hosted = simulate(experiment).records[0].norms, host(experiment)
    names = experiment.client_names
    tokens = hosted.operator.mint(names).tokens
    with agents(hosted, experiment, tmp_path) as clients:
        for slot, (dtype, compress) in enumerate(formats):
            clients.processes.python(
                f"agent-{slot}",
                "rampart_fl.services.client_agent",
                RAMPART_AGGREGATOR=hosted.url,
                RAMPART_SLOTS=str(slot),
                RAMPART_STATE=str(tmp_path / f"state-{slot}"),
                RAMPART_JOIN_TOKEN=tokens[slot],
                RAMPART_UPLOAD_DTYPE=dtype,
                RAMPART_COMPRESS=compress,
                OMP_NUM_THREADS="1",
            )
        hosted.wait(patience=120)
        running = [clients.processes[f"agent-{slot}"] for slot in range(3)]
        assert [process.poll() for process in running] == [None] * 3, "they wait for the next run"
    for record in hosted.run.rounds():
        assert [v.decision for v in record.verdicts] == ["accepted"] * 3
    norms = hosted.record(0).norms
    for name, (dtype, _) in zip(names, formats, strict=True):
        tolerance = {"F32": 1e-5, "F16": 1e-3, "BF16": 1e-2}[dtype]
        assert norms[name] == pytest.approx(expected[name], rel=tolerance)

    async def receipts(stores: Stores) -> list[Receipt]:
        return await stores.of_run(hosted.run.id).uploads.receipts(0)

    sizes = {receipt.client: receipt.size for receipt in hosted.stores(receipts)}
    assert sizes[names[1]] < 0.6 * sizes[names[0]]
    assert sizes[names[2]] < 0.6 * sizes[names[0]]
