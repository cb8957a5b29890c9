"""Quick federations: the aggregator on a thread of the test, and participants that follow a script.

They talk HTTP over loopback to a real server with a real Redis; only the training and the start of
processes are left out.

Legend: D coordinates.
"""

import asyncio
import json
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, aclosing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import SecretStr

from rampart_fl.services.aggregator.server import serve
from rampart_fl.services.aggregator.settings import Settings
from rampart_fl.services.aggregator.state.audit_log import Attribution
from rampart_fl.services.aggregator.state.blobs import Blobs
from rampart_fl.services.aggregator.state.join_token_store import JoinTokenRecord
from rampart_fl.services.aggregator.state.member_store import AnswerRecord
from rampart_fl.services.aggregator.state.stores import RunStores, Stores
from rampart_fl.services.console.connection.operator import Operator
from rampart_fl.services.console.launcher.processes import free_port
from rampart_fl.services.console.testing import PATIENCE, TestClients
from rampart_fl.shared.agent.agent_settings import AgentSettings
from rampart_fl.shared.agent.host import build_honest_client
from rampart_fl.shared.agent.host import host as run_agents
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.experiment.toml import to_toml
from rampart_fl.shared.modelspec import ModelSpec
from rampart_fl.shared.protocol import wire
from rampart_fl.shared.protocol.messages import RoundRecord, Ticket
from rampart_fl.shared.runtime.ranges import format_ranges
from rampart_fl.shared.runtime.tokens import mint, token_hash

TINY = """
name = "scripted"
[data]
dataset = "digits"
clients = 3
[model]
name = "mlp"
hidden = [4]
"""
QUICK = """
[model]
name = "cnn"
channels = [4, 8]
hidden = 16

[training]
epochs = 1
learning_rate = 0.05

[personalizer]
name = "fedcap"
lambda = 0.1

[phases.collecting]
count = { min = 1.0 }
"""
"""The end of an experiment's file: a quick task for real agents, whose rounds wait for all."""
FEDCAP = {"customizer": {"name": "fedcap", "alpha": 10, "phi": 0.1}}


def until(comes_true: Callable[[], object]) -> None:
    """Waits until a condition is true; fails after `PATIENCE` seconds.

    It polls, because a server does not report that another client's request has begun to wait, or
    that a line was logged.
    """
    give_up = time.monotonic() + PATIENCE
    while not comes_true():
        assert time.monotonic() < give_up, "it never came true"
        time.sleep(0.01)


def experiment(clients: int = 3, rounds: int = 2, room: int = 5, **tables: Any) -> Experiment:
    """A small experiment; tables replace those of the same name.

    Args:
        clients: clients with which the run starts.
        rounds: number of rounds.
        room: slots for clients that join later.
        tables: other tables.
    """
    base = Experiment.parse(TINY).tables()
    base["data"]["clients"] = clients + room
    base["phases"]["joining"] = {"clients": clients}
    phases = {**base["phases"], **tables.pop("phases", {})}
    return Experiment.from_tables({**base, "rounds": rounds, "phases": phases, **tables})


def collecting(least: float = 1.0, most: float | None = None, **time: float) -> dict[str, Any]:
    """The `phases` table for rounds with these numbers of updates and times in seconds."""
    count = {"min": least} if most is None else {"min": least, "max": most}
    return {"collecting": {"count": count, "time": {"max": 60, **time}}}


def spec_of(model: bytes) -> ModelSpec:
    """The tensors of a model, from its own header."""
    entries = json.loads(model[8 : 8 + int.from_bytes(model[:8], "little")])
    return ModelSpec.of([(name, entry["shape"]) for name, entry in entries.items()])


def vector(model: bytes) -> NDArray[np.float32]:
    """The numbers (D,) of a model."""
    return wire.read_model(model, spec_of(model))


def upload_of(
    model: bytes, update_D: NDArray[np.floating[Any]] | None = None, **metrics: float
) -> bytes:
    """An update for this model, encoded as a client sends it; zeros by default."""
    spec = spec_of(model)
    numbers_D = np.zeros(spec.dim) if update_D is None else update_D
    report = json.dumps({"samples": 10, "metrics": metrics})
    return wire.encode(spec, numbers_D.astype(np.float32), {"report": report})


class Hold:
    """Holds back the answers to one round's tickets until `on` is False."""

    def __init__(self, round_: int) -> None:
        self.round = round_
        self.on = True

    def __call__(self, ticket: Ticket) -> bool:
        return self.on and ticket.round == self.round


