"""Attackers over HTTP: unnoticed on the wire, back after an eviction, fully informed by a tap.

The agents are the real ones, on a thread of the test; the aggregator is real, too.
"""

import asyncio
import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from pydantic import SecretStr

from rampart_fl.services.aggregator.settings import TAP_ENABLED
from rampart_fl.services.attacker import cohort
from rampart_fl.services.attacker.__main__ import AttackerSettings, attack
from rampart_fl.services.console.launcher.processes import free_port
from rampart_fl.shared.agent.agent_settings import AgentSettings
from rampart_fl.shared.agent.client import AggregatorClient
from rampart_fl.shared.agent.host import build_honest_client
from rampart_fl.shared.agent.host import host as run_agents
from rampart_fl.shared.attacks.base import Knowledge
from rampart_fl.shared.attacks.model import attacks
from rampart_fl.shared.runtime.ranges import format_ranges
from rampart_fl.shared.runtime.tokens import mint
from rampart_fl.shared.simulation import simulate
from tests.integration.in_process_federation import (
    FEDCAP,
    Hosted,
    Scripted,
    collecting,
    experiment,
    until,
)

Host = Callable[..., Hosted]
QUICK = {"training": {"epochs": 1, "batch_size": 50}}
SKEWED = {
    "dataset": "digits",
    "clients": 4,
    "partition": {"name": "classes_per_client", "classes": 2},
}
NORM = {"detectors": [{"name": "norm_bound", "threshold": 5.0}]}


class RedTeam:
    """Honest agents, attackers and their cohort around one aggregator."""

    def __init__(self, hosted: Hosted, folder: Path, tap: str | None = None) -> None:
        self.hosted = hosted
        self.folder = folder
        self.token = mint()
        self.running: list[asyncio.Task[None]] = []
        self.port = free_port()
        self.tap = {} if tap is None else {"tap": hosted.url, "tap_token": SecretStr(tap)}

    def meet(self, members: int) -> None:
        """Starts the cohort."""
        settings = cohort.CohortSettings(
            port=self.port, token=SecretStr(self.token), members=members, **self.tap
        )
        config = uvicorn.Config(cohort.create_app(settings), port=self.port, log_config=None)
        self.server = uvicorn.Server(config)
        self.start(self.server.serve())

    def start(self, work: Any) -> None:
        """Runs something until the test ends."""

        async def begin() -> asyncio.Task[None]:
            return asyncio.create_task(work)

        self.running.append(self.hosted.soon(begin()))

    def defend(self, names: Sequence[str], slots: Sequence[int] | None = None) -> None:
        """Starts honest agents, one process's worth, in the first slots unless others are given."""
        settings = AgentSettings(**self.common("honest", names, slots))
        self.start(run_agents(settings, build_honest_client(settings)))

    def attack(
        self,
        spec: str,
        names: Sequence[str],
        slots: Sequence[int],
        further: int = 0,
        **options: Any,
    ) -> None:
        """Starts attackers, one process's worth, with spare join tokens."""
        settings = AttackerSettings(
            **self.common("hostile", names, slots, further),
            attack=spec,
            cohort=f"http://127.0.0.1:{self.port}",
            cohort_token=SecretStr(self.token),
            members=len(names),
            **options,
        )
        self.start(attack(settings))

    def common(
        self,
        group: str,
        names: Sequence[str],
        slots: Sequence[int] | None = None,
        further: int = 0,
    ) -> dict[str, Any]:
        """The settings that all agents get."""
        tokens = self.hosted.operator.mint(list(names)).tokens
        if further:
            tokens += self.hosted.operator.mint_unbound(further).tokens
        path = self.folder / f"{group}-tokens"
        path.write_text("\n".join(tokens))
        return {
            "aggregator": self.hosted.url,
            "slots": format_ranges(range(len(names)) if slots is None else slots),
            "state": self.folder / group,
            "join_tokens": path,
        }

    def end(self) -> None:
        """Stops all agents, and raises the error of one that failed."""

        async def gather() -> None:
            agents = [task for task in self.running if task is not self.running[0]]
            done = [task for task in agents if task.done()]
            for task in agents:
                task.cancel()
            await asyncio.gather(*agents, return_exceptions=True)
            self.server.should_exit = True
            await self.running[0]
            for task in done:
                task.result()

        self.hosted.soon(gather())


