"""Determines which of several models a client gets.

API processes use this module and do not load torch, so the module must not import torch.

A model is identified by a name: the id of the client that the model was made for, or a string with
a colon, such as `group:03`. No client's id contains a colon.
"""

import hashlib
from collections.abc import Collection, Mapping, Sequence

GLOBAL = ":global"
"""The name that stands for the global model in a list of models' names."""


def group_of(client: str, groups: Sequence[str]) -> str:
    """The group of a client, determined only by the hash of the client's id and by `groups`.

    >>> group_of("client-00", ["group:0", "group:1"])
    'group:1'
    """
    number = int.from_bytes(hashlib.sha256(client.encode()).digest()[:8], "big")
    return groups[number % len(groups)]


def names_for(
    client: str,
    own: Collection[str],
    assignment: Mapping[str, Sequence[str]],
    groups: Sequence[str] = (),
) -> tuple[str, ...]:
    """The names of one client's models: first the model that it trains from, then its other models.

    Args:
        client: the client's id.
        own: clients that have a model of their own. Such a client gets its own model if
            `assignment` names no models for it.
        assignment: names of models, keyed by client.
        groups: the names of the groups; the model of a group has the same name as the group. A
            client that is neither in `assignment` nor in `own` gets the model of its group (see
            `group_of`).
    Returns:
        The names of the client's models; an empty tuple if the client has no model of its own, no
        assignment and no group.

    >>> names_for("a", ["a"], {}), names_for("b", ["a"], {"b": ["x:1", "a"]})
    (('a',), ('x:1', 'a'))
    >>> names_for("c", ["a"], {})
    ()
    """
    if client in assignment:
        return tuple(assignment[client])
    if client in own:
        return (client,)
    return (group_of(client, groups),) if groups else ()
