"""Groups clients that sent similar uploads, and tests whether they answer each other's challenges.

Legend: M rows of the round, J decoys, K numbers of a sketch.
"""

from collections.abc import Collection, Mapping, Sequence

import torch
from torch import Tensor

from rampart_fl.shared.robust.base import Rows
from rampart_fl.shared.robust.evidence.relays import Relay
from rampart_fl.shared.robust.evidence.trials import TrialRecord
from rampart_fl.shared.robust.sketch import Traces


def merge(known: Mapping[str, TrialRecord], similar: Mapping[str, Sequence[str]]) -> None:
    """Puts clients that sent similar uploads into one group, and merges their previous groups.

    A client has a group only while it is on trial, or while a recent acquittal exempts it from
    trials. When attackers copy an upload of an honest client for the first time, the honest client
    is not on trial yet. A single copy therefore does not draw the honest client into the attackers'
    group.

    Args:
        known: what is remembered about each client, keyed by client id.
        similar: for each client of the round, the other clients that sent similar uploads.

    >>> known = {name: TrialRecord(9.0, (0.0,), trial=name != "d") for name in "abcd"}
    >>> merge(known, {"a": ["b"], "b": ["a"], "c": ["d"], "d": ["c"]})
    >>> merge(known, {"b": ["c"], "c": ["b"]})
    >>> [known[name].group for name in "abcd"]
    [1, 1, 1, 0]
    """
    for one in known.values():
        one.group = one.group if one.trial or one.rest else 0
    for client, others in similar.items():
        members = [known[name] for name in (client, *others)]
        members = [one for one in members if one.trial or one.rest]
        if len(members) < 2:
            continue
        joined = {one.group for one in members} - {0}
        number = min(joined, default=1 + max(one.group for one in known.values()))
        for one in (*members, *(one for one in known.values() if one.group in joined)):
            one.group = number


def others_in_group(known: Mapping[str, TrialRecord], client: str) -> list[str]:
    """The other clients in a client's group."""
    number = known[client].group
    if not number:  # In most rounds, no client has a group, so do not search all clients.
        return []
    return [name for name, one in known.items() if one.group == number and name != client]


def relays(
    known: Mapping[str, TrialRecord],
    rows: Rows,
    traces: Traces,
    selected: Collection[str],
    round_: int,
) -> dict[str, Relay]:
    """For each client, how its upload answers the challenges of the other clients in its group.

    The challenges of all selected clients of a group count, even if some of these clients send no
    upload. Attackers therefore cannot raise the evidence against an honest client by withholding
    uploads after they have seen their challenges. Uploads that were trained in earlier rounds are
    left out. If a round fails, the challenges drawn for it do not count in the next round. The
    reason is that attackers who know these challenges could influence which clients are selected
    next.

    Args:
        known: what is remembered about each client, before the uploads of this round.
        rows: the rows of the round.
        traces: sketches of the rows.
        selected: the clients that the server selected for the round.
        round_: number of the round.
    """
    asked: dict[int, dict[str, Tensor]] = {}
    for client in sorted(known.keys() & set(selected)):
        one = known[client]
        if one.group and one.due_shift is not None and one.due_round == round_ - 1:
            asked.setdefault(one.group, {})[client] = one.due_shift.double()
    ages_M = rows.metadata.get("age", torch.zeros(len(rows)))
    found: dict[str, Relay] = {}
    for place, client in enumerate(rows.ids):
        one = known[client]
        others = [shift_JK for name, shift_JK in asked.get(one.group, {}).items() if name != client]
        if others and one.average is not None and not ages_M[place]:
            sum_JK = torch.stack(others).sum(dim=0)
            relay = Relay.of(traces.upload_MK[place], one.average, sum_JK)
            if relay is not None:
                found[client] = relay
    return found
