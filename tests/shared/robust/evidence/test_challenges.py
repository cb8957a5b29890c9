"""Challenged models and answers to challenges, checked against dense algebra and by hand.

Legend: M rows, L changed models, B blocks, J decoys, K numbers of a sketch, D coordinates.
"""

import math

import pytest
import torch

from rampart_fl.shared.robust import Rows
from rampart_fl.shared.robust.customizers import Customization
from rampart_fl.shared.robust.evidence import challenges
from rampart_fl.shared.robust.models import Mixture, ModelBlock
from rampart_fl.shared.robust.sketch import sketch

DRAWS = torch.Generator()


@pytest.fixture(autouse=True)
def _seeded() -> None:
    DRAWS.manual_seed(7)


def test_challenged_models_are_own_models_plus_weighted_row_blocks() -> None:
    """The chunked result equals one dense product, also across chunk borders."""
    dim = 70_001
    block_MD = torch.randn(4, dim, generator=DRAWS)
    global_D = torch.randn(dim, generator=DRAWS)
    rows = Rows.of(block_MD, ids=["a", "b", "c", "d"])
    mixed = Mixture(("a", "b"), global_D, rows, torch.rand(2, 4, generator=DRAWS))
    weights_BM = torch.randn(3, 4, generator=DRAWS, dtype=torch.float64)
    before = Customization(mixed, {"a": ("a",), "b": ("b",)})
    after = challenges.challenged(before, global_D, rows, {"b": weights_BM, "z": 2 * weights_BM})
    change_D = torch.zeros(dim, dtype=torch.float64)
    for block, (first, last) in enumerate(challenges.blocks(dim, 3)):
        change_D[first:last] = weights_BM[block] @ block_MD[:, first:last].double()
    assert after.models is not None
    expected = {
        "a": mixed.model("a").double(),
        "b": mixed.model("b").double(),
        "challenge:b": mixed.model("b") + change_D,
        "challenge:z": global_D + 2 * change_D,  # no known model: the global model is changed
    }
    assert after.models.names == tuple(expected)
    for name, model_D in expected.items():
        torch.testing.assert_close(after.models.model(name).double(), model_D, rtol=0, atol=1e-4)
    both_LD = after.models.block(["challenge:z", "a"])
    torch.testing.assert_close(both_LD[0].double(), expected["challenge:z"], rtol=0, atol=1e-4)
    own = challenges.OwnModels(after, global_D, 16, 0, rows.place)
    sketched_BMK = challenges.sketches(rows, 3, 16, seed=0)
    for client, own_D, factor in (("b", expected["b"], 1), ("z", global_D, 2)):
        changed_D = challenges.challenged_model(after, client)
        torch.testing.assert_close(
            changed_D.double(), expected[f"challenge:{client}"], atol=1e-4, rtol=0
        )
        own_K = own.sketch(client)
        torch.testing.assert_close(own_K, sketch(own_D, 16, seed=0).double(), atol=1e-3, rtol=0)
        change_K = challenges.changes(factor * weights_BM[None], sketched_BMK)[0]
        torch.testing.assert_close(
            own_K + change_K, sketch(changed_D, 16, seed=0).double(), atol=1e-3, rtol=0
        )
    assert after.names_for("b") == ("b",), "its own model stays its own"
    assert after.challenged == {"b": "challenge:b", "z": "challenge:z"}


def test_global_model_is_challenged_if_clients_have_no_models() -> None:
    rows = Rows.of(torch.eye(3, 5))
    customization = challenges.challenged(
        Customization(), torch.ones(5), rows, {"1": torch.ones(1, 3)}
    )
    assert customization.models is not None and customization.models.names == ("challenge:1",)
    assert customization.models.model("challenge:1").tolist() == [2, 2, 2, 1, 1]


def test_drawn_changes_have_the_requested_length_despite_a_huge_row() -> None:
    block_MD = torch.randn(6, 500, generator=DRAWS)
    block_MD[5] *= 1e6  # draw() scales this row to the median length.
    rows = Rows.of(block_MD)
    sketched_BMK = challenges.sketches(rows, 4, 1024, seed=0)
    for place in range(6):
        whole_K = sketch(rows.row(place), 1024, seed=0)
        torch.testing.assert_close(sketched_BMK[:, place].sum(dim=0), whole_K)
    weights_LBM = challenges.draw(sketched_BMK, 3.0, 5, DRAWS)
    changes_LK = challenges.changes(weights_LBM, sketched_BMK)
    assert changes_LK.norm(dim=1).tolist() == pytest.approx([3.0] * 5)
    assert weights_LBM[:, :, 5].abs().max() * 1e6 < 100
    models_LD = torch.zeros(5, 500, dtype=torch.float64)
    for block, (first, last) in enumerate(challenges.blocks(500, 4)):
        models_LD[:, first:last] = weights_LBM[:, block] @ block_MD[:, first:last].double()
    assert models_LD.norm(dim=1).tolist() == pytest.approx([3.0] * 5, rel=1e-4)


def test_answer_equals_hand_computed_values() -> None:
    """a = -<Δu, δ> = 2, 0, 0, 1, -1; the decoys have mean 0 and deviation sqrt(2/3)."""
    shift_JK = torch.tensor([[2.0, 0.0], [0.0, 1.0], [0.0, -1.0], [1.0, 0.0], [-1.0, 0.0]])
    change_K = torch.tensor([-1.0, 0.0])
    assert challenges.answer(change_K, shift_JK) == pytest.approx(2 / math.sqrt(2 / 3))
    # The same upload answers the other senders' challenges with 2 and 0, on average 1.
    others_PK = torch.tensor([[2.0, 0.0], [0.0, 3.0]])
    answer = challenges.answer(change_K, shift_JK, others_PK)
    assert answer == pytest.approx(1 / math.sqrt(2 / 3))
    assert challenges.answer(torch.zeros(2), shift_JK) == 0
    assert challenges.answer(change_K, torch.zeros(5, 2)) is None


def test_uploads_independent_of_their_challenge_have_answers_of_random_sign() -> None:
    """The answer and the decoys' answers are exchangeable: half of the answers are negative."""
    signs = []
    for _ in range(4000):
        shift_JK = torch.randn(17, 40, generator=DRAWS)
        answer = challenges.answer(torch.randn(40, generator=DRAWS), shift_JK)
        assert answer is not None
        signs.append(answer < 0)
    assert sum(signs) / len(signs) == pytest.approx(0.5, abs=0.04)  # five standard errors


def test_training_counteracts_only_the_client_s_own_challenge() -> None:
    shift_JK = torch.randn(17, 40, generator=DRAWS)
    change_K = -0.3 * shift_JK[0] + 0.3 * torch.randn(40, generator=DRAWS)
    own = challenges.answer(change_K, shift_JK)
    other = challenges.answer(change_K, shift_JK[[3, 0, *range(4, 17)]])
    assert own is not None and other is not None
    assert own > 2 > abs(other)


def test_concatenated_models_return_blocks_in_the_requested_order() -> None:
    first, second = ModelBlock(("a", "b"), torch.eye(2, 3)), ModelBlock(("c",), torch.ones(1, 3))
    both = challenges.ConcatenatedModels.of(first, second)
    assert both.names == ("a", "b", "c")
    assert both.block(["c", "b", "a"]).tolist() == [[1, 1, 1], [0, 1, 0], [1, 0, 0]]
