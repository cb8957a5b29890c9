"""Several global models over HTTP: who gets and may load which model, and the results.

Legend: D coordinates.
"""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks import chaos
from rampart_fl.services.aggregator.state.blobs import Blobs
from rampart_fl.services.attacker.hostile import HostileClient
from rampart_fl.shared.agent.client import RequestRefused
from rampart_fl.shared.agent.learning_client import LearningClient, client_experiment
from rampart_fl.shared.assignment import group_of
from rampart_fl.shared.attacks.data import attacks as data_attacks
from rampart_fl.shared.attacks.model import attacks
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.learning.data.client_data import client_data
from rampart_fl.shared.protocol.messages import Ticket
from rampart_fl.shared.robust.customizers.flcert import FLCert
from rampart_fl.shared.simulation import simulate
from tests.integration.in_process_federation import (
    Hold,
    Hosted,
    Scripted,
    collecting,
    experiment,
    upload_of,
    vector,
)
from tests.integration.in_process_federation import host as hosting

Host = Callable[..., Hosted]
NAMES = ["ada", "bob", "cleo", "dan", "eve", "fay"]
FLCERT = {"customizer": {"name": "flcert", "groups": 3}}
GROUPS = FLCert(groups=3).names
OWN = {name: group_of(name, GROUPS) for name in NAMES}


class Receiving(Scripted):
    """A scripted client that also loads the other models of its tickets."""

    others: dict[tuple[int, str], dict[str, bytes]]

    async def receive(self, ticket: Ticket, others: Mapping[str, bytes]) -> None:
        """Records them by round and kind."""
        held = {} if not hasattr(self, "others") else self.others
        self.others = {**held, (ticket.round, ticket.kind): dict(others)}


def start(hosted: Hosted, names: list[str]) -> dict[str, Receiving]:
    """Starts clients that record everything."""
    clients = {name: Receiving(name) for name in names}
    for name in names:
        hosted.join(name)
    for name, client in clients.items():
        hosted.take_part(name, client)
    return clients


def test_clients_train_their_groups_model_and_get_all_models_to_vote(host: Host) -> None:
    assert set(OWN.values()) == set(GROUPS)
    hosted = host(experiment(6, rounds=3, server=FLCERT))
    clients = start(hosted, NAMES)
    hosted.wait()
    models = {name: vector(clients["ada"].models[0]) for name in GROUPS}
    for number in range(3):
        record = hosted.record(number)
        assert record.assignment == {name: [OWN[name]] for name in NAMES}
        for group in GROUPS:
            members = [name for name in NAMES if OWN[name] == group]
            for name in members:
                np.testing.assert_allclose(
                    vector(clients[name].models[number]), models[group], rtol=0, atol=1e-6
                )
            # Weighted mean of the members alone; all of them claim the same number of samples.
            updates = [
                clients[name].update(number, "train", len(models[group])) for name in members
            ]
            models[group] = models[group] + np.mean(updates, axis=0)
    last = hosted.record(2).customized
    assert set(last) == set(GROUPS)
    for name, client in clients.items():
        assert client.tickets[-1].models["model"] == last[OWN[name]]
        votes = client.others[2, "evaluate"]
        assert sorted(votes) == ["vote_00", "vote_01", "vote_02"]
        for place, group in enumerate(GROUPS):
            found_D = vector(votes[f"vote_{place:02d}"])
            np.testing.assert_allclose(found_D, models[group], rtol=0, atol=1e-6)
        done = hosted.last_ticket(name).models
        assert done == {
            "model": last[OWN[name]],
            **{f"vote_{place:02d}": last[group] for place, group in enumerate(GROUPS)},
            "global": hosted.record(2).models["global"],
        }


def test_clients_may_load_only_their_own_groups_model(host: Host) -> None:
    hosted = host(experiment(6, rounds=2, server=FLCERT, phases=collecting(1.0)))
    hold = [True]
    for name in NAMES:
        hosted.join(name)
        hosted.take_part(name, Scripted(name, hold=lambda ticket: ticket.round == 1 and hold[0]))
    hosted.wait("collecting", 1)
    digests = hosted.record(0).customized
    for name in NAMES[:3]:
        connection = hosted.client(name)
        try:
            assert vector(hosted.soon(connection.model(hosted.run.id, digests[OWN[name]]))).size
            for group in set(GROUPS) - {OWN[name]}:
                with pytest.raises(RequestRefused, match="403 forbidden"):
                    hosted.soon(connection.model(hosted.run.id, digests[group]))
        finally:
            hosted.soon(connection.close())
    # A customized model out of turn is the model of the client's group, too.
    update = upload_of(hosted.model(digests[GROUPS[0]]))
    hosted.accept("eve")
    assert hosted.customize(update, "eve") == hosted.model(digests[OWN["eve"]])
    hosted.scripted(["eve"])
    hold[0] = False
    hosted.wait()


