"""Two api processes act at the same time, and one is killed: the audit log is one chain."""

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from rampart_fl.services.console.connection.operator import Operator
from rampart_fl.services.console.launcher.forked import ForkedProcesses
from rampart_fl.services.console.launcher.processes import (
    Processes,
    free_port,
    wait_until_listening,
)
from rampart_fl.shared.errors import Unavailable
from rampart_fl.shared.protocol.audit import check_chain
from tests.integration.in_process_federation import Hosted, experiment

NAMES = ["ada", "bob"]
ACTS = 30
"""How often the operator of the surviving process acts, at least."""


def start(hosted: Hosted, processes: Processes, name: str) -> str:
    """Starts a process of the role api over the same state; its URL."""
    port, settings = free_port(), hosted.settings
    processes.python(
        name,
        "rampart_fl.services.aggregator",
        RAMPART_ROLE="api",
        RAMPART_PORT=str(port),
        RAMPART_REDIS_URL=settings.redis_url,
        RAMPART_NAMESPACE=settings.namespace,
        RAMPART_BLOBS=settings.blobs,
        RAMPART_OPERATOR_TOKEN=settings.operator_token.get_secret_value(),
    )
    wait_until_listening(port, processes, name, 60)
    return f"http://127.0.0.1:{port}"


def test_audit_log_stays_one_chain_if_one_of_two_processes_is_killed(
    host: Callable[..., Hosted], tmp_path: Path
) -> None:
    hosted = host(experiment(3))
    processes, acknowledged = ForkedProcesses(tmp_path / "logs"), Counter[str]()
    for name in NAMES:
        hosted.join(name)
        hosted.operator.add_operator(f"boss-of-{name}", "operator")
        hosted.operator.revoke_operator(f"boss-of-{name}")
    tokens = {n: hosted.operator.add_operator(f"boss-of-{n}", "operator").token for n in NAMES}
    already = len(list(hosted.operator.audit()))
    enough = threading.Event()

    def act(name: str, url: str) -> None:
        """Evicts and reinstates a client in turn, until `enough` is set or the process ends."""
        operator = Operator(url, tokens[name], patience=0.0)
        try:
            run = operator.run(hosted.run.id)
            while acknowledged[name] < ACTS or not enough.is_set():
                verb = ("evict", "reinstate")[acknowledged[name] % 2]
                run.decide(name, verb, f"number {acknowledged[name]}")
                acknowledged[name] += 1
                if name == "bob" and acknowledged[name] == 5:
                    enough.set()
        except Unavailable:
            assert name == "bob", "only its process is killed"
        finally:
            operator.close()

    try:
        urls = {name: start(hosted, processes, name) for name in NAMES}
        threads = [threading.Thread(target=act, args=item) for item in urls.items()]
        for thread in threads:
            thread.start()
        assert enough.wait(60)
        processes.kill("bob")
        for thread in threads:
            thread.join()
    finally:
        processes.stop_all()

    entries = list(hosted.operator.audit())
    check_chain(entries)
    evicted = {client.client_id: client.evicted for client in hosted.run.members()}
    for name in NAMES:
        own = [entry for entry in entries[already:] if entry.actor == f"boss-of-{name}"]
        assert {entry.target for entry in own} == {name}
        # The killed process's last act has an entry if it took place, even unacknowledged.
        assert 0 <= len(own) - acknowledged[name] <= (name == "bob")
        assert [entry.act for entry in own] == [
            ("evict", "reinstate")[number % 2] for number in range(len(own))
        ]
        assert [entry.reason for entry in own] == [f"number {n}" for n in range(len(own))]
        assert evicted.get(name, False) == (own[-1].act == "evict")
