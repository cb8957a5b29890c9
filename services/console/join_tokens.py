"""`python -m rampart_fl.services.console.join_tokens`: makes a deployment's missing join tokens.

docker-compose.yml and k8s/ run this module as a start-up job. Each process that hosts clients has
its own folder with a file of tokens, or its own key in a Kubernetes Secret. The tokens are listed
one per line. The folder or key is named `<group>-<number>`, like a pod of a StatefulSet. Clients
are named after their slots. The job adds the files or keys that are missing and leaves existing
ones unchanged, so it can run again.
"""

import asyncio
import json
import logging
import os
import ssl
import sys
from base64 import b64encode
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import httpx
from pydantic import Field, SecretStr, model_validator

from rampart_fl.services.console.connection.operator import Operator
from rampart_fl.shared.errors import Unavailable
from rampart_fl.shared.experiment.slots import client_names
from rampart_fl.shared.runtime import durable
from rampart_fl.shared.runtime.process import ServiceSettings, run_service
from rampart_fl.shared.runtime.ranges import check_distinct, format_ranges, parse_lists

log = logging.getLogger(__name__)
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""The folder in which Kubernetes stores a pod's own credentials."""
TOKENS_FILE = "tokens"
"""The name of the file in each process's folder."""
ATTEMPTS = 10
"""Maximum number of attempts to change a Secret that other jobs change at the same time."""
Make = Callable[[Mapping[str, list[str]]], dict[str, str]]
"""A function that makes tokens for the clients of each process. For each process, it returns a text
that contains the tokens."""


class JoinTokenSettings(ServiceSettings):
    """Settings of the job; the variable RAMPART_<FIELD> sets a field."""

    aggregator: str = "http://127.0.0.1:8440"
    """URL of the aggregator."""
    operator_token: SecretStr
    """Operator token."""
    ca_certificate: Path | None = None
    """CA bundle for the aggregator's TLS certificate."""
    groups: dict[str, str]
    """The slots of all processes, keyed by group of processes. In a group, spaces separate the
    slots of one process from those of the next: {"agents": "0-3,5 6,8", "attackers": "4,7"}. Each
    slot from 0 to the highest slot must belong to exactly one process."""
    tokens_folder: Path | None = None
    """Folder in which each process gets a folder with one file."""
    tokens_secret: str | None = None
    """Kubernetes Secret in the namespace of this pod; the job adds one key for each process."""
    lifetime: float = Field(default=7 * 86_400, gt=0)
    """Seconds until the tokens expire."""
    patience: float = Field(default=600.0, gt=0)
    """Seconds to wait for the aggregator to become ready."""

    @model_validator(mode="after")
    def _one_place_and_every_slot(self) -> "JoinTokenSettings":
        if (self.tokens_folder is None) == (self.tokens_secret is None):
            raise ValueError("set either RAMPART_TOKENS_FOLDER or RAMPART_TOKENS_SECRET")
        shares(self.groups)
        return self


def shares(groups: Mapping[str, str]) -> dict[str, list[str]]:
    """The clients of each process, keyed by the name of the process's folder or key.

    Raises:
        ValueError: a list of slots is malformed, or a slot belongs to two processes or to none.

    >>> shares({"agents": "0 2", "liars": "1,3"})
    {'agents-0': ['client-00'], 'agents-1': ['client-02'], 'liars-0': ['client-01', 'client-03']}
    """
    hosted = {
        f"{group}-{number}": slots
        for group, text in groups.items()
        for number, slots in enumerate(parse_lists(text))
    }
    everyone = [slot for slots in hosted.values() for slot in slots]
    check_distinct(everyone)
    missing = set(range(max(everyone, default=0) + 1)) - set(everyone)
    if missing:
        raise ValueError(f"no process hosts the slots {format_ranges(sorted(missing))}")
    names = client_names(len(everyone))
    return {name: [names[slot] for slot in slots] for name, slots in hosted.items()}


