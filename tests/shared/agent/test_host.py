"""A process that hosts several clients: slots, tokens, trust and isolated failures."""

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from rampart_fl.services.attacker.__main__ import AttackerSettings
from rampart_fl.shared.agent.acceptance import Policy, decide
from rampart_fl.shared.agent.activity_log import ActivityLog
from rampart_fl.shared.agent.agent_context import AgentContext
from rampart_fl.shared.agent.agent_settings import AgentSettings
from rampart_fl.shared.agent.client import AggregatorClient
from rampart_fl.shared.agent.host import build_honest_client, check_capabilities, host
from rampart_fl.shared.agent.hosted_client import HostedClient
from rampart_fl.shared.agent.identity import Identity, lock_folder
from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.protocol.messages import Ticket

pytestmark = pytest.mark.anyio


def test_join_tokens_are_assigned_to_clients_in_order(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text("first\n\nsecond\n")
    assert AgentSettings(slots="0-2", join_tokens=path).tokens() == ["first", "second", None]
    assert AgentSettings(join_tokens=path).tokens() == ["first"]
    assert AgentSettings(slots="0-1", join_token="only").tokens() == ["only", None]
    assert AgentSettings().tokens() == [None]
    assert AgentSettings(join_token="of a file\n").tokens() == ["of a file"]


@pytest.mark.parametrize(
    ("settings", "hosted"),
    [
        ({}, [None]),
        ({"clients": 2}, [None, None]),
        ({"slots": "0-5,9"}, [0, 1, 2, 3, 4, 5, 9]),
        ({"slots": "0-2 5,4 7", "ordinal": 1}, [5, 4]),
        ({"slots": "6", "ordinal": 0}, [6]),
    ],
)
def test_a_process_hosts_any_list_of_slots(settings: dict[str, Any], hosted: list[int]) -> None:
    assert AgentSettings.model_validate(settings).hosted == hosted


@pytest.mark.parametrize(
    ("settings", "refusal"),
    [
        ({"slots": "0", "clients": 1}, "set either `clients` or `slots`"),
        ({"ordinal": 1}, "`ordinal` chooses a list in `slots`, but `slots` is not set"),
        ({"slots": " "}, "`slots` is empty: a process hosts at least one client"),
        ({"slots": "0,,1"}, "'0,,1' is not a list of numbers and ranges"),
        ({"slots": "-1"}, "'-1' is not a list of numbers"),
        ({"slots": "100000"}, "'100000' is not a list of numbers"),
        ({"slots": "5-3"}, "the range 5-3 runs backwards"),
        ({"slots": "0-4,2,4"}, "listed twice: 2,4"),
        ({"slots": "0-4 4", "ordinal": 0}, "listed twice: 4"),
        ({"slots": "0 1"}, "`slots` has lists for 2 processes: set `ordinal` to choose one"),
        ({"slots": "0 1", "ordinal": 2}, "`ordinal` is 2, but `slots` has lists for 2 processes"),
    ],
)
def test_invalid_lists_of_slots_are_refused(settings: dict[str, Any], refusal: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(refusal)):
        AgentSettings.model_validate(settings)


async def test_process_with_a_data_file_that_does_not_exist_does_not_start(tmp_path: Path) -> None:
    settings = AgentSettings(state=tmp_path, data_file=tmp_path / "typo.npz")
    with pytest.raises(ConfigurationError, match=r"typo\.npz: there is no such file"):
        await host(settings, build_honest_client(settings))


@pytest.mark.parametrize("stays", [False, True])
async def test_failed_client_does_not_stop_the_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, stays: bool
) -> None:
    ended: list[int] = []
    failed = asyncio.Event()

    async def live(self: HostedClient, *_: Any, **__: Any) -> None:
        if self.position == 1:
            failed.set()
            raise PermissionError("revoked")
        await failed.wait()
        await asyncio.sleep(0)
        ended.append(self.position)

    monkeypatch.setattr(HostedClient, "live", live)
    settings = AgentSettings(slots="0-2", stay_when_barred=stays)
    with pytest.raises(ExceptionGroup) as caught:
        await host(settings, build_honest_client(settings))
    assert sorted(ended) == [0, 2]
    assert [str(cause) for cause in caught.value.exceptions] == ["revoked"]
    assert "revoked" in caplog.text


