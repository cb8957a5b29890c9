"""Tests of the verdict matrix: its largest size, and the row of one client.

Legend: N clients, R rounds.
"""

import base64
import zlib

import numpy as np
import pytest

from rampart_fl.services.aggregator.api.verdict_matrix import MOST, verdict_matrix
from rampart_fl.services.aggregator.state.round_entry import RoundEntry, three_digits
from rampart_fl.shared.protocol.refusals import InvalidRequest
from rampart_fl.shared.protocol.stored_rounds import VERDICT_CODES

DIGEST = "d" * 64


def entries(clients: int, rounds: int) -> dict[int, RoundEntry]:
    """Entries with random verdicts; all scores differ."""
    draws = np.random.default_rng(0)
    scores_RN = three_digits(draws.lognormal(size=(rounds, clients)))
    names = " ".join(f"client-{number:05d}" for number in range(clients))
    codes = [VERDICT_CODES[one] for one in ("accepted", "rejected", "evicted")]
    codes_RN = draws.choice(codes, size=(rounds, clients))
    return {
        number: RoundEntry(
            record=DIGEST,
            clients=names,
            decisions="".join(codes_RN[number]),
            scores=base64.b64encode(scores_RN[number].tobytes()).decode(),
        )
        for number in range(rounds)
    }


@pytest.mark.slow
def test_matrix_of_1000_clients_and_1000_rounds_is_exact_and_below_5_mb() -> None:
    result = entries(1000, 1000)
    matrix = verdict_matrix(result)
    assert len(zlib.compress(matrix.model_dump_json().encode(), level=1)) < 5_000_000
    scores_NR = np.frombuffer(base64.b64decode(matrix.scores), "<f4").reshape(1000, 1000)
    for number in (0, 500, 999):
        np.testing.assert_array_equal(scores_NR[:, number], result[number].scores_N)
        assert "".join(row[number] for row in matrix.decisions) == result[number].decisions


def test_oversized_matrix_is_rejected_with_the_number_of_rounds_that_fit() -> None:
    one = RoundEntry.of(
        DIGEST,
        None,
        {
            "verdicts": [
                {"client": f"c{n}", "decision": "accepted", "score": 0.0} for n in range(10_000)
            ]
        },
    )
    with pytest.raises(InvalidRequest, match="at most 419 rounds"):
        verdict_matrix(dict.fromkeys(range(1000), one))
    assert len(verdict_matrix(dict.fromkeys(range(MOST // 10_000), one)).clients) == 10_000


def test_matrix_of_one_client_equals_its_row_in_the_full_matrix() -> None:
    result = entries(5, 4) | {4: RoundEntry.of(DIGEST, None, {"verdicts": []})}
    whole, one = verdict_matrix(result), verdict_matrix(result, "client-00003")
    assert (one.clients, one.rounds) == (["client-00003"], [0, 1, 2, 3, 4])
    assert one.decisions == [whole.decisions[3]]
    scores_NR = np.frombuffer(base64.b64decode(whole.scores), "<f4").reshape(5, 5)
    np.testing.assert_array_equal(np.frombuffer(base64.b64decode(one.scores), "<f4"), scores_NR[3])
    assert verdict_matrix(result, "nobody").decisions == []
