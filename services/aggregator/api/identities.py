"""Looks up the client of a token, with a cache that is cleared when any client's token changes."""

import time
from dataclasses import dataclass

from rampart_fl.services.aggregator.api.event_hub import EventHub
from rampart_fl.services.aggregator.state.client_store import ClientStore


@dataclass(frozen=True)
class TokenOwner:
    """The client that owns a token."""

    client: str
    token_hash: str
    expires_at: float
    sample_cap: int | None
    """The cap on the client's sample count; None if each run's own cap applies."""


class Identities:
    """A cache of clients, keyed by the hashes of their tokens.

    Args:
        clients: the store of clients.
        hub: reports rotated and revoked tokens. While the hub cannot read events, it reports no
            such tokens, so the cache adds no client.
    """

    def __init__(self, clients: ClientStore, hub: EventHub) -> None:
        self._clients = clients
        self._hub = hub
        self._known: dict[str, TokenOwner] = {}
        self._as_of = -1

    async def of(self, token_hash: str) -> TokenOwner | None:
        """The client whose token has this hash; None if the token is unknown or was revoked."""
        if self._as_of != self._hub.token_changes:
            self._known.clear()
            self._as_of = self._hub.token_changes
        if token_hash in self._known:
            return self._known[token_hash]
        as_of, token = self._as_of, await self._clients.of_token(token_hash)
        if token is None:
            return None
        record = await self._clients.record(token.client)
        if record is None:
            return None
        known = TokenOwner(token.client, token_hash, token.expires_at, record.sample_cap)
        if self._hub.listening and as_of == self._hub.token_changes:
            self._known[token_hash] = known
        return known

    async def still_valid(self, owner: TokenOwner) -> bool:
        """Whether the token whose hash is in `owner` is still valid."""
        return owner.expires_at >= time.time() and await self.of(owner.token_hash) is not None
