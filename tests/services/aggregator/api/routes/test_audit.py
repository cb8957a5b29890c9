"""The audit log over HTTP."""

import pytest

from rampart_fl.shared.protocol.audit import AuditEntry, check_chain
from tests.services.aggregator.api.conftest import Api, slug

pytestmark = pytest.mark.anyio


async def test_audit_log_is_paged_and_its_chain_can_be_verified(api: Api) -> None:
    for name in ("ada", "bob"):
        await api.add(name)
    whole = (await api.ask("GET", "/v1/audit")).json()
    pages = [
        (await api.ask("GET", "/v1/audit", params={"since": since, "limit": 2})).json()
        for since in (0, 2, 4)
    ]
    assert pages == [whole[:2], whole[2:], []]
    entries = [AuditEntry.model_validate(entry) for entry in whole]
    assert check_chain(entries) == (3, whole[-1]["hash"])


@pytest.mark.parametrize("query", ["since=-1", "since=x", "limit=0", "limit=1001", "since=1e999"])
async def test_malformed_page_parameters_are_refused(api: Api, query: str) -> None:
    answer = await api.ask("GET", f"/v1/audit?{query}")
    assert (answer.status_code, slug(answer)) == (422, "invalid-request")


async def test_corrupt_audit_log_is_reported_as_broken(api: Api) -> None:
    await api.add("vera")
    stores = api.live_run.stores
    await stores.redis.client.lset(stores.audit.keys.audit, 0, "nothing")
    answer = await api.ask("GET", "/v1/audit")
    assert (answer.status_code, slug(answer)) == (422, "audit-broken")
