"""Tensors that stages keep between rounds, with one row per client.

Legend: M rows of the round, H clients remembered, D coordinates.
"""

from collections.abc import Collection, Iterable, Mapping

import torch
from torch import Tensor

from rampart_fl.shared.robust import shards
from rampart_fl.shared.robust.base import CHUNK, Rows, State
from rampart_fl.shared.runtime.device import to_device
from rampart_fl.shared.runtime.disk_block import Block


def carry_over_rows(
    state: State,
    name: str,
    rows: Rows,
    clients: Iterable[str],
    replaced: Collection[str] = (),
) -> tuple[Block, dict[str, int]]:
    """A new block (H, D) of the clients' remembered rows, and the clients' positions in the block.

    The block is in a file if the storage of the round's rows has no memory left for the block.

    Args:
        state: the state before this round.
        name: the block's name in the state.
        rows: the round's rows, which set the width, dtype, device and storage of the block.
        clients: clients that get a row in any case; if the state has no row of a client, the new
            row is zero.
        replaced: clients whose rows the caller writes; these rows are not copied.
    """
    known = {client: row for row, client in enumerate(state.ids.get(name, ()))}
    at = {client: i for i, client in enumerate(sorted({*known, *clients}))}
    block = rows.storage.zeros(len(at), rows.block_ND.new_empty(rows.dim))
    for client in known.keys() - set(replaced):
        held = state.block(name)
        block.tensor[at[client]] = held.tensor[known[client]]
        block.release(at[client])
        held.release(known[client])
    return block, at


def remembered(name: str, block: Block, at: Mapping[str, int]) -> State:
    """The state that consists of one block with a row for every client."""
    files = {} if block.file is None else {name: block.file}
    return State({name: block.tensor}, {name: tuple(at)}, frozenset({name}), files)


def remembered_rows(state: State, name: str, rows: Rows, clients: Collection[str]) -> Rows:
    """The remembered rows of some clients, as a view; rows in a file are read window by window."""
    at = {client: row for row, client in enumerate(state.ids[name])}
    index_M = torch.tensor([at[client] for client in clients], dtype=torch.long)
    held = state.block(name)
    return Rows(held.tensor, tuple(clients), index_M, file=held.file, part=rows.part)


def aligned(rows: Rows) -> int:
    """A chunk width in coordinates: a divisor of the width of every window except the last.

    If chunks have the returned width, passes over pools with different numbers of rows yield the
    same ranges of columns.
    """
    return min(rows.width(CHUNK), shards.GRAIN)


def positions(at: Mapping[str, int], clients: Iterable[str], device: torch.device) -> Tensor:
    """Positions of some clients' rows, as an index tensor on `device`."""
    return to_device([at[client] for client in clients], device, torch.long)
