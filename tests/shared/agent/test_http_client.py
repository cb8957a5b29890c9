"""Every loss of a connection is an httpx error, and nothing else is."""

from pathlib import Path

import httpx
import pytest

from rampart_fl.shared.agent.http_client import HttpClient, tls_context
from rampart_fl.shared.errors import ConfigurationError

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("'NoneType' object has no attribute 'getpeername'", httpx.TransportError),
        ("'int' object has no attribute 'upper'", AttributeError),
    ],
)
async def test_a_connection_lost_when_it_was_made_is_a_lost_connection(
    message: str, kind: type[Exception]
) -> None:
    def lose(_: httpx.Request) -> httpx.Response:
        raise AttributeError(message)

    async with HttpClient(transport=httpx.MockTransport(lose)) as http:
        with pytest.raises(kind):
            await http.get("http://test")


async def test_what_is_answered_is_passed_on() -> None:
    answers = httpx.MockTransport(lambda request: httpx.Response(200, text=request.url.path))
    async with HttpClient(transport=answers) as http:
        assert (await http.get("http://test/here")).text == "/here"


def test_a_bundle_that_is_none_is_named(tmp_path: Path) -> None:
    assert tls_context(None).get_ca_certs(), "the system's"
    with pytest.raises(ConfigurationError, match=r"away.pem': No such file"):
        tls_context(str(tmp_path / "away.pem"))
    (tmp_path / "no.pem").write_text("not a certificate")
    with pytest.raises(ConfigurationError, match=r"no.pem'"):
        tls_context(str(tmp_path / "no.pem"))
