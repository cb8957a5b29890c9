"""The ids that no new client may have."""

RESERVED_IDS = frozenset({"global", "reference", "operator", "owner", "nobody"})
"""These words can occur where a client's id is expected. The first two words name models; the other
words mean the operators, the federation's owner, and no client, in this order."""


def check_unreserved(client_id: str) -> str:
    """Returns the id of a new client; refuses reserved words, in lower and upper case.

    The case does not matter because some file systems do not distinguish the names of the files
    `global.safetensors` and `Global.safetensors`.

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
