"""Tokens: 256 random bits each; the aggregator stores only a token's SHA-256."""

import hashlib
import hmac
import secrets


def mint() -> str:
    """Makes a random token that does not start with "-", so that no command parses it as an option.

    >>> len(mint()) >= 43
    True
    """
    while (token := secrets.token_urlsafe(32)).startswith("-"):
        pass
    return token


def mint_repeatably(number: int, key: str | None, request: str) -> list[str]:
    """Makes tokens; the same key and the same request give the same tokens again.

    Token i is HMAC-SHA-256 of the request and i, with the given key. Nobody can therefore compute
    the tokens without the key. Requests with different content have different tokens.

    Args:
        number: number of tokens.
        key: a secret of at least 256 random bits; None makes random tokens.
        request: the kind of the request, and its complete content.

    >>> mint_repeatably(2, "k" * 43, "POST") == mint_repeatably(2, "k" * 43, "POST")
    True
    >>> len({*mint_repeatably(2, "k" * 43, "POST"), *mint_repeatably(2, "k" * 43, "GET")})
    4
    """
    if key is None:
        return [mint() for _ in range(number)]
    contents = (f"{position} {request}".encode() for position in range(number))
    return [hmac.new(key.encode(), content, "sha256").hexdigest() for content in contents]


def token_hash(token: str) -> str:
    """The token's SHA-256, which is stored and compared instead of the token."""
    return hashlib.sha256(token.encode()).hexdigest()


def matches(token: str, expected_hash: str) -> bool:
    """Whether a token has this hash; the comparison takes constant time."""
    return secrets.compare_digest(token_hash(token), expected_hash)
