"""Determines which of several models a client gets; without torch, so that the API can use it.

A model is identified by a name. The name is the id of the client that the model was made for, or a
name with a colon, such as `group:03`; no client's id contains a colon.
"""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

GLOBAL = ":global"
"""The name of the global model in a list of names."""


def group_of(client: str, groups: Sequence[str]) -> str:
    """The group of a client, chosen by the hash of the client's id, so that it never changes.

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
    """The names of one client's models: first the one that it trains from, then any others.

    Args:
        client: the client's id.
        own: clients that have a model of their own and get it unless `assignment` names others.
        assignment: names of models, keyed by client.
        groups: the groups among which the hash of its id places every other client.
    Returns:
        The names; an empty tuple if nothing is known about the client.

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
    """The digests of the models in a client's ticket, keyed by the role of each model.

    `model` is the one to train from or to measure: the global model if no other is known. While
    the federation runs, `peer_00` and so on are the other models that the client gets. Once the
    federation has ended, `vote_00` and so on are the models that vote.

    Args:
        client: the client's id.
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