async def test_process_with_only_barred_clients_waits_for_a_signal(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    barred = [asyncio.Event(), asyncio.Event()]

    async def live(self: HostedClient, *_: Any, **__: Any) -> None:
        await barred[self.position].wait()

    async def turn() -> None:
        for _ in range(10):
            await asyncio.sleep(0)

    monkeypatch.setattr(HostedClient, "live", live)
    settings = AgentSettings(clients=2, stay_when_barred=True)
    running = asyncio.create_task(host(settings, build_honest_client(settings)))
    barred[0].set()
    await turn()
    assert not caplog.messages
    barred[1].set()
    await turn()
    (warning,) = caplog.messages
    assert "all clients of this process are barred" in warning
    assert not running.done()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_cancellation_stops_all_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    cancelled: list[int] = []

    async def live(self: HostedClient, *_: Any, **__: Any) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(self.position)
            raise

    monkeypatch.setattr(HostedClient, "live", live)
    settings = AgentSettings(slots="0-1")
    running = asyncio.create_task(host(settings, build_honest_client(settings)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert sorted(cancelled) == [0, 1]


@pytest.mark.parametrize(("settings", "seconds"), [(AgentSettings, 30), (AttackerSettings, 1)])
async def test_attackers_learn_soon_that_they_are_not_selected(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, settings: type[AgentSettings], seconds: int
) -> None:
    """Otherwise, the other colluders would wait for them until a long request ends."""
    polls = list[int]()

    async def establish(*_: Any, **__: Any) -> Identity:
        return Identity(client_id="ada", token="t" * 43)

    async def next_run(connection: AggregatorClient, *_: Any) -> Ticket:
        polls.append(connection.poll)
        return Ticket(kind="evicted")

    monkeypatch.setattr("rampart_fl.shared.agent.hosted_client.establish", establish)
    monkeypatch.setattr("rampart_fl.shared.agent.hosted_client.next_run", next_run)
    hosted = settings(slots="0", state=tmp_path)
    with ThreadPoolExecutor() as thread:
        client = HostedClient(hosted, Policy(), build_honest_client(hosted), None, thread, 0)
        await client.live(tmp_path / "ada", None, leaves=False)
    assert polls == [seconds]


@pytest.mark.parametrize(("rejoins", "lives"), [(True, 3), (False, 1)])
async def test_evicted_client_rejoins_as_long_as_it_has_tokens(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, rejoins: bool, lives: int
) -> None:
    """A client with three tokens: every identity has its own token and folder."""
    (tmp_path / "tokens").write_text("a1\na2\na3\n")
    lived: list[tuple[str, str, bool]] = []

    async def live(self: HostedClient, folder: Path, token: str, leaves: bool) -> None:
        lived.append((token, folder.name, leaves))

    monkeypatch.setattr(HostedClient, "live", live)
    settings = AgentSettings(slots="0", join_tokens=tmp_path / "tokens", state=tmp_path)
    await host(settings, build_honest_client(settings), rejoins)
    everything = [
        ("a1", "client-0", rejoins),
        ("a2", "client-0-life-2", True),
        ("a3", "client-0-life-3", False),
    ]
    assert lived == everything[:lives]


async def test_experiment_with_an_untrusted_package_is_declined(tmp_path: Path) -> None:
    tables = Experiment.load("digits-benign").tables()
    tables["model"] = {"name": "module", "path": "no_such_package.nets:Net"}
    part = Experiment.from_tables(tables).client_part()
    settings = AgentSettings(slots="3", state=tmp_path)
    with ThreadPoolExecutor(1) as thread:
        client = HostedClient(
            settings,
            Policy(),
            build_honest_client(settings),
            check_capabilities(settings),
            thread,
            0,
        )
        activity = ActivityLog(tmp_path)
        accept, reason, slot = await client._decide(activity, "x-1", part)
        assert (accept, slot) == (False, 3)
        assert "RAMPART_TRUSTED_PACKAGES" in reason
        (noted,) = activity.entries()
        assert (noted["what"], noted["run"], noted["reason"]) == ("declined", "x-1", reason)


@pytest.mark.parametrize(
    ("data", "own"),
    [(None, "all.npz"), ({"digits": "slot"}, None), ({"digits": "/mine.npz"}, "/mine.npz")],
)
async def test_policy_decides_on_the_samples_before_the_settings(
    tmp_path: Path, data: dict[str, str] | None, own: str | None
) -> None:
    """If the policy offers the slot's samples, the client does not train on its own file."""
    file = tmp_path / "all.npz"
    file.touch()
    settings = AgentSettings(state=tmp_path, data_file=file)
    policy = Policy(data=data)
    with ThreadPoolExecutor(1) as thread:
        client = HostedClient(
            settings, policy, build_honest_client(settings), check_capabilities(settings), thread, 0
        )
    answer = decide(policy, Experiment.load("digits-benign"))
    expected = file if own == "all.npz" else None if own is None else Path(own)
    assert client._own_samples(answer) == expected


@pytest.mark.parametrize(
    ("key", "spec"),
    [("training", {"schedule": "halving"}), ("personalizer", "halving"), ("model", "halving")],
)
async def test_experiment_with_a_package_that_is_not_installed_is_declined(
    tmp_path: Path, key: str, spec: Any
) -> None:
    tables = {**Experiment.load("digits-benign").tables(), key: spec}
    offered = Experiment.from_tables({**tables, "packages": {"halving": "my-pace==0.1"}})
    settings = AgentSettings(state=tmp_path)
    with ThreadPoolExecutor(1) as thread:
        client = HostedClient(
            settings,
            Policy(),
            build_honest_client(settings),
            check_capabilities(settings),
            thread,
            0,
        )
        accept, reason, _ = await client._decide(
            ActivityLog(tmp_path), "x-1", offered.client_part()
        )
    assert not accept
    assert "'halving' comes from my-pace==0.1, which is not installed here" in reason


async def test_experiment_with_unknown_keys_is_declined(tmp_path: Path) -> None:
    part = {**Experiment.load("digits-benign").client_part(), "novelty": 3}
    settings = AgentSettings(state=tmp_path)
    with ThreadPoolExecutor(1) as thread:
        client = HostedClient(
            settings,
            Policy(),
            build_honest_client(settings),
            check_capabilities(settings),
            thread,
            0,
        )
        accept, reason, _ = await client._decide(ActivityLog(tmp_path), "x-1", part)
    assert not accept
    assert "novelty" in reason


@pytest.mark.parametrize("trusted", ["", "other", "my_pack", "other, my_package2"])
def test_code_from_untrusted_packages_is_refused(trusted: str) -> None:
    own = {"name": "module", "path": "my_package.nets:Net"}
    experiment = Experiment.load("digits-benign").model_copy(update={"model": own})
    with pytest.raises(ConfigurationError, match="RAMPART_TRUSTED_PACKAGES"):
        AgentSettings(trusted_packages=trusted).check_trust(experiment)
    AgentSettings(trusted_packages=f"{trusted},my_package").check_trust(experiment)


async def test_trust_is_checked_before_a_model_is_imported(
    tmp_path: Path,
) -> None:
    tables = Experiment.load("digits-benign").tables()
    tables["model"] = {"name": "module", "path": "no_such_package.nets:Net"}
    experiment, identity = Experiment.from_tables(tables), Identity(token="t", client_id="c")
    settings = AgentSettings(state=tmp_path)
    with ThreadPoolExecutor(1) as thread:
        context = AgentContext(
            settings,
            "x-1",
            experiment,
            identity,
            100,
            tmp_path,
            thread,
            0,
            0,
            ActivityLog(tmp_path),
        )
        with pytest.raises(ConfigurationError, match="RAMPART_TRUSTED_PACKAGES"):
            await build_honest_client(settings)(context)


async def test_second_process_cannot_run_the_same_client(tmp_path: Path) -> None:
    settings = AgentSettings(state=tmp_path, join_token="t" * 43)
    with lock_folder(tmp_path / "client-0"), pytest.raises(ExceptionGroup) as caught:
        await host(settings, build_honest_client(settings))
    assert "another process runs the client" in str(caught.value.exceptions[0])
    assert not (tmp_path / "client-0" / "identity.json").exists()


def test_clients_that_have_joined_need_no_file_with_join_tokens(tmp_path: Path) -> None:
    missing = AgentSettings(slots="0-1", join_tokens=tmp_path / "deleted")
    assert missing.tokens() == [None, None]
    assert missing.further_tokens(0) == []
