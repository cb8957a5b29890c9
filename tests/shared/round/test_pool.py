"""The pool: rows relative to one reference, with weights and numbers that the server trusts.

Legend: D coordinates.
"""

import math
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from rampart_fl.shared.robust import linalg, shards, view
from rampart_fl.shared.robust.base import Rows
from rampart_fl.shared.robust.engine import Plan
from rampart_fl.shared.robust.sketch import sketch
from rampart_fl.shared.round.pool import Claim, Pool
from rampart_fl.shared.runtime.disk_block import Block, BlockStorage

D = 4
ONE = Claim(1, {})


def pool(*clients: str, spare: Block | None = None, trainable: int = D, **plan: object) -> Pool:
    """An empty pool relative to a model of ones."""
    return Pool(Plan.of("median", **plan), trainable, torch.ones(D), clients, spare=spare)


def add(to: Pool, client: str, numbers: Sequence[float], start: float | None = None) -> None:
    """Adds an upload of a client that started from a model with this number everywhere."""
    to.row(client).copy_(torch.tensor(numbers))
    models = None if start is None else (torch.full((D,), float(start)), to.reference_D)
    to.admit(client, None, models)


def rows(of: Pool, *clients: str) -> Rows:
    return of.rows(dict.fromkeys(clients, ONE), cap=1)


def test_row_equals_the_upload_if_training_started_from_the_reference() -> None:
    own = pool("a")
    add(own, "a", [1, 2, 3, 4])
    assert rows(own, "a").row(0).tolist() == [1, 2, 3, 4]


def test_row_is_upload_plus_start_minus_reference() -> None:
    """FedCAP recovers the model that the client reached and calibrates it to the global one."""
    own = pool("a", "b")
    add(own, "a", [0.5, 0, -1, 0], start=5)
    add(own, "b", [1, 1, 1, 1])
    assert rows(own, "a", "b").block_ND.tolist() == [[4.5, 4, 3, 4], [1, 1, 1, 1]]
    assert torch.equal(own.reference_D, torch.ones(D))


def test_rows_weights_and_claims_agree_with_a_slow_calculation() -> None:
    """Lists of numbers, one client at a time: rows, norms, weights and claims."""
    draws = random.Random(5)
    own, claims, expected = pool(calibrate=False, trainable=3), {}, {}
    for client in draws.sample([f"c{k:02d}" for k in range(12)], 12):
        upload = [draws.gauss(0, 1) for _ in range(D)]
        start = draws.choice([None, draws.gauss(0, 1)])
        samples, age = draws.randint(1, 200), draws.randint(0, 4)
        claims[client] = Claim(samples, {"loss_gap": samples / 7}, age, fresh=not age)
        add(own, client, upload, start)
        moved = 0.0 if start is None else start - 1
        expected[client] = (
            [number + moved for number in upload],
            math.sqrt(sum(number**2 for number in upload[:3])),
            min(samples, 100) / math.sqrt(1 + age),
            upload,
        )
    selected = own.rows(claims, cap=100)
    raw = own.judged(selected)
    assert list(selected.ids) == sorted(claims) and raw is not None and raw.ids == selected.ids
    for place, client in enumerate(selected.ids):
        row, moved, weight, upload = expected[client]
        assert selected.row(place).tolist() == pytest.approx(row, abs=1e-6)
        assert raw.row(place).tolist() == pytest.approx(upload, abs=1e-6)
        assert selected.metadata["moved"][place].item() == pytest.approx(moved, abs=1e-6)
        assert selected.trusted_weights()[place].item() == pytest.approx(weight)
        assert selected.metadata["loss_gap"][place].item() == claims[client].samples / 7
        assert selected.fresh()[place] == (claims[client].staleness == 0)


