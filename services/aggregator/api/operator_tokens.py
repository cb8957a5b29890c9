"""Looks up a token's operator in Redis without a cache, so a revocation takes effect at once."""

import time
from dataclasses import dataclass

from rampart_fl.services.aggregator.state.audit_log import Attribution
from rampart_fl.services.aggregator.state.operator_store import OWNER, OperatorStore
from rampart_fl.shared.protocol.operators import Role
from rampart_fl.shared.protocol.refusals import OperatorExpired, OperatorRevoked
from rampart_fl.shared.runtime.tokens import matches, token_hash


@dataclass(frozen=True)
class Actor:
    """The operator that sent a request."""

    name: str
    role: Role

    def because(self, reason: str) -> Attribution:
        """Attributes an action to this operator, with the current time and the given reason."""
        return Attribution(self.name, reason, time.time())


class OperatorTokens:
    """Checks the token of the owner and the tokens of named operators.

    Args:
        owner_hash: hash of the owner's token.
        operators: the store of named operators.
    """

    def __init__(self, owner_hash: str, operators: OperatorStore) -> None:
        self._owner_hash = owner_hash
        self._operators = operators

    async def of(self, token: str) -> Actor | None:
        """The operator to whom a token belongs; None if it belongs to no operator.

        Raises:
            OperatorExpired: the token is an operator's, but has expired.
            OperatorRevoked: the token was an operator's, but was revoked or replaced.
        """
        if matches(token, self._owner_hash):
            return Actor(OWNER, "operator")
        hash_ = token_hash(token)
        entry = await self._operators.of_token(hash_)
        if entry is None:
            return None
        name, record = entry
        # After an operator's token was revoked or has expired, the operator can get a new token
        # under the same name. The record then has the hash of the new token. If the given token has
        # another hash, it is an older token of this operator.
        if record.revoked_at is not None or record.token_hash != hash_:
            raise OperatorRevoked(f"the token of {name} was revoked")
        if record.expires_at is not None and record.expires_at <= time.time():
            raise OperatorExpired(f"the token of {name} has expired")
        return Actor(name, record.role)
