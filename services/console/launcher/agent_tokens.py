"""The join tokens of the clients that `rampart serve` starts."""

import os
import time
from collections.abc import Callable
from pathlib import Path

from rampart_fl.shared.agent.identity import has_joined
from rampart_fl.shared.protocol.messages import JoinTokens
from rampart_fl.shared.runtime import durable

LIFETIME = 86_400.0
"""Seconds until the join tokens expire; unused tokens are replaced after half of this time."""


def provide_tokens(state: Path, clients: int, mint: Callable[[int], JoinTokens]) -> Path:
    """Writes a file with a join token for each client of a process that is about to start.

    Line i is the token of client i. The tokens of clients that have joined stay unchanged. The
    file's time is the time at which its oldest unused tokens were made.

    Args:
        state: the folder with the state of the process's clients.
        clients: number of clients of the process.
        mint: makes a number of join tokens, which are valid for `LIFETIME` seconds.
    Returns:
        The path of the file.
    """
    path, now = state / "join-tokens", time.time()
    tokens = path.read_text(encoding="utf-8").split() if path.exists() else []
    made_at = path.stat().st_mtime if tokens else now
    waiting = list[int]()
    if now - made_at > LIFETIME / 2:
        waiting, made_at = [n for n in range(len(tokens)) if _waits(state / f"client-{n}")], now
    numbers = [*waiting, *range(len(tokens), clients)]
    if numbers:
        made = mint(len(numbers)).tokens
        for number in waiting:
            # If the client has joined, but did not get the answer, its own token is already taken.
            # With a new identity, the client can join again.
            (state / f"client-{number}" / "identity.json").unlink(missing_ok=True)
        replaced = dict(enumerate(tokens)) | dict(zip(numbers, made, strict=True))
        durable.replace(path, ["\n".join(replaced.values()).encode()], 0o600)
        os.utime(path, (made_at, made_at))
    return path


def _waits(folder: Path) -> bool:
    """Whether a client still needs a join token."""
    try:
        return not has_joined(folder)
    except ValueError:
        return False  # The identity is damaged; the client itself reports this error.
