"""Tokens: 256 random bits each; the aggregator stores only a token's SHA-256."""

import hashlib
import secrets


def mint() -> str:
    """Makes a random token that does not start with "-", so that no command parses it as an option.

    >>> len(mint()) >= 43
    True
    """
    while (token := secrets.token_urlsafe(32)).startswith("-"):
        pass
    return token


def token_hash(token: str) -> str:
    """The token's SHA-256, which is stored and compared instead of the token."""
    return hashlib.sha256(token.encode()).hexdigest()


def matches(token: str, expected_hash: str) -> bool:
    """Whether a token has this hash; the comparison takes constant time."""
    return secrets.compare_digest(token_hash(token), expected_hash)