class Disk:
    """The free space that the aggregator finds on its disk.

    Args:
        free: free space in bytes.
    """

    def __init__(self, free: int = 2**40) -> None:
        self.free = free
        self.checks = 0
        """How many times a process has asked for the free space."""

    def usage(self, folder: object) -> SimpleNamespace:
        """Stands in for `shutil.disk_usage`."""
        del folder
        self.checks += 1
        return SimpleNamespace(free=self.free, total=2**41)

    def await_checks(self, count: int = 2) -> None:
        """Waits until the free space has been asked for this many more times."""
        target = self.checks + count
        until(lambda: self.checks >= target)


class Scripted:
    """A participant whose random updates depend on its name and the round; it waits if held back.

    Args:
        name: name of the client.
        hold: tells which tickets it does not answer yet; may change at any time.
        scale: standard deviation of its updates.
    """

    def __init__(
        self,
        name: str,
        hold: Callable[[Ticket], bool] = lambda ticket: False,
        scale: float = 0.01,
    ) -> None:
        self.name = name
        self.hold = hold
        self.scale = scale
        self.tickets: list[Ticket] = []
        self.models: list[bytes] = []
        self.uploads: list[bytes] = []
        self.idled: list[Ticket] = []

    async def work(self, ticket: Ticket, model: bytes) -> bytes:
        """The update, once nothing holds it back."""
        self.tickets.append(ticket)
        self.models.append(model)
        while self.hold(ticket):
            await asyncio.sleep(0.005)
        update_D = self.update(ticket.round, ticket.kind, len(vector(model)))
        self.uploads.append(upload_of(model, update_D, **self.report(ticket.round)))
        return self.uploads[-1]

    def report(self, round_: int) -> dict[str, float]:
        """Metrics that it reports in a round."""
        del round_
        return {}

    def update(self, round_: int, kind: str, dim: int) -> NDArray[np.float32]:
        """What it uploads in a round."""
        seed = [round_, len(kind), *self.name.encode()]
        draws = np.random.default_rng(seed)
        return draws.standard_normal(dim, np.float32) * np.float32(self.scale)

    async def evaluate(self, ticket: Ticket, model: bytes) -> dict[str, float]:
        """Records the ticket, and reports a fixed metric."""
        self.tickets.append(ticket)
        self.models.append(model)
        while self.hold(ticket):
            await asyncio.sleep(0.005)
        return {"test_samples": 1.0}

    async def idle(self, ticket: Ticket) -> None:
        """Records every other ticket."""
        self.idled.append(ticket)

    def requests(self) -> list[tuple[int, str]]:
        """(round, kind) of every ticket with work."""
        return [(ticket.round, ticket.kind) for ticket in self.tickets]