@pytest.fixture
def red_team(host: Host, tmp_path: Path) -> Iterator[Callable[..., RedTeam]]:
    """Makes a red team around a federation of its own, stopped when the test ends."""
    teams: list[RedTeam] = []

    def make(tap: str | None = None, **tables: Any) -> RedTeam:
        settings = {} if tap is None else {"test_tap": SecretStr(tap)}
        hosted = host(experiment(**{**QUICK, **tables}), **settings)
        teams.append(RedTeam(hosted, tmp_path, tap))
        return teams[-1]

    yield make
    for team in teams:
        team.end()


def until_the_end(log: list[tuple[str, str, list[str]]]) -> list[tuple[str, str, list[str]]]:
    """The requests of one run; after it, agents wait for the next."""
    return log[: 1 + max(n for n, (_, path, _) in enumerate(log) if "?run=" in path)]


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[tuple[str, str, list[str]]]]:
    """What every connection sends, by its token: method, path pattern, names of the headers."""
    sent: dict[str, list[tuple[str, str, list[str]]]] = {}
    build = AggregatorClient.__post_init__

    def listen(self: AggregatorClient) -> None:
        build(self)
        log = sent.setdefault(self.token, [])

        async def note(request: httpx.Request) -> None:
            pattern = re.sub(r"[0-9a-f]{64}", "{digest}", request.url.raw_path.decode())
            pattern = re.sub(r"\d+", "{n}", pattern.removeprefix("/v1"))
            log.append((request.method, pattern, [k.decode() for k, _ in request.headers.raw]))

        self.http.event_hooks["request"].append(note)

    monkeypatch.setattr(AggregatorClient, "__post_init__", listen)
    return sent


def polls(log: list[tuple[str, str, list[str]]]) -> int:
    """How often a connection has asked for a ticket."""
    return sum(path == "/ticket" for _, path, _ in log)


def test_attackers_send_the_same_requests_as_honest_clients(
    red_team: Callable[..., RedTeam], requests: dict[str, list[tuple[str, str, list[str]]]]
) -> None:
    """Colluders with a backdoor send the same methods, paths and headers in the same order."""
    team = red_team(clients=5, rounds=3, phases=collecting())
    team.meet(2)
    team.defend(["ann", "ben"])
    poison = '{"name": "dba", "width": 3}'
    team.attack("lie", ["mal", "moe"], [2, 3], data_attack=poison)
    # All four wait for the first round, which begins when the fifth client joins.
    until(lambda: sum(polls(log) == 3 for log in [*requests.values()]) == 4)
    team.hosted.scripted(["zoe"])
    team.hosted.wait()
    team.hosted.last_ticket("zoe")
    # A real agent reads the experiment twice: for its answer, and when it takes part.
    reads = {token: sum("/experiment" in p for _, p, _ in log) for token, log in requests.items()}
    agents = [requests[token] for token, count in reads.items() if count == 2]
    assert len(agents) == 4
    agents = [until_the_end(log) for log in agents]
    assert all(log == agents[0] for log in agents)
    assert [path for _, path, _ in agents[0]].count("/runs/scripted-{n}/rounds/{n}/update") == 3
    joins = [log for log in requests.values() if log and log[0][1] == "/clients"]
    assert all(log == joins[0] for log in joins)


def test_colluders_that_join_first_cooperate_in_the_first_round(
    red_team: Callable[..., RedTeam], requests: dict[str, list[tuple[str, str, list[str]]]]
) -> None:
    """A client that has to wait before a round's selection may still be selected."""
    team = red_team(clients=3, rounds=2, phases=collecting())
    team.meet(2)
    team.attack('{"name": "lie", "z": 1}', ["mal", "moe"], [0, 1])
    # Both have been told to wait, and poll for their next ticket.
    until(lambda: sum(polls(log) == 3 for log in [*requests.values()]) == 2)
    team.hosted.scripted(["zoe"])
    team.hosted.wait()
    for record in team.hosted.run.rounds():
        assert record.norms["mal"] == record.norms["moe"]