def test_groups_progress_with_the_buffered_policy(host: Host) -> None:
    """A client that pulls gets its group's newest model; no group changes without an update."""
    hosted = host(experiment(6, rounds=5, policy="buffered", buffer=2, server=FLCERT))
    clients = start(hosted, NAMES)
    hosted.wait()
    before, reported = dict.fromkeys(GROUPS, vector(clients["ada"].models[0])), set[str]()
    for number in range(5):
        record = hosted.record(number)
        assert record.status == "published"
        reported |= {OWN[name] for name in record.participants}
        assert record.assignment == {name: [OWN[name]] for name in record.participants}
        for group in GROUPS:
            if not any(OWN[name] == group for name in record.participants):
                assert record.customized[group] == hosted.record(0).models["reference"]
    for name, client in clients.items():
        known = {
            digest
            for n in range(5)
            for g, digest in hosted.record(n).customized.items()
            if g == OWN[name]
        }
        known.add(hosted.record(0).models["reference"])
        assert {ticket.models["model"] for ticket in client.tickets} <= known
    last = {group: hosted.model(digest) for group, digest in hosted.record(4).customized.items()}
    for group in GROUPS:
        moved = np.abs(vector(last[group]) - before[group]).max()
        # The updates are small: a group would move further if it counted one of them repeatedly.
        assert moved < 0.2
        # On a busy machine five rounds may end before a group's only client is heard.
        assert (moved > 0) == (group in reported)


LEARNING = """
name = "several"
seed = 4
rounds = 3
[data]
dataset = "digits"
clients = 6
samples = 60
[model]
name = "mlp"
hidden = [12]
[training]
epochs = 2
learning_rate = 0.1
[server]
customizer = {customizer}
[[attackers]]
count = 1
attack = "sign_flip"
"""


@contextmanager
def learning(hosted: Hosted, run: Experiment, folder: Path) -> Iterator[None]:
    """Runs the clients of an experiment as agents do, on one thread of this process."""
    known, names = client_experiment(run.client_part()), run.client_names
    with ThreadPoolExecutor(1, thread_name_prefix="training") as thread:
        for name in names:
            hosted.join(name)
        for slot, (name, role) in enumerate(zip(names, run.roles, strict=True)):
            own = {
                "experiment": known,
                "client": name,
                "data": client_data(run.data, slot, run.seed),
                "folder": folder / "learning" / name,
                "sample_cap": run.server.sample_cap,
                "thread": thread,
            }
            if role is None:
                hosted.take_part(name, LearningClient(**own))
                continue
            attack = None if role.attack is None else attacks.parse(role.attack)
            poison = None if role.data_attack is None else data_attacks.parse(role.data_attack)
            hosted.take_part(name, HostileClient(attack, poison, None, 1, 0, **own))
        yield


def test_votes_of_agents_match_the_simulator(host: Host, tmp_path: Path) -> None:
    run = Experiment.parse(LEARNING.format(customizer='{ name = "flcert", groups = 4 }'))
    expected, hosted = simulate(run), host(run)
    with learning(hosted, run, tmp_path):
        hosted.wait()
    result = hosted.run.evaluations()
    assert expected.votes and result.keys() == expected.votes.keys()
    for name, counts in expected.votes.items():
        for what, count in counts.items():
            # Float32 sums in another order may turn a vote that was nearly a tie.
            assert abs(result[name][what] - count) <= 1, (name, what)
    for record, simulated in zip(hosted.run.rounds(), expected.records, strict=True):
        assert record.assignment == simulated.assignment
        assert record.norms == pytest.approx(simulated.norms, rel=1e-2)


