"""An operator's connection: whoever answers without being an aggregator is named."""

import httpx
import pytest

from rampart_fl.services.console.operator import Operator
from rampart_fl.shared.errors import ConfigurationError


@pytest.mark.parametrize("body", ["<html>welcome</html>", '{"a": 1}', "3"])
def test_what_is_no_aggregator_is_named(body: str) -> None:
    operator = Operator("http://test", "t" * 43)
    operator.close()
    operator._http = httpx.Client(
        base_url="http://test",
        transport=httpx.MockTransport(lambda _: httpx.Response(200, text=body)),
    )
    for ask in (
        operator.status,
        operator.rounds,
        operator.clients,
        operator.evaluations,
        lambda: operator.mint(["ada"]),
        lambda: operator.mint_unbound(1),
        lambda: operator.decide("ada", "evict", "why"),
        lambda: operator.steer("pause"),
    ):
        with pytest.raises(ConfigurationError, match="'http://test' does not answer as an"):
            ask()
    operator.close()


def test_a_url_with_no_port_is_named() -> None:
    with pytest.raises(ConfigurationError, match="Invalid port: 'abc'"):
        Operator("http://127.0.0.1:abc", "t" * 43)