class Hosted(TestClients):
    """An aggregator on a thread of this process, with clients of the test's own."""

    def __init__(self, settings: Settings, folder: Path, server: ExitStack) -> None:
        token = settings.operator_token.get_secret_value()
        super().__init__(
            Operator(f"http://127.0.0.1:{settings.port}", token), folder / "test-clients"
        )
        self.settings = settings
        self._server = server

    def restart(self) -> None:
        """Stops the aggregator in the middle of its work, and starts it on the same state."""
        self.stop()
        self.resume()

    def stop(self) -> None:
        """Stops the aggregator in the middle of its work."""
        self._server.close()

    def resume(self) -> None:
        """Starts the aggregator on the state that it had when it was stopped."""
        self._server.enter_context(serving(self.settings))
        self.operator.ready()

    def scripted(self, names: Sequence[str], **options: Any) -> dict[str, Scripted]:
        """Participants by name, all of them at work."""
        participants = {name: Scripted(name, **options) for name in names}
        for name in participants:
            self.join(name)
        for name, participant in participants.items():
            self.take_part(name, participant)
        return participants

    def honest(self, names: Sequence[str], state: Path) -> None:
        """Hosts agents of these names, each with a folder in `state`, until the run has ended."""
        tokens = state.with_name("tokens")
        tokens.write_text("\n".join(self.operator.mint(list(names)).tokens))
        settings = AgentSettings(
            aggregator=self.url,
            slots=format_ranges(range(len(names))),
            state=state,
            join_tokens=tokens,
        )

        async def start() -> asyncio.Task[None]:
            return asyncio.create_task(run_agents(settings, build_honest_client(settings)))

        async def stop() -> None:
            if agents.done():
                agents.result()
            agents.cancel()
            await asyncio.gather(agents, return_exceptions=True)

        agents = self.soon(start())
        self.wait(patience=240)
        # Once its run has ended, an agent keeps only its personal model.
        until(lambda: not list(state.glob(f"client-*/runs/{self.run.id}/*.kept")))
        self.soon(stop())

    def join_quickly(self, names: Sequence[str]) -> list[str]:
        """Adds many clients that have accepted the run; returns their tokens."""
        run, accepted = self.run.id, AnswerRecord(accept=True, at=0.0)
        joins, tokens, now = [mint() for _ in names], [mint() for _ in names], time.time()

        async def join(stores: Stores) -> None:
            await stores.join_tokens.add(
                {token_hash(one): JoinTokenRecord(now + 60) for one in joins},
                Attribution("owner", "a test", now),
            )
            for name, one, token in zip(names, joins, tokens, strict=True):
                hashes = token_hash(one), token_hash(token)
                assert (await stores.clients.join(*hashes, name, "", now, now + 600))[0] == "joined"
                answer = await stores.of_run(run).members.answer(name, accepted, 1000)
                assert answer[0] == "recorded"

        self.stores(join)
        return tokens

    def record(self, round_: int) -> RoundRecord:
        """The record of a finished round."""
        (record,) = self.run.rounds(round_, 1)
        assert record.round == round_
        return record

    def forget(self, round_: int) -> None:
        """Deletes the record of a finished round, as the worker does if it is no longer kept."""
        blobs = Blobs(Path(self.settings.blobs) / self.settings.namespace / self.run.id)

        async def delete(run: RunStores) -> None:
            entry = await run.records(blobs).entry(round_)
            assert entry is not None
            blobs.delete([entry.record])

        self.of_run(delete)

    def model(self, name: str) -> bytes:
        """A model's bytes, as an operator gets them."""
        return self.run.model(name)

    def path(self, rest: str) -> str:
        """The URL of a resource of the run."""
        return f"{self.url}/v1/runs/{self.run.id}/{rest}"

    def customize(self, update: bytes, name: str | None = None) -> bytes:
        """The model that a client, or an operator, gets for an update out of turn."""
        operator = self.settings.operator_token.get_secret_value()
        token = operator if name is None else self.join(name).token
        headers = {"Authorization": f"Bearer {token}", "Content-Type": wire.MEDIA_TYPE}
        answer = httpx.post(self.path("customize"), content=update, headers=headers, timeout=60)
        assert answer.status_code == 200, answer.text
        return answer.content

    def received(self, *names: str) -> None:
        """Waits until the open round has these clients' updates, and no others."""
        until(lambda: self.run.status().received == sorted(names))

    def expire(self) -> None:
        """Brings the deadline of the open round forward to now."""

        async def move(run: RunStores) -> None:
            client = run.state.redis.client
            await client.hset(run.keys.state, "deadline", str(time.time()))
            # The worker looks at the deadline again when it hears of a decision.
            await client.xadd(run.keys.events, {"type": "reinstated", "client": "nobody"})

        self.of_run(move)

    def of_run(self, action: Callable[[RunStores], Any]) -> Any:
        """The result of an action on the state of the run."""
        run = self.run.id
        return self.stores(lambda stores: action(stores.of_run(run)))

    def stores(self, action: Callable[[Stores], Any]) -> Any:
        """The result of an action on the federation's state."""

        async def act() -> Any:
            async with aclosing(
                Stores.connect(self.settings.redis_url, None, self.settings.namespace)
            ) as stores:
                return await action(stores)

        return self.soon(act())


@contextmanager
def host(experiment: Experiment, folder: Path, redis_url: str, **settings: Any) -> Iterator[Hosted]:
    """Serves a federation in this process for as long as the context lasts."""
    file = folder / "experiment.toml"
    file.write_text(to_toml(experiment.tables()))
    known = Settings(
        experiment=str(file),
        port=free_port(),
        redis_url=redis_url,
        namespace=f"t-{secrets.token_hex(6)}",
        blobs=str(folder / "blobs"),
        blob_cache=folder / "cache",
        operator_token=SecretStr(mint()),
        threads=1,
        **{"predictable_draws": True, **settings},
    )
    with ExitStack() as server, Hosted(known, folder, server) as hosted:
        server.enter_context(serving(known))
        hosted.operator.ready()
        hosted.run.await_start()
        try:
            yield hosted
        finally:
            hosted.operator.close()


@contextmanager
def serving(settings: Settings) -> Iterator[None]:
    """Runs an aggregator on its own thread; fails if the aggregator does."""
    loop, over = asyncio.new_event_loop(), asyncio.Event()
    before = torch.are_deterministic_algorithms_enabled(), torch.get_num_threads()
    with ThreadPoolExecutor(1, thread_name_prefix="aggregator") as thread:
        ended = thread.submit(loop.run_until_complete, serve(settings, over))
        try:
            yield
        finally:
            loop.call_soon_threadsafe(over.set)
            ended.result()
            loop.close()
            torch.use_deterministic_algorithms(before[0])
            torch.set_num_threads(before[1])
