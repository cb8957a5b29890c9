"""Tokens: 256 random bits, of which only the SHA-256 is ever stored."""

import hashlib
import secrets


def mint() -> str:
    """A new token.

    >>> len(mint()) >= 43
    True
    """
    return secrets.token_urlsafe(32)


def token_hash(token: str) -> str:
    """What is stored and compared in place of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


def matches(token: str, expected_hash: str) -> bool:
    """Whether a token has this hash, in constant time."""
    return secrets.compare_digest(token_hash(token), expected_hash)
