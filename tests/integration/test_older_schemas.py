"""A run that an earlier version left unfinished continues to the same result."""

import json
import secrets
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis
from pydantic import SecretStr

from benchmarks import chaos
from rampart_fl.services.aggregator.settings import Settings
from rampart_fl.services.aggregator.state.keys import prefix_of
from rampart_fl.services.console.launcher.processes import free_port
from rampart_fl.shared.protocol.messages import RoundRecord
from rampart_fl.shared.runtime.tokens import mint, token_hash
from tests.integration.in_process_federation import (
    FEDCAP,
    Hosted,
    Scripted,
    experiment,
    serving,
    vector,
)
from tests.schemas.former_states import SCHEMA_1, SCHEMA_2, restore

NAMES = ["ada", "bob", "cleo"]


@pytest.mark.parametrize("dump", [SCHEMA_1, SCHEMA_2], ids=["1", "2"])
def test_run_from_an_older_schema_continues_to_the_same_result(
    host: Callable[..., Hosted], redis_url: str, tmp_path: Path, dump: Path
) -> None:
    whole = host(experiment(rounds=4, server=FEDCAP))
    whole.scripted(NAMES)
    whole.wait()
    expected = [close(chaos.comparable(record)) for record in whole.run.rounds()]
    expected_D = vector(whole.run.model("global"))

    namespace = f"t-{secrets.token_hex(6)}"
    restore(dump, redis_url, namespace, tmp_path / "old" / namespace)
    settings = Settings(
        port=free_port(),
        redis_url=redis_url,
        namespace=namespace,
        blobs=str(tmp_path / "old"),
        blob_cache=tmp_path / "old-cache",
        operator_token=SecretStr(mint()),
        threads=1,
    )
    give_tokens(redis_url, namespace, tmp_path / "test-clients")
    with ExitStack() as server, Hosted(settings, tmp_path, server) as hosted:
        server.enter_context(serving(settings))
        hosted.operator.ready()
        history = json.loads(SCHEMA_1.read_text())["keys"]["history"]["value"]
        stored = [RoundRecord.model_validate_json(history[n]) for n in ("0", "1")]
        assert hosted.run.rounds(0, 2) == stored
        assert hosted.run.status().received == ["cleo"]
        for name in NAMES:
            hosted.take_part(name, Scripted(name))
        hosted.wait()
        records = [named(chaos.comparable(record)) for record in hosted.run.rounds()]
        result_D = vector(hosted.run.model("global"))
        hosted.operator.close()
    assert records == expected
    np.testing.assert_allclose(result_D, expected_D, rtol=0, atol=1e-5)


def named(record: dict[str, Any]) -> dict[str, Any]:
    """A record with the names of its models, but not their digests.

    The models of the older run come from another machine, whose processor rounded differently.
    """
    return record | {key: sorted(record[key]) for key in ("models", "customized")}


def close(record: dict[str, Any]) -> Any:
    """A record to which other records are equal if their numbers are almost equal."""

    def almost(value: Any) -> Any:
        if isinstance(value, float):
            return pytest.approx(value, rel=1e-4)
        if isinstance(value, dict):
            return {key: almost(one) for key, one in value.items()}
        return [almost(one) for one in value] if isinstance(value, list) else value

    return almost(named(record))


def give_tokens(redis_url: str, namespace: str, folder: Path) -> None:
    """Gives the clients new tokens, because only the clients know their own ones."""
    expires = time.time() + 3600
    with redis.Redis.from_url(redis_url) as client:
        for name in NAMES:
            token = mint()
            known: Any = {"client": name, "expires_at": expires}
            client.hset(prefix_of(namespace) + "tokens", token_hash(token), json.dumps(known))
            own = {"token": token, "client_id": name, "sample_cap": 100, "renew_at": expires}
            (folder / name).mkdir(parents=True, exist_ok=True)
            (folder / name / "identity.json").write_text(json.dumps(own))