def test_evicted_attacker_that_rejoins_is_screened_as_a_newcomer(
    red_team: Callable[..., RedTeam],
) -> None:
    server = {**NORM, "customizer": {"name": "fedcap", "alpha": 10, "phi": 0.1}}
    team = red_team(clients=4, rounds=40, server=server, phases=collecting())
    team.meet(1)
    team.defend(["ann", "ben", "cat"])
    loud = '{"name": "rejoin", "attack": {"name": "gaussian", "std": 5}}'
    team.attack(loud, ["mal"], [3], further=1)
    status = team.hosted.wait()
    assert len(status.evicted) == 2
    assert "mal" in status.evicted
    (back,) = set(status.evicted) - {"mal"}
    records = team.hosted.run.rounds()
    evictions = {
        verdict.client: record
        for record in records
        for verdict in record.verdicts
        if verdict.decision == "evicted"
    }
    first, second = evictions["mal"], evictions[back]
    assert first.round == 0
    assert second.round > 0
    assert back in second.probed, "a newcomer is asked whom it resembles"
    assert all("mal" not in record.participants for record in records[1:])
    assert records[-1].participants == ["ann", "ben", "cat"]


def test_tap_gives_attackers_the_updates_of_honest_clients(
    red_team: Callable[..., RedTeam],
) -> None:
    """Mimics upload exactly the update of an honest client in the same round."""
    team = red_team(tap=mint(), clients=5, rounds=2, phases=collecting())
    team.meet(2)
    team.defend(["ann", "ben", "cat"])
    team.attack('{"name": "mimic", "knows": "full", "target": 1}', ["mal", "moe"], [3, 4])
    status = team.hosted.wait()
    assert status.warnings[0] == TAP_ENABLED
    for record in team.hosted.run.rounds():
        assert record.warnings == [TAP_ENABLED]
        assert record.norms["mal"] == record.norms["moe"] == record.norms["ben"]
        assert len({record.norms[name] for name in ("ann", "ben", "cat")}) == 3


@pytest.mark.parametrize("knows", ["full", "agnostic"])
def test_norm_riding_needs_full_knowledge_to_stay_below_the_threshold(
    red_team: Callable[..., RedTeam], knows: str
) -> None:
    """Every client gets a model of its own; an attacker that does not know the global model meets
    the threshold only in the first round.
    """
    # As in the paper: half of these clients may be evicted.
    detectors = {"detectors": [{"name": "norm_bound", "threshold": 3.0}]}
    server = {**FEDCAP, **detectors, "eviction": {"bounded": False}}
    tables = {"server": server, "data": SKEWED, "phases": collecting()}
    team = red_team(tap=mint(), clients=4, rounds=4, **tables)
    team.meet(2)
    team.defend(["ann", "ben"])
    spec = {"name": "norm_riding", "knows": knows, "threshold": 3.0}
    team.attack(json.dumps(spec), ["mal", "moe"], [2, 3])
    status = team.hosted.wait()
    first, *later = team.hosted.run.rounds()
    below = pytest.approx([0.999 * 3.0] * 2, rel=1e-4)
    assert [first.norms[name] for name in ("mal", "moe")] == below
    assert first.customized.keys() >= {"ann", "mal"}
    if knows == "agnostic":
        assert {"mal", "moe"} <= set(status.evicted), "each is beside the threshold by its offset"
        return
    assert not {"mal", "moe"} & set(status.evicted)
    for record in later:
        assert [record.norms[name] for name in ("mal", "moe")] == below


