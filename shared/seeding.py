"""Seeds for random draws; each draw has a name that states its purpose.

The seed of a draw is derived from a main seed and a path of names and numbers, so no draw depends
on earlier draws. The main seed is the experiment's seed, or a secret seed. For example, a client
draws the same batches for a round in every process and after every restart.
"""

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def derive(seed: int, *path: str | int) -> int:
    """A 63-bit seed for one named draw.

    >>> derive(1, "selection", 3) == derive(1, "selection", 3)
    True
    >>> derive(1, "selection", 3) == derive(1, "selection", 4)
    False
    """
    text = "\x1f".join([str(seed), *(f"{type(part).__name__}:{part}" for part in path)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def generator(seed: int, *path: str | int) -> "torch.Generator":
    """A new CPU generator, seeded for one named draw."""
    import torch

    return torch.Generator().manual_seed(derive(seed, *path))
