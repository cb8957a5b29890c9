"""The ids that no new client may have."""

RESERVED_IDS = frozenset({"global", "reference", "operator", "owner", "nobody"})
"""Words that can occur where a client's id is expected. `global` and `reference` name models.
`operator` stands for the operators, `owner` for the federation's owner, and `nobody` for no
client."""


def check_unreserved(client_id: str) -> str:
    """Returns the id of a new client; refuses reserved words, in lower and upper case.

    The function ignores the case, because some file systems treat `global.safetensors` and
    `Global.safetensors` as the same file.

    Raises:
        ValueError: the id is reserved.

    >>> check_unreserved("client-07")
    'client-07'
    >>> check_unreserved("Global")
    Traceback (most recent call last):
    ValueError: the id 'Global' is reserved
    """
    if client_id.lower() in RESERVED_IDS:
        raise ValueError(f"the id {client_id!r} is reserved")
    return client_id
