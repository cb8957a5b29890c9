"""The join tokens of the clients that `rampart serve` starts."""

import os
import time
from itertools import count
from pathlib import Path

import pytest

from rampart_fl.services.console.launcher.agent_tokens import LIFETIME, provide_tokens
from rampart_fl.shared.agent.identity import Identity
from rampart_fl.shared.protocol.messages import JoinTokens


class Mint:
    """Makes tokens that are numbered in order."""

    def __init__(self) -> None:
        self.made = count()

    def __call__(self, number: int) -> JoinTokens:
        """Makes the next tokens."""
        return JoinTokens(tokens=[f"token-{next(self.made)}" for _ in range(number)], expires_at=0)


def age(file: Path, seconds: float) -> None:
    """Makes a file older."""
    then = file.stat().st_mtime - seconds
    os.utime(file, (then, then))


def identity(state: Path, client: int, joined: bool) -> Path:
    """Writes the identity of a client, which has joined or has only asked to join."""
    path = state / f"client-{client}" / "identity.json"
    path.parent.mkdir()
    known = Identity(token="t" * 20, client_id=f"id-{client}" if joined else None)
    path.write_text(known.model_dump_json())
    return path


def test_old_tokens_of_clients_that_have_not_joined_are_replaced(tmp_path: Path) -> None:
    mint = Mint()
    file = provide_tokens(tmp_path, 4, mint)
    assert file.read_text().split() == ["token-0", "token-1", "token-2", "token-3"]
    assert file.stat().st_mode & 0o777 == 0o600
    joined, asked = identity(tmp_path, 0, joined=True), identity(tmp_path, 1, joined=False)
    damaged = identity(tmp_path, 3, joined=False)
    damaged.write_text("{")
    age(file, LIFETIME / 3)
    provide_tokens(tmp_path, 4, mint)
    assert file.read_text().split() == ["token-0", "token-1", "token-2", "token-3"]
    age(file, LIFETIME)
    provide_tokens(tmp_path, 4, mint)
    assert file.read_text().split() == ["token-0", "token-4", "token-5", "token-3"]
    assert (joined.exists(), asked.exists(), damaged.exists()) == (True, False, True)
    assert file.stat().st_mode & 0o777 == 0o600
    provide_tokens(tmp_path, 4, mint)
    assert file.read_text().split() == ["token-0", "token-4", "token-5", "token-3"]


def test_further_tokens_do_not_delay_the_replacement_of_older_ones(tmp_path: Path) -> None:
    mint = Mint()
    file = provide_tokens(tmp_path, 1, mint)
    age(file, LIFETIME / 3)
    provide_tokens(tmp_path, 2, mint)
    assert file.read_text().split() == ["token-0", "token-1"]
    assert time.time() - file.stat().st_mtime == pytest.approx(LIFETIME / 3, rel=0.1)
    age(file, LIFETIME / 3)
    provide_tokens(tmp_path, 1, mint)
    assert file.read_text().split() == ["token-2", "token-3"]