@pytest.mark.parametrize("kernels", ["auto", "torch"])
def test_rows_in_a_file_are_measured_on_arrival_with_the_bits_of_a_pass_over_all_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kernels: str
) -> None:
    """Also after the block grows, which changes the windows of a pass, and for raw uploads."""
    monkeypatch.setenv("RAMPART_KERNELS", kernels)
    monkeypatch.setattr(shards, "GRAIN", 64)
    monkeypatch.setattr(view, "WINDOW", 4 * 4 * 64 * 3)  # Three grains of four rows.
    dim, parameters = 64 * 16 * 3 + 5, 64 * 16 * 3
    plan, own = Plan.of("median", calibrate=False), {}
    for memory in (None, 0):
        generator = torch.Generator().manual_seed(5)
        filed = Pool(plan, parameters, torch.ones(dim), ["a", "b"], BlockStorage(memory, tmp_path))
        for client in "badce":
            row_D = torch.randn(dim, generator=generator) * torch.logspace(-4, 4, dim)
            filed.row(client).copy_(row_D)
            start_D = torch.randn(dim, generator=generator)
            filed.admit(client, None, (start_D, filed.reference_D), diverged=client == "d")
        for which, selected in enumerate(("abce", "ac")):
            seen = rows(filed, *selected)
            raw = filed.judged(seen)
            assert raw is not None
            for of_raw, one in enumerate((seen, raw)):
                inside = one.columns(slice(0, parameters))
                assert (inside.pool_statistics.squares_N is None) is (memory is None)
                norms_M = linalg.norms(inside)
                assert torch.equal(own.setdefault((which, of_raw), norms_M), norms_M)
                assert one.columns(slice(0, 5)).pool_statistics.squares_N is None
                whole = one.block_ND[one.index_K].double().norm(dim=1)
                torch.testing.assert_close(linalg.norms(one), whole)


def test_missing_claims_count_as_zero() -> None:
    own = pool("a", "b", customizer={"name": "fedfomo"})
    (name,) = Plan.of("median", customizer={"name": "fedfomo"}).customizer.claims[:1]
    add(own, "a", [1, 1, 1, 1])
    add(own, "b", [1, 1, 1, 1])
    selected = own.rows({"a": Claim(1, {name: 3.0}), "b": ONE}, cap=1)
    assert selected.metadata[name].tolist() == [3, 0]
    assert selected.metadata["loss_gap"].tolist() == [0, 0]


def test_without_calibration_raw_uploads_are_kept_as_well() -> None:
    own = pool("a", calibrate=False)
    add(own, "a", [1, 2, 3, 4], start=5)
    selected = rows(own, "a")
    raw = own.judged(selected)
    assert raw is not None and raw.pool_statistics is not selected.pool_statistics
    assert (selected.row(0).tolist(), raw.row(0).tolist()) == ([5, 6, 7, 8], [1, 2, 3, 4])
    assert own.bytes == 2 * own.block.tensor.nbytes
    assert pool("a").judged(selected) is None


def test_rows_are_sorted_by_client_in_any_order_of_arrival() -> None:
    own = pool("c", "a", "b")
    add(own, "c", [3, 3, 3, 3])
    add(own, "a", [1, 1, 1, 1])
    selected = own.rows({"c": Claim(5, {}), "a": Claim(2, {})}, cap=9)
    assert selected.ids == ("a", "c") and selected.index_K is not None
    assert selected.trusted_weights().tolist() == [2, 5]
    add(own, "b", [2, 2, 2, 2])
    whole = rows(own, "c", "b", "a")
    assert whole.ids == ("a", "b", "c")
    assert whole.index_K is None and whole.block_ND is own.block.tensor, "a full pool is not copied"


def test_only_claimed_rows_count() -> None:
    own = pool("a", "b")
    add(own, "a", [math.inf, 1, 1, 1])
    add(own, "b", [2, 2, 2, 2])
    selected = rows(own, "b")
    assert (selected.ids, selected.dropped) == (("b",), ())
    assert "a" in own and "c" not in own


@pytest.mark.parametrize("calibrate", [True, False])
@pytest.mark.parametrize("place", [0, D - 1])
@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_non_finite_uploads_are_dropped(calibrate: bool, place: int, number: float) -> None:
    """The number may be a parameter or a running statistic; running statistics come last."""
    own = pool("a", "b", calibrate=calibrate, trainable=2)
    upload = [1.0] * D
    upload[place] = number
    add(own, "a", upload, start=3)
    add(own, "b", [1, 1, 1, 1])
    selected = rows(own, "a", "b")
    raw = own.judged(selected)
    assert (selected.ids, selected.dropped) == (("b",), ("a",))
    assert own.block.tensor.isfinite().all()
    assert raw is None or raw.block_ND.isfinite().all()


