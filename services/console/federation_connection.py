"""An operator's connection to a federation: its clients, tokens, operators and audit log."""

from collections.abc import Iterator, Mapping

from rampart_fl.services.console.aggregator_connection import AggregatorConnection
from rampart_fl.shared.protocol.audit import AuditEntry
from rampart_fl.shared.protocol.clients import ClientInfo
from rampart_fl.shared.protocol.messages import JoinTokens
from rampart_fl.shared.protocol.operators import OperatorInfo, OperatorToken, Role, WhoAmI
from rampart_fl.shared.protocol.reasons import NO_REASON
from rampart_fl.shared.runtime.tokens import token_hash

NO_LABELS: Mapping[str, str] = {}
PAGE = 500
"""Maximum number of items in one response."""


class FederationConnection(AggregatorConnection):
    """Reads and changes data that a federation keeps across runs; see `Operator` for runs."""

    def clients(self) -> list[ClientInfo]:
        """All clients of the federation, sorted by id."""
        infos = list[ClientInfo]()
        while True:
            which = {"limit": PAGE, **({"after": infos[-1].client_id} if infos else {})}
            page = self._ask(list[ClientInfo], "GET", "/v1/clients", params=which)
            infos += page
            if len(page) < PAGE:
                return infos

    def client(self, client: str) -> ClientInfo:
        """One client of the federation."""
        return self._ask(ClientInfo, "GET", f"/v1/clients/{client}")

    def mint(
        self,
        client_ids: list[str],
        lifetime: float = 86_400,
        reason: str = NO_REASON,
        labels: Mapping[str, str] = NO_LABELS,
    ) -> JoinTokens:
        """Makes a join token for each client id; each token is bound to one client id."""
        body = {"client_ids": client_ids, "lifetime": lifetime, "reason": reason}
        body["labels"] = dict(labels)
        return self._ask(JoinTokens, "POST", "/v1/join-tokens", json=body)

    def mint_unbound(
        self,
        count: int,
        lifetime: float = 86_400,
        reason: str = NO_REASON,
        labels: Mapping[str, str] = NO_LABELS,
    ) -> JoinTokens:
        """Makes join tokens that any client may use."""
        body = {"count": count, "lifetime": lifetime, "reason": reason}
        body["labels"] = dict(labels)
        return self._ask(JoinTokens, "POST", "/v1/join-tokens", json=body)

    def revoke_join_token(self, token: str, reason: str = NO_REASON) -> None:
        """Revokes a join token that no client has used."""
        path = f"/v1/join-tokens/{token_hash(token)}"
        self.request("DELETE", path, params={"reason": reason})

    def decide_everywhere(self, client: str, verb: str, reason: str) -> ClientInfo:
        """Bars a client from the whole federation (`evict`), or readmits it (`reinstate`)."""
        path = f"/v1/clients/{client}/{verb}"
        return self._ask(ClientInfo, "POST", path, json={"reason": reason})

    def label(self, client: str, labels: Mapping[str, str], reason: str = NO_REASON) -> ClientInfo:
        """Replaces a client's labels."""
        body = {"labels": dict(labels), "reason": reason}
        return self._ask(ClientInfo, "PUT", f"/v1/clients/{client}/labels", json=body)

    def revoke(self, client: str, reason: str = NO_REASON) -> None:
        """Revokes a client's token immediately."""
        self.request("DELETE", f"/v1/clients/{client}/token", params={"reason": reason})

    def whoami(self) -> WhoAmI:
        """The name and the role of this connection's operator."""
        return self._ask(WhoAmI, "GET", "/v1/whoami")

    def operators(self) -> list[OperatorInfo]:
        """All named operators."""
        return self._ask(list[OperatorInfo], "GET", "/v1/operators")

    def add_operator(
        self, name: str, role: Role, lifetime: float | None = None, reason: str = NO_REASON
    ) -> OperatorToken:
        """Makes a token for an operator; without a `lifetime`, the token is valid until revoked."""
        body = {"name": name, "role": role, "lifetime_seconds": lifetime, "reason": reason}
        return self._ask(OperatorToken, "POST", "/v1/operators", json=body)

    def revoke_operator(self, name: str, reason: str = NO_REASON) -> None:
        """Revokes an operator's token immediately."""
        self.request("DELETE", f"/v1/operators/{name}", params={"reason": reason})

    def audit(self, since: int = 0) -> Iterator[AuditEntry]:
        """Yields the entries of the audit log, starting with number `since`."""
        while True:
            which = {"since": since, "limit": PAGE}
            page = self._ask(list[AuditEntry], "GET", "/v1/audit", params=which)
            yield from page
            since += len(page)
            if len(page) < PAGE:
                return
