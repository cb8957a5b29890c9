"""Tensors that stages keep between rounds, with one row per client.

Legend: M rows of the round, H clients remembered, D coordinates.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from rampart_fl.shared.robust.base import Rows, State
from rampart_fl.shared.runtime.device import to_device


def carry_over_rows(
    state: State, name: str, rows: Rows, clients: Iterable[str]
) -> tuple[Tensor, dict[str, int]]:
    """A new block (H, D) of the clients' remembered rows, and the clients' positions in the block.

    Args:
        state: the state before this round.
        name: the block's name in the state.
        rows: the round's rows, which set the width, dtype and device of the block.
        clients: clients that get a row even if none is remembered; the rows of new clients are
            zero.
    """
    held = state.by_id(name)
    at = {client: i for i, client in enumerate(sorted({*held, *clients}))}
    block_HD = torch.empty(len(at), rows.dim, dtype=rows.block_ND.dtype, device=rows.device)
    for client, row in at.items():
        block_HD[row] = held.get(client, 0)
    return block_HD, at


def positions(at: dict[str, int], clients: Iterable[str], device: torch.device) -> Tensor:
    """Positions of some clients' rows, as an index tensor on `device`."""
    return to_device([at[client] for client in clients], device, torch.long)
