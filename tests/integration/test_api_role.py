"""A process of the api role, over TLS, in a Python that has no torch."""

import secrets
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rampart_fl.services.aggregator.state.audit_log import Attribution
from rampart_fl.services.aggregator.state.blobs import Blobs
from rampart_fl.services.aggregator.state.member_store import AnswerRecord
from rampart_fl.services.aggregator.state.snapshot import Snapshot
from rampart_fl.services.aggregator.state.stores import Stores
from rampart_fl.services.console.connection.operator import Operator
from rampart_fl.services.console.launcher.processes import (
    Processes,
    free_port,
    wait_until_listening,
)
from rampart_fl.shared.agent.client import AggregatorClient
from rampart_fl.shared.agent.identity import establish
from rampart_fl.shared.errors import Unavailable
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.modelspec import ModelSpec
from rampart_fl.shared.protocol import wire
from rampart_fl.shared.protocol.messages import Ticket
from rampart_fl.shared.runtime.tokens import mint

pytestmark = pytest.mark.anyio
SPEC = ModelSpec.of([("w", (3, 5))])
WITHOUT_TORCH = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "sklearn", "scipy"):
            raise ModuleNotFoundError(f"{name} is not there")

sys.meta_path.insert(0, Blocked())
from rampart_fl.services.aggregator.__main__ import main
sys.exit(main())
"""


RUN = "digits-benign-1"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate for 127.0.0.1, with its key beside it."""
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make a certificate with")
    path = tmp_path_factory.mktemp("tls") / "certificate.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    names = ["-subj", "/CN=aggregator", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-out", str(path), "-keyout", str(path.with_name("key.pem"))]
    subprocess.run([*command.split(), *names, *files], check=True, capture_output=True)
    return path


@pytest.fixture
async def api(
    redis_url: str, tmp_path: Path, certificate: Path
) -> AsyncIterator[tuple[str, Operator, Stores]]:
    """The URL of an api process over a running federation, its operator, and the state."""
    namespace, port, token = f"api-{secrets.token_hex(4)}", free_port(), mint()
    stores = Stores.connect(redis_url, None, namespace)
    model = Blobs(tmp_path / "blobs" / namespace / RUN).put(
        wire.encode(SPEC, np.arange(15, dtype=np.float32))
    )
    experiment = Experiment.load("digits-benign")
    fence = await stores.lease.acquire("test", 60, 0)
    assert fence is not None
    snapshot = Snapshot(global_model=model, reference=model)
    await stores.runs.submit(experiment, "a", Attribution("owner", "a test", 0.0))
    run = stores.of_run(RUN)
    assert await run.state.start(fence, experiment, SPEC, snapshot, 0.0) == "founded"
    await run.members.answer("ada", AnswerRecord(accept=True, at=0.0), 1)
    await run.members.assign_slots(fence, {"ada": 0}, 1)
    await stores.runs.set_ready(fence)
    digest = experiment.digest()
    ticket = Ticket(run=RUN, round=0, kind="train", models={"model": model}, experiment=digest)
    await run.rounds.open(fence, 0, "collecting", 0.0, None, {"ada": ticket}, ["ada"])
    processes = Processes(tmp_path / "logs")
    environment = {
        "RAMPART_ROLE": "api",
        "RAMPART_PORT": str(port),
        "RAMPART_REDIS_URL": redis_url,
        "RAMPART_NAMESPACE": namespace,
        "RAMPART_BLOBS": str(tmp_path / "blobs"),
        "RAMPART_OPERATOR_TOKEN": token,
        "RAMPART_TLS_CERTIFICATE": str(certificate),
        "RAMPART_TLS_KEY": str(certificate.with_name("key.pem")),
    }
    processes.start("api", [sys.executable, "-c", WITHOUT_TORCH], environment)
    operator = Operator(f"https://127.0.0.1:{port}", token, ca=str(certificate))
    try:
        wait_until_listening(port, processes, "api", 60)
        yield f"https://127.0.0.1:{port}", operator, stores
    finally:
        operator.close()
        processes.stop_all()
        await stores.aclose()


async def test_api_process_serves_clients_and_operators_over_tls_without_torch(
    api: Any, certificate: Path, tmp_path: Path
) -> None:
    url, operator, stores = api
    operator.ready()
    (join_token,) = operator.mint(["ada"]).tokens
    identity = await establish(url, tmp_path / "ada", join_token, verify=str(certificate))
    connection = AggregatorClient(url, identity.token, verify=str(certificate), compress=True)
    try:
        assert (await connection.experiment(RUN))["name"] == "digits-benign"
        ticket = await connection.ticket(None)
        assert ticket is not None
        assert ticket.kind == "train"
        model_D = wire.read_model(await connection.model(RUN, ticket.models["model"]), SPEC)
        assert model_D.tolist() == list(range(15))
        data = wire.encode(SPEC, model_D, {"report": '{"samples": 4}'})
        receipt = await connection.upload(RUN, 0, "update", data)
        assert (receipt.client, receipt.samples, receipt.size) == ("ada", 4, len(data))
        assert await stores.of_run(RUN).uploads.receipts(0) == [receipt]
    finally:
        await connection.close()
    assert operator.run(RUN).status().received == ["ada"]
    assert [client.client_id for client in operator.clients()] == ["ada"]
    assert operator.run(RUN).rounds() == []


async def test_untrusted_certificates_and_plain_http_are_refused(api: Any) -> None:
    url, _, _ = api
    for address, reason in ((url, "CERTIFICATE_VERIFY_FAILED"), (url.replace("s:", ":"), "")):
        connection = AggregatorClient(address, mint(), patience=0.0)
        with pytest.raises(Unavailable, match=reason or None):
            await connection.experiment(RUN)
        await connection.close()