def mint(operator: Operator, lifetime: float, wanted: Mapping[str, list[str]]) -> dict[str, str]:
    """Makes a token for each client; returns the text of each process's file, a token per line."""
    clients = [client for group in wanted.values() for client in group]
    tokens = iter(operator.mint(clients, lifetime, reason="start-up job").tokens)
    return {name: "".join(f"{next(tokens)}\n" for _ in group) for name, group in wanted.items()}


def fill_folder(make: Make, folder: Path, wanted: Mapping[str, list[str]]) -> None:
    """Writes the files that do not exist yet; only their owner may read them.

    Each process has its own folder, so a deployment can mount a separate volume for each process.
    No process can then read the tokens of other processes.
    """
    missing = {
        name: group for name, group in wanted.items() if not (folder / name / TOKENS_FILE).exists()
    }
    if not missing:
        log.info("every process already has its tokens")
        return
    for name, text in make(missing).items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        durable.replace(folder / name / TOKENS_FILE, [text.encode()], 0o600)


def fill_secret(
    make: Make, cluster: httpx.Client, namespace: str, name: str, wanted: Mapping[str, list[str]]
) -> None:
    """Adds the keys that the Secret does not have yet; creates the Secret if it does not exist.

    Raises:
        Unavailable: Kubernetes refuses a request, or every attempt conflicts with another job.
    """
    path = f"/api/v1/namespaces/{namespace}/secrets"
    for _ in range(ATTEMPTS):
        known = cluster.get(f"{path}/{name}")
        if known.status_code not in (200, 404):
            break
        there = known.json() if known.status_code == 200 else {}
        # For an empty Secret, the answer from Kubernetes lacks the key `data`.
        keys = there.get("data") or {}
        missing = {key: group for key, group in wanted.items() if key not in keys}
        if there and not missing:
            log.info("every process already has its tokens")
            return
        data = {key: b64encode(text.encode()).decode() for key, text in make(missing).items()}
        if there:
            # The patch names the version of the Secret that was read above. If the Secret has
            # changed after it was read, Kubernetes refuses the patch.
            version = {"resourceVersion": there["metadata"]["resourceVersion"]}
            known = cluster.patch(
                f"{path}/{name}",
                content=json.dumps({"metadata": version, "data": data}),
                headers={"Content-Type": "application/merge-patch+json"},
            )
        else:
            secret = {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": data}
            known = cluster.post(path, json={**secret, "metadata": {"name": name}})
        if known.is_success:
            return
        if known.status_code != 409:
            break
    raise Unavailable(f"Kubernetes: {known.status_code} {known.text[:300]}")


def cluster() -> httpx.Client:
    """A connection to the Kubernetes API of this pod's cluster."""
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    if ":" in host:
        host = f"[{host}]"
    token = (ACCOUNT / "token").read_text(encoding="utf-8")
    return httpx.Client(
        base_url=f"https://{host}:{port}",
        headers={"Authorization": f"Bearer {token}"},
        verify=ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt")),
    )


def provide(settings: JoinTokenSettings) -> None:
    """Waits for the aggregator, and makes the tokens that do not exist yet."""
    wanted = shares(settings.groups)
    ca = None if settings.ca_certificate is None else str(settings.ca_certificate)
    operator = Operator(
        settings.aggregator, settings.operator_token.get_secret_value(), ca, settings.patience
    )
    make = partial(mint, operator, settings.lifetime)
    try:
        operator.ready(settings.patience)
        if settings.tokens_folder is not None:
            fill_folder(make, settings.tokens_folder, wanted)
            return
        assert settings.tokens_secret is not None
        with cluster() as connection:
            namespace = (ACCOUNT / "namespace").read_text(encoding="utf-8")
            fill_secret(make, connection, namespace, settings.tokens_secret, wanted)
    finally:
        operator.close()


def main() -> int:
    """Makes the tokens; returns the exit code, 0 if every process has its tokens."""
    return run_service(
        "console.join-tokens",
        JoinTokenSettings,
        lambda settings: asyncio.to_thread(provide, settings),
    )


if __name__ == "__main__":
    sys.exit(main())
