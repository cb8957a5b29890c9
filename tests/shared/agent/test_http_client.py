"""Lost connections become httpx errors; other exceptions do not."""

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
async def test_connection_lost_during_setup_is_a_transport_error(
    message: str, kind: type[Exception]
) -> None:
    def lose(_: httpx.Request) -> httpx.Response:
        raise AttributeError(message)

    async with HttpClient(transport=httpx.MockTransport(lose)) as http:
        with pytest.raises(kind):
            await http.get("http://test")


async def test_responses_are_passed_on() -> None:
    answers = httpx.MockTransport(lambda request: httpx.Response(200, text=request.url.path))
    async with HttpClient(transport=answers) as http:
        assert (await http.get("http://test/here")).text == "/here"


def test_missing_or_invalid_ca_bundle_is_named_in_the_error(tmp_path: Path) -> None:
    assert tls_context(None).get_ca_certs(), "the system's"
    with pytest.raises(ConfigurationError, match=r"away.pem': No such file"):
        tls_context(str(tmp_path / "away.pem"))
    (tmp_path / "no.pem").write_text("not a certificate")
    with pytest.raises(ConfigurationError, match=r"no.pem'"):
        tls_context(str(tmp_path / "no.pem"))
