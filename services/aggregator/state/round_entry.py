"""A short entry for a finished round: digests of blobs, and a column of the verdict matrix.

The entries of the newest rounds are in Redis. The entries of older rounds are in segments, which
are blobs with the entries of up to `ROUNDS` consecutive rounds.

Legend: N clients.
"""

import base64
import json
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from rampart_fl.services.aggregator.state.stored_values import read_model
from rampart_fl.shared.protocol.messages import Digest
from rampart_fl.shared.protocol.stored_rounds import ABSENT, LATE, ROUND_FAILED, VERDICT_CODES

ROUNDS = 64
"""The maximum number of rounds in a segment."""
OVERHEAD = 100
"""Number of bytes that Redis needs for a hash field in addition to the field's name and value."""
DIGITS = np.uint32(12)
"""Number of low mantissa bits that are cleared in each score. The remaining bits suffice for three
decimal digits."""


class RoundEntry(BaseModel):
    """A short entry for a finished round.

    - `record` is the digest of the round's record. `mixing` is the digest of the round's mixing
      weights, if there are any.
    - `clients` has the ids of the round's clients, including absent clients, separated by spaces.
    - `decisions` has one letter for each client in `clients`, as in `VerdictMatrix`.
    - `scores` has one score for each client in `clients`, as little-endian float32 in base64. Each
      score has three significant digits. The score NaN means that the verdict has no score.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    record: Digest
    mixing: Digest | None = None
    clients: str = ""
    decisions: str = ""
    scores: str = ""

    @staticmethod
    def of(record: str, mixing: str | None, facts: Mapping[str, Any]) -> "RoundEntry":
        """Makes a round's entry from the digests of its blobs and the fields of its record."""
        cells = {
            **dict.fromkeys(facts.get("missing", ()), (ABSENT, None)),
            **dict.fromkeys(facts.get("participants", ()), (ROUND_FAILED, None)),
            **{v["client"]: (VERDICT_CODES[v["decision"]], v["score"]) for v in facts["verdicts"]},
        }
        if facts.get("status") != "failed":
            cells = {name: cell for name, cell in cells.items() if cell[0] != ROUND_FAILED}
        scores_N = np.array([np.nan if score is None else score for _, score in cells.values()])
        return RoundEntry(
            record=record,
            mixing=mixing,
            clients=" ".join(cells),
            decisions="".join(code for code, _ in cells.values()),
            scores=base64.b64encode(three_digits(scores_N).tobytes()).decode(),
        )

    def with_late(self, late: str) -> "RoundEntry":
        """A copy of this entry in which absent clients are marked as late if they are in `late`.

        `late` has the ids of clients, separated by spaces.
        """
        names, cells = set(late.split()), zip(self.clients.split(), self.decisions, strict=True)
        decisions = [LATE if code == ABSENT and name in names else code for name, code in cells]
        return self.model_copy(update={"decisions": "".join(decisions)})

    @property
    def late(self) -> list[str]:
        """The clients whose update came after the end of the round."""
        cells = zip(self.clients.split(), self.decisions, strict=True)
        return [name for name, code in cells if code == LATE]

    @property
    def scores_N(self) -> NDArray[np.float32]:
        """The scores in the order of `clients`; NaN for clients without a score."""
        return np.frombuffer(base64.b64decode(self.scores), "<f4")

    @property
    def digests(self) -> set[str]:
        """Digests of the blobs that the entry names."""
        return {self.record} | ({self.mixing} if self.mixing else set())


def three_digits(numbers_N: NDArray[np.float64]) -> NDArray[np.float32]:
    """Converts numbers to float32, and clears the lowest mantissa bits for better compression.

    Numbers that are too large for float32 become inf.

    >>> three_digits(np.array([0.123456])).tolist()
    [0.123443603515625]
    """
    with np.errstate(over="ignore"):
        bits_N = numbers_N.astype("<f4").view("<u4")
    half = np.uint32(1) << (DIGITS - np.uint32(1))
    finite_N = np.isfinite(bits_N.view("<f4"))
    rounded_N = np.where(finite_N, bits_N + half, bits_N) >> DIGITS << DIGITS
    return np.where(finite_N, rounded_N, bits_N).astype("<u4").view("<f4")


def size_of(round_: int, entry: str) -> int:
    """The number of bytes that an entry takes in Redis."""
    return len(str(round_)) + len(entry) + OVERHEAD


def pack_segment(entries: Mapping[int, str]) -> bytes:
    """Packs the entries of several rounds, given as JSON, into a segment."""
    return zlib.compress(json.dumps({str(round_): entries[round_] for round_ in entries}).encode())


def parse_segment(data: bytes) -> dict[int, RoundEntry]:
    """The parsed entries of a segment that `pack_segment` made."""
    raw = json.loads(zlib.decompress(data))
    return {int(round_): read_model(RoundEntry, raw[round_]) for round_ in raw}
