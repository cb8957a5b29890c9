"""Tests that the entry of a round is small, and agrees with the verdicts.

Legend: N clients.
"""

import numpy as np
import pytest

from rampart_fl.services.aggregator.state.round_entry import (
    RoundEntry,
    pack_segment,
    parse_segment,
    three_digits,
)

DIGEST = "d" * 64


def verdict(client: str, decision: str, score: float | None) -> dict[str, object]:
    return {"client": client, "decision": decision, "score": score}


def test_entry_has_the_code_and_the_score_of_each_verdict() -> None:
    verdicts = [verdict("a", "accepted", 0.5), verdict("b", "evicted", None)]
    verdicts.append(verdict("c", "abstained", -3.0))
    entry = RoundEntry.of(DIGEST, None, {"verdicts": verdicts})
    assert (entry.clients, entry.decisions) == ("a b c", "aeb")
    np.testing.assert_array_equal(entry.scores_N, [0.5, np.nan, -3.0])
    assert entry.digests == {DIGEST}
    assert RoundEntry.of(DIGEST, "e" * 64, {"verdicts": []}).digests == {DIGEST, "e" * 64}


def test_entry_marks_missing_clients_and_participants_of_failed_rounds() -> None:
    facts = {
        "participants": ["a", "b"],
        "missing": ["c"],
        "verdicts": [verdict("a", "rejected", 1)],
    }
    published = RoundEntry.of(DIGEST, None, {**facts, "status": "published"})
    assert dict(zip(published.clients.split(), published.decisions, strict=True)) == {
        "a": "r",
        "c": "-",
    }
    failed = RoundEntry.of(DIGEST, None, {**facts, "status": "failed"})
    assert dict(zip(failed.clients.split(), failed.decisions, strict=True)) == {
        "a": "r",
        "b": "x",
        "c": "-",
    }
    assert np.isnan(failed.scores_N).tolist() == [name != "a" for name in failed.clients.split()]


def test_entry_size_is_bounded_even_with_the_longest_client_names() -> None:
    names = [f"{number:064d}" for number in range(1000)]
    verdicts = [verdict(name, "accepted", 1 / 3) for name in names]
    entry = RoundEntry.of(DIGEST, DIGEST, {"verdicts": verdicts})
    assert len(entry.model_dump_json()) < 80 * len(names)
    one = RoundEntry.of(DIGEST, DIGEST, {"verdicts": [verdict("x" * 64, "evicted", 1e9)]})
    assert len(one.model_dump_json()) < 500


@pytest.mark.parametrize("scale", [1e-30, 1e-3, 1.0, 1e30])
def test_scores_keep_three_digits_and_end_with_zero_bits(scale: float) -> None:
    numbers_N = np.random.default_rng(0).standard_normal(1000) * scale
    short_N = three_digits(numbers_N)
    np.testing.assert_allclose(short_N, numbers_N, rtol=2**-12)
    assert not (short_N.view("<u4") & 0xFFF).any()


def test_infinite_and_nan_scores_are_preserved() -> None:
    numbers_N = np.array([np.nan, np.inf, -np.inf, 1e300, 0.0])
    np.testing.assert_array_equal(three_digits(numbers_N), [np.nan, np.inf, -np.inf, np.inf, 0.0])


def test_packed_segment_is_parsed_to_the_same_entries() -> None:
    facts = {n: {"verdicts": [verdict("a", "accepted", n)]} for n in (3, 4, 9)}
    entries = {n: RoundEntry.of(DIGEST, None, facts[n]) for n in facts}
    packed = pack_segment({number: entry.model_dump_json() for number, entry in entries.items()})
    assert parse_segment(packed) == entries