@pytest.mark.parametrize(
    ("attack", "server"),
    [
        (
            {"name": "norm_riding", "knows": "full"},
            {**FEDCAP, "detectors": ["robust_distance"]},
        ),
        ({"name": "norm_riding", "threshold": 1.0}, {**FEDCAP, **NORM}),
        (
            {
                "name": "sybil_clones",
                "attack": {"name": "random_noise", "reading": "interpolation"},
            },
            FEDCAP,
        ),
        (
            {"name": "fltrust_adaptive", "knows": "full"},
            {"rule": "fltrust", "root": {"dataset": "digits", "size": 50}},
        ),
        ("lie", {"rule": "median"}),
    ],
    ids=["riding-informed", "riding-blind", "sybils", "fltrust", "some-drawn"],
)
def test_attacks_over_http_match_the_simulator(
    red_team: Callable[..., RedTeam], attack: str | dict[str, Any], server: dict[str, Any]
) -> None:
    """Attackers know how many attackers take part: sometimes one of the three is not selected."""
    data = {"dataset": "digits", "clients": 6, "reserved": 50}
    fraction = 0.7 if attack == "lie" else 1.0
    tables = {"server": server, "data": data, "phases": collecting(), "fraction": fraction}
    definition = experiment(
        6, rounds=3, **QUICK, **tables, attackers=[{"count": 3, "attack": attack}]
    )
    expected = simulate(definition).records
    hostile = [slot for slot, role in enumerate(definition.roles) if role is not None]
    honest = [slot for slot, role in enumerate(definition.roles) if role is None]
    assert hostile != [3, 4, 5], "placed at random"
    team = red_team(tap=mint(), clients=6, rounds=3, **tables)
    team.meet(3)
    team.defend([definition.client_names[slot] for slot in honest], honest)
    spec = attack if isinstance(attack, str) else json.dumps(attack)
    team.attack(spec, [definition.client_names[slot] for slot in hostile], hostile)
    team.hosted.wait()
    records = team.hosted.run.rounds()
    assert len(records) == len(expected) == 3
    for record, simulated in zip(records, expected, strict=True):
        assert record.norms == pytest.approx(simulated.norms, rel=1e-3)
        decided = [(v.client, v.decision) for v in record.verdicts]
        assert decided == [(v.client, v.decision) for v in simulated.verdicts]


def test_tap_accepts_only_its_own_token(host: Host) -> None:
    tap = mint()
    hosted = host(experiment(1, rounds=1), test_tap=SecretStr(tap))
    path = f"{hosted.url}/v1/runs/{hosted.run.id}/test-tap/rounds/0/train?patience=0"
    token = hosted.join("ann").token
    for other in (token, hosted.settings.operator_token.get_secret_value(), mint()):
        assert httpx.get(path, headers={"Authorization": f"Bearer {other}"}).status_code == 401
    assert httpx.get(path, headers={"Authorization": f"Bearer {tap}"}).status_code == 200
    hosted.take_part("ann", Scripted("ann"))
    hosted.wait()


def test_tap_route_is_absent_without_its_setting(host: Host) -> None:
    hosted = host(experiment(1, rounds=1))
    token = hosted.settings.operator_token.get_secret_value()
    answer = httpx.get(
        f"{hosted.url}/v1/runs/{hosted.run.id}/test-tap/rounds/0/train",
        headers={"Authorization": f"Bearer {token}"},
    )
    assert answer.status_code == 404
    assert hosted.run.status().warnings == [] or TAP_ENABLED not in hosted.run.status().warnings


def test_scheduled_attack_changes_during_the_run(red_team: Callable[..., RedTeam]) -> None:
    """Honest in round 0, noise in round 1, ten times as much in round 2, and honest in round 3."""
    team = red_team(clients=3, rounds=4, phases=collecting())
    team.meet(1)
    team.defend(["ann", "ben"])
    plan = (
        '{"name": "schedule", "attacks": ['
        '{"name": "gaussian", "std": 3, "from_round": 1, "until_round": 2},'
        '{"name": "gaussian", "std": 30, "from_round": 2, "until_round": 3}]}'
    )
    team.attack(plan, ["mal"], [2])
    team.hosted.wait()
    norms = [record.norms["mal"] for record in team.hosted.run.rounds()]
    assert norms[1] > 10 * norms[0]
    assert norms[2] / norms[1] == pytest.approx(10, rel=0.3)
    assert norms[3] < norms[2] / 10


def test_gap_inflation_over_http_reports_its_gap_with_a_norm_riding_update(
    red_team: Callable[..., RedTeam],
) -> None:
    team = red_team(clients=3, rounds=1, phases=collecting())
    team.meet(1)
    team.defend(["ann", "ben"])
    team.attack('{"name": "gap_inflation", "gap": 99, "attack": "norm_riding"}', ["mal"], [2])
    team.hosted.wait()
    (record,) = team.hosted.run.rounds()
    assert record.metrics["mal"]["loss_gap"] == 99
    assert record.norms["mal"] == pytest.approx(9.99, rel=1e-4)
    known = Knowledge(participants=3, attackers=1)
    assert attacks.build("gap_inflation", gap=99).report({}, known)["loss_gap"] == 99
