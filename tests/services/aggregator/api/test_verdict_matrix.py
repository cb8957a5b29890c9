"""Tests of the verdict matrix at its largest size.

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


def test_a_thousand_by_a_thousand_is_small_and_right() -> None:
    result = entries(1000, 1000)
    matrix = verdict_matrix(result)
    assert len(zlib.compress(matrix.model_dump_json().encode(), level=1)) < 5_000_000
    scores_NR = np.frombuffer(base64.b64decode(matrix.scores), "<f4").reshape(1000, 1000)
    for number in (0, 500, 999):
        np.testing.assert_array_equal(scores_NR[:, number], result[number].scores_N)
        assert "".join(row[number] for row in matrix.decisions) == result[number].decisions


def test_too_many_cells_are_refused_with_the_size_that_fits() -> None:
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


def test_one_client_has_the_row_that_it_has_among_all() -> None:
    result = entries(5, 4) | {4: RoundEntry.of(DIGEST, None, {"verdicts": []})}
    whole, one = verdict_matrix(result), verdict_matrix(result, "client-00003")
    assert (one.clients, one.rounds) == (["client-00003"], [0, 1, 2, 3, 4])
    assert one.decisions == [whole.decisions[3]]
    scores_NR = np.frombuffer(base64.b64decode(whole.scores), "<f4").reshape(5, 5)
    np.testing.assert_array_equal(np.frombuffer(base64.b64decode(one.scores), "<f4"), scores_NR[3])
    assert verdict_matrix(result, "nobody").decisions == []