def test_overflowing_row_is_dropped_along_with_its_raw_upload() -> None:
    """Detectors of raw uploads judge the same clients whose rows the rule aggregates."""
    huge = 3e38
    own = pool("a", "b", calibrate=False)
    add(own, "a", [huge, 0, 0, 0], start=huge)
    add(own, "b", [1, 1, 1, 1])
    selected = rows(own, "a", "b")
    raw = own.judged(selected)
    assert raw is not None and raw.ids == selected.ids == ("b",)
    assert raw.dropped == selected.dropped == ("a",)
    add(own, "a", [1, 0, 0, 0])
    assert rows(own, "a", "b").dropped == (), "a later upload counts again"


def test_large_finite_numbers_are_kept() -> None:
    own = Pool(Plan.of("median"), 2, torch.zeros(2, dtype=torch.float64), ["a"])
    own.row("a").copy_(torch.tensor([1e200, 1.0], dtype=torch.float64))
    own.admit("a")
    assert rows(own, "a").row(0).tolist() == [1e200, 1], "though its square overflows"


def test_a_client_that_reports_divergence_is_dropped() -> None:
    own = pool("a")
    own.row("a").zero_()
    own.admit("a", diverged=True)
    assert rows(own, "a").dropped == ("a",)


def test_sketches_cover_only_uncalibrated_parameters() -> None:
    own = pool("a", "b")
    assert rows_with_traces(own) is None
    own = pool("b", "a", screens=["response"], trainable=3)
    selected = rows_with_traces(own)
    assert selected is not None
    size = selected.shape[1]
    assert torch.equal(selected[0], sketch(torch.tensor([1.0, 2, 3]), size, seed=0))
    assert torch.equal(selected[1], sketch(torch.tensor([4.0, 5, 6]), size, seed=0))


def rows_with_traces(own: Pool) -> Tensor | None:
    """The sketches of two uploads that are calibrated by 8 each."""
    start_K = torch.zeros(2)
    for client, numbers in {"b": [4.0, 5, 6, 7], "a": [1.0, 2, 3, 4]}.items():
        own.row(client).copy_(torch.tensor(numbers))
        own.admit(client, start_K, (torch.full((D,), 9.0), own.reference_D))
    traces = rows(own, "a", "b").traces
    return None if traces is None else traces.upload_MK


def test_block_grows_for_new_clients() -> None:
    own = pool("m", calibrate=False)
    add(own, "m", [1, 2, 3, 4])
    for client in ("z", "b", "a", "k"):
        add(own, client, [ord(client)] * D)
    selected = rows(own, "a", "b", "k", "m", "z")
    raw = own.judged(selected)
    assert raw is not None
    assert selected.row(3).tolist() == raw.row(3).tolist() == [1, 2, 3, 4]
    assert [selected.row(i)[0].item() for i in (0, 1, 2, 4)] == [ord(c) for c in "abkz"]


def test_spare_block_is_reused_if_it_fits() -> None:
    first = pool("a", "b")
    add(first, "a", [9, 9, 9, 9])
    again = pool("c", "d", spare=first.block)
    assert again.block.tensor is first.block.tensor
    add(again, "d", [1, 2, 3, 4])
    assert rows(again, "d").row(0).tolist() == [1, 2, 3, 4]
    assert "c" not in again
    assert pool("c", spare=first.block).block is not first.block


@pytest.mark.parametrize("calibrate", [True, False])
def test_block_grows_only_when_it_is_full(calibrate: bool) -> None:
    """Under the buffered policy, many clients may send a late upload in one round."""
    own = pool("a", "b", calibrate=calibrate)
    sizes = []
    for number in range(20):
        add(own, f"late-{number:02d}", [number] * D)
        sizes.append(len(own.block))
    assert sizes == [4] * 2 + [8] * 4 + [16] * 8 + [32] * 6
    add(own, "a", [1, 2, 3, 4])
    selected = rows(own, "a", *(f"late-{number:02d}" for number in range(20)))
    assert selected.row(0).tolist() == [1, 2, 3, 4]
    assert [selected.row(1 + i)[0].item() for i in range(20)] == list(range(20))