def test_clusters_train_their_own_models(host: Host) -> None:
    """Half of the clients move in one direction, and half in the other."""

    class Sided(Receiving):
        def update(self, round_: int, kind: str, dim: int) -> NDArray[np.float32]:
            noise_D = super().update(round_, kind, dim)
            return noise_D + np.float32(1 if self.name < "d" else -1)

    hosted = host(experiment(6, rounds=3, server={"customizer": "clustered"}))
    clients = {name: Sided(name) for name in NAMES}
    for name, client in clients.items():
        hosted.join(name)
        hosted.take_part(name, client)
    hosted.wait()
    sides = [NAMES[:3], NAMES[3:]]
    start_D = vector(clients["ada"].models[0])
    expected = [start_D, start_D]
    for number in range(3):
        record = hosted.record(number)
        assert record.assignment == {
            name: [f"cluster:{side}"] for side, names in enumerate(sides) for name in names
        }
        for side, names in enumerate(sides):
            for name in names:
                found_D = vector(clients[name].models[number])
                np.testing.assert_allclose(found_D, expected[side], rtol=0, atol=1e-5)
            updates = [clients[name].update(number, "train", len(start_D)) for name in names]
            expected[side] = expected[side] + np.mean(updates, axis=0)
    last = hosted.record(2).customized
    for side, names in enumerate(sides):
        for name in names:
            assert clients[name].tickets[-1].models == {"model": last[f"cluster:{side}"]}


def test_fedfomo_weights_of_agents_match_the_simulator(host: Host, tmp_path: Path) -> None:
    text = LEARNING.format(customizer='{ name = "fedfomo", peers = 3 }')
    text = text.replace('attack = "sign_flip"', 'data_attack = "label_flip"')
    run = Experiment.parse(text + '[personalizer]\nname = "fedfomo"\n')
    expected, hosted = simulate(run), host(run)
    with learning(hosted, run, tmp_path):
        hosted.wait()
    records = hosted.run.rounds()
    weights = []
    for record, simulated in zip(records[:2], expected.records, strict=False):
        assert record.assignment == simulated.assignment
        for name, metrics in simulated.metrics.items():
            for what, value in metrics.items():
                result = record.metrics[name].get(what, 0.0)
                if what.startswith("weight_"):
                    assert result == pytest.approx(value, rel=1e-3, abs=1e-5)
                    weights.append(result)
    assert any(weight > 0 for weight in weights)
    measured = {
        name: counts["correct_personalized"] for name, counts in records[-1].metrics.items()
    }
    for name, metrics in expected.records[-1].metrics.items():
        assert abs(measured[name] - metrics["correct_personalized"]) <= 1


class Fickle(Receiving):
    """A client that reports random weights for the models that it was offered."""

    def report(self, round_: int) -> dict[str, float]:
        likes = np.random.default_rng([round_, *self.name.encode()]).random(3)
        return {f"weight_{place:02d}": float(like) for place, like in enumerate(likes)}


@pytest.mark.parametrize(
    "customizer",
    [
        pytest.param(
            {"name": "flcert", "groups": 3, "rule": "centered_clipping"},
            id="flcert",
            marks=pytest.mark.long,
        ),
        pytest.param(
            {"name": "clustered", "rule": "centered_clipping"},
            id="clustered",
            marks=pytest.mark.long,
        ),
        pytest.param({"name": "fedfomo", "peers": 3}, id="fedfomo"),
    ],
)
def test_restart_during_a_round_does_not_change_the_result(
    tmp_path: Path, redis_url: str, customizer: dict[str, Any]
) -> None:
    settings = experiment(6, rounds=4, server={"customizer": customizer})

    def run(folder: Path, disturbed: bool) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        hold = Hold(2)
        folder.mkdir()
        with hosting(settings, folder, redis_url) as hosted:
            for name in NAMES:
                hosted.join(name)
                client = Fickle(name, hold) if name == "eve" else Fickle(name)
                hosted.take_part(name, client)
            hosted.wait("collecting", 2)
            hosted.received(*(name for name in NAMES if name != "eve"))
            if disturbed:
                hosted.restart()
            hold.on = False
            hosted.wait()
            stands = hosted.of_run(lambda run: run.state.read()).snapshot
            records = [chaos.comparable(record) for record in hosted.run.rounds()]
            blobs = Blobs(folder / "blobs" / hosted.settings.namespace / hosted.run.id)
            recorded = hosted.of_run(lambda run: run.records(blobs).blob_digests())
            # All blobs that are still needed exist, and no others.
            assert set(blobs.digests()) == stands.blobs() | recorded
        return records, stands.model_copy(update={"position": ""})

    (calm, kept), (shaken, result) = run(tmp_path / "a", False), run(tmp_path / "b", True)
    assert chaos.difference({"records": calm}, {"records": shaken}) is None
    assert kept == result and kept.state is not None
    assert all(record["assignment"] for record in calm)
