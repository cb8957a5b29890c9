"""A client's own log of its answers to offers, its training and its uploads, as JSON lines.

The log belongs to the client's owner, and never leaves the client's machine. Each line is synced to
disk before the client sends the data that the line describes. If a line cannot be written in full,
the log removes the incomplete line and raises an error. The client then sends nothing.
"""

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rampart_fl.shared.agent.acceptance import OfferAnswer
from rampart_fl.shared.runtime.durable import sync_folder

NAME = "activity.jsonl"


class ActivityLog:
    """The log in a client's folder.

    When the current file is full, the log files are rotated: `activity.jsonl` becomes
    `activity.1.jsonl`, `activity.1.jsonl` becomes `activity.2.jsonl`, and so on. If there are
    already `kept` full files, a rotation deletes the oldest file.

    Args:
        folder: the client's folder.
        most_bytes: a file counts as full if it would exceed this number of bytes with the next
            line.
        kept: number of full files that are retained.
        clock: the time, in seconds since 1970.
    """

    def __init__(
        self,
        folder: Path,
        most_bytes: int = 4 * 1024 * 1024,
        kept: int = 4,
        clock: Callable[[], float] = time.time,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._files = [folder / NAME, *(folder / f"activity.{n + 1}.jsonl" for n in range(kept))]
        self._most_bytes = most_bytes
        self._clock = clock

    def record_decision(self, run: str, answer: OfferAnswer) -> None:
        """Records the answer to the offer of a run."""
        own = {} if answer.data_file is None else {"data": str(answer.data_file)}
        reason = {"reason": answer.reason} if answer.reason else {}
        self._write("accepted" if answer.accept else "declined", run, None, **own, **reason)

    def record_training(
        self, run: str, round_: int, epochs: int, samples: int, epsilon: float | None = None
    ) -> None:
        """Records that the client has trained; `epsilon` is the privacy budget spent so far."""
        spent = {} if epsilon is None else {"epsilon": epsilon}
        self._write("trained", run, round_, epochs=epochs, samples=samples, **spent)

    def record_upload(self, run: str, round_: int, kind: str, data: bytes) -> None:
        """Records an upload before it is sent: its kind, length and SHA-256."""
        digest = hashlib.sha256(data).hexdigest()
        self._write("sending", run, round_, kind=kind, bytes=len(data), digest=digest)

    def entries(self) -> Iterator[dict[str, Any]]:
        """All retained entries, oldest first; lines that a crash truncated are skipped."""
        for path in reversed(self._files):
            if not path.exists():
                continue
            for line in path.read_bytes().splitlines():
                try:
                    yield json.loads(line)
                except ValueError:
                    continue

    def _write(self, what: str, run: str, round_: int | None, **more: Any) -> None:
        now = datetime.fromtimestamp(self._clock(), UTC).isoformat(timespec="milliseconds")
        where = {"run": run} if round_ is None else {"run": run, "round": round_}
        line = json.dumps({"time": now, "what": what, **where, **more}).encode() + b"\n"
        current = self._files[0]
        length = current.stat().st_size if current.exists() else 0
        if length and length + len(line) > self._most_bytes:
            self._rotate()
        descriptor = os.open(current, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "r+b", buffering=0) as file:
            end = file.seek(0, os.SEEK_END)
            if end and os.pread(file.fileno(), 1, end - 1) != b"\n":
                line = b"\n" + line  # A crash truncated the last line, so end it first.
            try:
                _write_all(file.fileno(), line)
                os.fsync(file.fileno())
            except OSError:
                os.ftruncate(file.fileno(), end)
                raise
        if not end:
            sync_folder(current.parent)

    def _rotate(self) -> None:
        for older, newer in zip(self._files[:0:-1], self._files[-2::-1], strict=True):
            if newer.exists():
                newer.replace(older)
        # If `kept` is 0, the loop has not renamed the full file, so delete it here.
        self._files[0].unlink(missing_ok=True)


def _write_all(descriptor: int, data: bytes) -> None:
    """Writes all bytes; on an almost full disk, one call of `os.write` may write only some."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
