"""Which of several models a client gets; needs no torch, so the API role can ask too.

A model goes by its name: the id of the client that it was made for, or a name with a colon (which
no client's id holds), such as `group:03`.
"""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

GLOBAL = ":global"
"""Stands for the global model in a list of names."""


def group_of(client: str, groups: Sequence[str]) -> str:
    """The group that a client belongs to for good, whatever else changes: by the hash of its id.

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
    """The models of one client: the one that it trains from, then those that it gets beside it.

    Args:
        client: its id.
        own: clients with a model of their own, which they get unless `assignment` names others.
        assignment: names by client.
        groups: where all others belong, by the hash of their ids.
    Returns:
        Nothing for a client of which nothing is known.

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


def handed(client: str, snapshot: Mapping[str, Any], final: bool = False) -> dict[str, str]:
    """The models that a client's ticket names, by digest.

    `model` to train from or to measure (the global one where no other is known), `peer_00` and so
    on beside it, and at the end `vote_00` and so on.

    Args:
        client: its id.
        snapshot: `global_model`, `customized`, `assignment`, `groups`, `voters`, `challenged`.
        final: whether the federation has ended.

    >>> handed("a", {"global_model": "0", "customized": {"a": "1", "b": "2"},
    ...              "assignment": {"a": ["a", "b"]}})
    {'model': '1', 'peer_00': '2'}
    """
    digests, rest = snapshot["customized"], snapshot["global_model"]
    names = names_for(client, digests, snapshot.get("assignment", {}), snapshot.get("groups", ()))
    first, *peers = names or [GLOBAL]
    if not final:
        first = snapshot.get("challenged", {}).get(client, first)
    models = {"model": digests.get(first, rest)}
    if final:
        voters = snapshot.get("voters", ())
        return models | {f"vote_{place:02d}": digests[name] for place, name in enumerate(voters)}
    return models | {f"peer_{place:02d}": digests[name] for place, name in enumerate(peers)}
