"""Named operators, in a real Redis."""

import pytest

from rampart_fl.services.aggregator.state.audit_log import Attribution
from rampart_fl.services.aggregator.state.operator_store import OperatorRecord
from rampart_fl.services.aggregator.state.stores import Stores

pytestmark = pytest.mark.anyio
NOW = 1_000_000.0


def by(time: float = NOW) -> Attribution:
    return Attribution("ada", "a test", time)


async def test_operators_are_added_listed_and_revoked(stores: Stores) -> None:
    operators = stores.operators
    assert await operators.records() == {}
    assert (await operators.add("vera", "viewer", "hash-v", NOW + 9, by()))[0] == "added"
    assert (await operators.add("bob", "operator", "hash-b", None, by()))[0] == "added"
    vera = OperatorRecord("viewer", "hash-v", NOW, "ada", NOW + 9)
    assert await operators.of_token("hash-v") == ("vera", vera)
    assert await operators.of_token("garbage") is None
    assert list(await operators.records()) == ["bob", "vera"]
    assert await operators.revoke("vera", by(NOW + 1)) == "revoked"
    assert await operators.of_token("hash-v") == ("vera", vera._replace(revoked_at=NOW + 1))


async def test_operator_name_can_be_reused_only_after_its_token_expires_or_is_revoked(
    stores: Stores,
) -> None:
    operators = stores.operators
    await operators.add("vera", "viewer", "one", NOW + 9, by())
    assert (await operators.add("vera", "operator", "two", None, by(NOW + 8)))[0] == "taken"
    assert (await operators.add("vera", "operator", "two", None, by(NOW + 9)))[0] == "added"
    assert (await operators.add("vera", "viewer", "three", None, by(NOW + 99)))[0] == "taken"
    await operators.revoke("vera", by())
    assert (await operators.add("vera", "viewer", "three", None, by()))[0] == "added"
    for former in ("one", "two", "three"):
        entry = await operators.of_token(former)
        assert entry is not None
        assert (entry[0], entry[1].token_hash) == ("vera", "three")


async def test_audit_entry_of_a_new_operator_states_role_and_expiry(stores: Stores) -> None:
    await stores.operators.add("vera", "viewer", "one", NOW + 9, by())
    (entry,) = await stores.audit.entries(0, 10)
    assert entry.details == {"role": "viewer", "expires_at": "1970-01-12T13:46:49.000Z"}
