"""Join tokens of a deployment: one file or key per process, made once."""

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from pydantic import ValidationError

from rampart_fl.services.console import join_tokens
from rampart_fl.services.console.connection.operator import Operator
from rampart_fl.services.console.join_tokens import (
    JoinTokenSettings,
    fill_folder,
    fill_secret,
    mint,
    provide,
    shares,
)
from rampart_fl.shared.errors import Unavailable
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.protocol.messages import JoinTokens

WANTED = {"agents-0": ["client-00"], "agents-1": ["client-01", "client-02"]}
TEXTS = {"agents-0": "token of client-00\n", "agents-1": "token of client-01\ntoken of client-02\n"}
KEPT = base64.b64encode(b"kept\n").decode()


class FakeOperator:
    """Mints tokens that contain the id of their client."""

    def __init__(self) -> None:
        self.minted: list[str] = []

    def mint(self, client_ids: list[str], lifetime: float, reason: str) -> JoinTokens:
        """Tokens in the order of the ids."""
        self.minted += client_ids
        return JoinTokens(tokens=[f"token of {c}" for c in client_ids], expires_at=lifetime)


@pytest.fixture
def operator() -> FakeOperator:
    return FakeOperator()


@pytest.fixture
def make(operator: FakeOperator) -> join_tokens.Make:
    return lambda wanted: mint(cast(Operator, operator), 60.0, wanted)


def test_client_names_match_the_names_in_the_experiment() -> None:
    names = [
        name
        for group in shares({"agents": "0-1 2-9 10-13", "attackers": "14-19"}).values()
        for name in group
    ]
    assert names == Experiment.load("digits-sign-flip").client_names


def test_a_group_without_clients_gets_no_file() -> None:
    assert shares({"agents": "0-1", "attackers": ""}) == {"agents-0": ["client-00", "client-01"]}


@pytest.mark.parametrize(
    ("groups", "refusal"),
    [
        ({"agents": "0-3 3"}, "listed twice: 3"),
        ({"agents": "0-3", "attackers": "2,4"}, "listed twice: 2"),
        ({"agents": "0 2-3 6"}, "no process hosts the slots 1,4-5"),
        ({"agents": "a"}, "not a list of numbers"),
    ],
)
def test_slots_must_belong_to_exactly_one_process(
    groups: dict[str, str], refusal: str, tmp_path: Path
) -> None:
    with pytest.raises(ValidationError, match=refusal):
        JoinTokenSettings.model_validate(
            {"operator_token": "x" * 16, "groups": groups, "tokens_folder": tmp_path}
        )


def test_every_process_gets_its_own_tokens(make: join_tokens.Make, tmp_path: Path) -> None:
    fill_folder(make, tmp_path, WANTED)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {str(file.relative_to(tmp_path)): file.read_text() for file in files} == {
        f"{name}/tokens": text for name, text in TEXTS.items()
    }
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}


def test_existing_token_files_are_kept(
    make: join_tokens.Make, operator: FakeOperator, tmp_path: Path
) -> None:
    (tmp_path / "agents-0").mkdir()
    (tmp_path / "agents-0/tokens").write_text("kept\n")
    fill_folder(make, tmp_path, WANTED)
    fill_folder(make, tmp_path, WANTED)
    assert (tmp_path / "agents-0/tokens").read_text() == "kept\n"
    assert operator.minted == ["client-01", "client-02"]


