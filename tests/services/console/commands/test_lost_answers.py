"""Requests about tokens have their effect once, even if the first answer is lost."""

from collections.abc import Iterator

import httpx
import pytest

from rampart_fl.services.console.connection.operator import Operator, OperatorRefused
from tests.integration.in_process_federation import Hosted


class Lossy(httpx.HTTPTransport):
    """A connection that is lost after the server has answered the first request."""

    lost = False

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Sends the request."""
        answer = super().handle_request(request)
        if not self.lost:
            answer.read()
            answer.close()
            self.lost = True
            raise httpx.ReadError("connection reset", request=request)
        return answer


@pytest.fixture
def operator(hosted: Hosted) -> Iterator[Operator]:
    """The owner, whose connection is lossy."""
    operator = Operator(hosted.url, hosted.settings.operator_token.get_secret_value())
    headers = operator._http.headers
    operator.close()
    operator._http = httpx.Client(base_url=hosted.url, headers=headers, transport=Lossy())
    yield operator
    operator.close()


def acts(hosted: Hosted) -> list[str]:
    """What operators have done since the run was submitted."""
    return [entry.act for entry in hosted.operator.audit(1)]


def test_added_operator_has_the_token_that_is_shown(hosted: Hosted, operator: Operator) -> None:
    token = operator.add_operator("ada", "viewer").token
    ada = Operator(hosted.url, token)
    assert ada.whoami().name == "ada"
    ada.close()
    assert acts(hosted) == ["add-operator"]
    with pytest.raises(OperatorRefused, match="operator ada already exists"):
        operator.add_operator("ada", "viewer")


@pytest.mark.parametrize("bound", [True, False])
def test_join_tokens_are_made_once(hosted: Hosted, operator: Operator, bound: bool) -> None:
    made = operator.mint(["ada", "bob"]) if bound else operator.mint_unbound(2)
    assert acts(hosted) == ["make-join-tokens"]
    for token in made.tokens:
        hosted.operator.revoke_join_token(token)


def test_revocation_of_a_join_token_succeeds(hosted: Hosted, operator: Operator) -> None:
    (token,) = hosted.operator.mint_unbound(1).tokens
    operator.revoke_join_token(token)
    assert acts(hosted) == ["make-join-tokens", "revoke-join-token"]
    with pytest.raises(OperatorRefused, match="no such join token"):
        operator.revoke_join_token("x" * 43)
