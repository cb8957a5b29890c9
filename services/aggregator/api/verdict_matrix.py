"""Combines the entries of many rounds into one matrix of verdicts.

Legend: N clients, R rounds.
"""

import base64
from collections.abc import Mapping

import numpy as np

from rampart_fl.services.aggregator.state.round_entry import RoundEntry
from rampart_fl.shared.protocol.refusals import InvalidRequest
from rampart_fl.shared.protocol.stored_rounds import NO_VERDICT, VerdictMatrix

MOST = 4 << 20
"""The maximum number of cells in a response; this maximum limits the memory of a request."""


def verdict_matrix(entries: Mapping[int, RoundEntry], client: str | None = None) -> VerdictMatrix:
    """The verdicts of several rounds.

    Args:
        entries: the entries of the rounds, sorted by round.
        client: the only client to include; None for all clients.
    Raises:
        InvalidRequest: the matrix would have too many cells.
    """
    # Successive rounds often have the same list of clients, so handle each distinct list only once.
    lists = {entry.clients for entry in entries.values()}
    known = {name for clients in lists for name in clients.split()}
    names = sorted(known if client is None else known & {client})
    if len(names) * len(entries) > MOST:
        raise InvalidRequest(
            f"a matrix of {len(names)} clients and {len(entries)} rounds has more than {MOST} "
            f"cells; ask for at most {MOST // len(names)} rounds"
        )
    row = {name: number for number, name in enumerate(names)}
    absent = len(names)
    rows = {
        clients: np.array([row.get(n, absent) for n in clients.split()], dtype=int)
        for clients in lists
    }
    codes_NR = np.full((len(names), len(entries)), ord(NO_VERDICT), dtype="u1")
    scores_NR = np.full(codes_NR.shape, np.nan, dtype="<f4")
    for column, entry in enumerate(entries.values()):
        at, shown = rows[entry.clients], rows[entry.clients] < absent
        codes_NR[at[shown], column] = np.frombuffer(entry.decisions.encode(), "u1")[shown]
        scores_NR[at[shown], column] = entry.scores_N[shown]
    return VerdictMatrix(
        clients=names,
        rounds=list(entries),
        decisions=[codes_R.tobytes().decode() for codes_R in codes_NR],
        scores=base64.b64encode(scores_NR.tobytes()).decode(),
    )