class FakeCluster:
    """The part of the Kubernetes API that handles Secrets.

    Before each of the first changes arrives, another job adds one of the keys `rivals`.
    """

    def __init__(self, refuse: int | None = None, rivals: Sequence[str] = ()) -> None:
        self.secrets: dict[str, dict[str, Any]] = {}
        self.refuse = refuse
        self.rivals = [*rivals]

    def keep(self, name: str, data: dict[str, str]) -> None:
        """Stores a new version of a Secret; if `data` is empty, the Secret has no such field."""
        metadata = self.secrets.get(name, {}).get("metadata", {})
        version = str(int(metadata.get("resourceVersion", "0")) + 1)
        self.secrets[name] = {"metadata": {"name": name, "resourceVersion": version}}
        self.secrets[name] |= {"data": data} if data else {}

    def __call__(self, request: httpx.Request) -> httpx.Response:
        path = "/api/v1/namespaces/here/secrets"
        assert request.headers["authorization"] == "Bearer account"
        if self.refuse is not None:
            return httpx.Response(self.refuse, text="no")
        if request.method == "GET":
            name = request.url.path.removeprefix(f"{path}/")
            secret = self.secrets.get(name)
            return httpx.Response(404) if secret is None else httpx.Response(200, json=secret)
        body = json.loads(request.content)
        name = "join-tokens"
        if self.rivals:
            self.keep(name, {**self.secrets.get(name, {}).get("data", {}), self.rivals.pop(): KEPT})
        if request.method == "POST":
            assert request.url.path == path
            assert (body["apiVersion"], body["kind"], body["type"]) == ("v1", "Secret", "Opaque")
            assert body["metadata"] == {"name": name}
            if name in self.secrets:
                return httpx.Response(409)
            self.keep(name, body["data"])
            return httpx.Response(201, json=self.secrets[name])
        assert (request.method, request.url.path) == ("PATCH", f"{path}/{name}")
        assert request.headers["content-type"] == "application/merge-patch+json"
        assert body.keys() == {"metadata", "data"}
        if body["metadata"]["resourceVersion"] != self.secrets[name]["metadata"]["resourceVersion"]:
            return httpx.Response(409)
        self.keep(name, {**self.secrets[name].get("data", {}), **body["data"]})
        return httpx.Response(200, json=self.secrets[name])

    def texts(self) -> dict[str, str]:
        """Keys and decoded values of the Secret."""
        data = self.secrets["join-tokens"]["data"]
        return {key: base64.b64decode(text).decode() for key, text in data.items()}

    def client(self) -> httpx.Client:
        """An HTTP client of this cluster."""
        return httpx.Client(
            base_url="https://cluster",
            headers={"Authorization": "Bearer account"},
            transport=httpx.MockTransport(self),
        )


def test_secret_has_one_key_per_pod(make: join_tokens.Make) -> None:
    fake = FakeCluster()
    with fake.client() as cluster:
        fill_secret(make, cluster, "here", "join-tokens", WANTED)
    assert fake.texts() == TEXTS


def test_existing_keys_of_a_secret_are_kept(make: join_tokens.Make, operator: FakeOperator) -> None:
    fake = FakeCluster()
    fake.keep("join-tokens", {"agents-0": KEPT, "gone-0": KEPT})
    with fake.client() as cluster:
        fill_secret(make, cluster, "here", "join-tokens", WANTED)
        filled = dict(fake.secrets["join-tokens"])
        fill_secret(make, cluster, "here", "join-tokens", WANTED)
    assert fake.texts() == {**TEXTS, "agents-0": "kept\n", "gone-0": "kept\n"}
    assert operator.minted == ["client-01", "client-02"]
    assert fake.secrets["join-tokens"] == filled


def test_an_empty_secret_is_filled(make: join_tokens.Make) -> None:
    fake = FakeCluster()
    fake.keep("join-tokens", {})
    with fake.client() as cluster:
        fill_secret(make, cluster, "here", "join-tokens", WANTED)
    assert fake.texts() == TEXTS


@pytest.mark.parametrize("before", [None, {}])
def test_concurrent_jobs_keep_each_others_keys(
    make: join_tokens.Make, before: dict[str, str] | None
) -> None:
    fake = FakeCluster(rivals=["agents-0"])
    if before is not None:
        fake.keep("join-tokens", before)
    with fake.client() as cluster:
        fill_secret(make, cluster, "here", "join-tokens", WANTED)
    assert fake.texts() == {**TEXTS, "agents-0": "kept\n"}


def test_filling_a_secret_fails_after_repeated_conflicts(make: join_tokens.Make) -> None:
    fake = FakeCluster(rivals=[f"rival-{n}" for n in range(join_tokens.ATTEMPTS)])
    with fake.client() as cluster, pytest.raises(Unavailable, match="Kubernetes: 409"):
        fill_secret(make, cluster, "here", "join-tokens", WANTED)


@pytest.mark.parametrize("status", [403, 500])
def test_refusal_by_kubernetes_is_an_error(make: join_tokens.Make, status: int) -> None:
    with (
        FakeCluster(refuse=status).client() as cluster,
        pytest.raises(Unavailable, match=f"Kubernetes: {status} no"),
    ):
        fill_secret(make, cluster, "here", "join-tokens", WANTED)


@pytest.mark.parametrize("places", [{}, {"tokens_folder": "x", "tokens_secret": "y"}])
def test_exactly_one_destination_for_tokens_is_required(places: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match="either RAMPART_TOKENS_FOLDER"):
        JoinTokenSettings.model_validate(
            {"operator_token": "x" * 16, "groups": {"agents": "0"}, **places}
        )


def test_unreachable_aggregator_is_an_error_after_the_configured_patience(tmp_path: Path) -> None:
    settings = JoinTokenSettings.model_validate(
        {
            "aggregator": "http://127.0.0.1:1",
            "operator_token": "o" * 20,
            "groups": {"agents": "0"},
            "tokens_folder": tmp_path,
            "patience": 0.3,
        }
    )
    with pytest.raises(Unavailable, match="does not answer"):
        provide(settings)
