"""Knowledge contains no more than its level allows, and attacks name the knowledge they lack."""

from typing import Any

import pytest
import torch
from torch import Tensor

from rampart_fl.shared.attacks import craft
from rampart_fl.shared.attacks.base import DataAttack, Knowledge, ModelAttack
from rampart_fl.shared.attacks.model import attacks
from rampart_fl.shared.errors import ConfigurationError, PreconditionError, UnknownMember
from rampart_fl.shared.experiment.schema import Training
from rampart_fl.shared.robust.engine import Plan

PLAN = Plan.of("median")
BENIGN_BD = torch.ones(3, 2)
COLLUDERS_MD = torch.zeros(2, 2)


def everything() -> Knowledge:
    return Knowledge(
        participants=5,
        attackers=2,
        honest_BD=BENIGN_BD,
        colluders_MD=COLLUDERS_MD,
        plan=PLAN,
        server_update_D=torch.ones(2),
    )


def test_full_knowledge_includes_honest_updates_and_the_plan() -> None:
    full = everything().limited_to("full")
    assert full.honest_BD is BENIGN_BD
    assert full.plan is PLAN


def test_partial_knowledge_has_only_the_colluders_updates() -> None:
    partial = everything().limited_to("partial")
    assert partial.level == "partial"
    assert partial.honest_BD is COLLUDERS_MD
    assert partial.plan is None
    assert partial.server_update_D is None


def test_agnostic_knowledge_has_no_updates() -> None:
    agnostic = everything().limited_to("agnostic")
    assert agnostic.honest_BD is None
    assert agnostic.colluders_MD is None
    assert agnostic.plan is None
    assert agnostic.server_update_D is None


def test_limiting_knowledge_never_extends_it() -> None:
    agnostic = everything().limited_to("agnostic")
    assert agnostic.limited_to("full") is agnostic
    partial = everything().limited_to("partial")
    assert partial.limited_to("full") is partial
    assert partial.limited_to("agnostic").honest_BD is None


def test_knows_parameter_sets_the_knowledge_level_of_an_attack() -> None:
    assert attacks.build("sign_flip").asks_for == "agnostic"
    assert attacks.build("lie").asks_for == "partial"
    assert attacks.build("lie", knows="full").asks_for == "full"


def test_more_attackers_than_participants_are_rejected() -> None:
    with pytest.raises(ConfigurationError, match="7 attackers among 6"):
        Knowledge(participants=6, attackers=7)


@pytest.mark.parametrize("honest_BD", [None, torch.empty(0, 2)])
def test_attack_without_known_honest_updates_names_the_level_it_needs(
    honest_BD: torch.Tensor | None,
) -> None:
    with pytest.raises(PreconditionError, match=r"ipm needs partial knowledge.*n=5, m=2"):
        attacks.build("ipm").apply(torch.ones(2, 2), Knowledge(5, 2, honest_BD))


def test_updates_that_are_not_floating_point_rows_are_rejected() -> None:
    with pytest.raises(ValueError, match=r"\[F, D\]"):
        attacks.build("sign_flip").apply(torch.ones(2), Knowledge(5, 2))
    with pytest.raises(ValueError, match="int64"):
        attacks.build("sign_flip").apply(torch.ones(2, 2).long(), Knowledge(5, 2))


def test_craft_returns_the_honest_update_without_attackers() -> None:
    own_D = torch.tensor([1.0, 2.0])
    assert craft("ipm", torch.zeros(3, 2), n=3, m=0, own_D=own_D).tolist() == [1.0, 2.0]


def test_craft_uses_the_honest_mean_as_own_update_by_default() -> None:
    assert craft("sign_flip", torch.tensor([[1.0], [3.0]]), n=3, m=1).tolist() == [-2.0]


def test_craft_rejects_unknown_attacks_and_parameters() -> None:
    with pytest.raises(UnknownMember, match="did you mean 'lie'"):
        craft("lies", torch.ones(2, 2), n=3, m=1)
    with pytest.raises(ConfigurationError, match="epsilon"):
        craft("ipm", torch.ones(2, 2), n=3, m=1, epsilom=2)


def test_craft_accepts_the_starting_model_and_a_function_for_fresh_models() -> None:
    """By default, a fresh model is drawn like a torch layer; `initial` replaces this draw."""
    honest_ND, sent_D = torch.ones(3, 400), torch.full((400,), 5.0)
    out_D = craft("random_noise", honest_ND, n=5, m=2, reading="parameters", sent_D=sent_D)
    reached_D = out_D + sent_D
    assert 0.045 < float(reached_D.abs().max()) <= 0.05 + 1e-6
    options = {"sent_D": sent_D, "initial": lambda draws: torch.full((400,), 9.0)}
    out_D = craft("random_noise", honest_ND, n=5, m=2, reading="interpolation", **options)
    torch.testing.assert_close(out_D, torch.full((400,), (9 + 6) / 2 - 5.0))


def test_craft_rejects_missing_or_malformed_honest_updates() -> None:
    """The mean of no updates would be NaN for every attack."""
    with pytest.raises(PreconditionError, match="no honest update is known"):
        craft("sign_flip", torch.zeros(0, 2), n=3, m=1)
    assert craft("sign_flip", torch.zeros(0, 1), n=3, m=1, own_D=torch.ones(1)).tolist() == [-1.0]
    for wrong in (torch.ones(3), torch.ones(3, 2, dtype=torch.int64)):
        with pytest.raises(ValueError, match=r"must be a floating \[N, D\] tensor"):
            craft("ipm", wrong, n=3, m=1)


def test_attack_that_ends_before_it_begins_is_rejected() -> None:
    with pytest.raises(ConfigurationError, match="until_round 3 is before from_round"):
        attacks.build("sign_flip", from_round=5, until_round=3)
    never = attacks.build("sign_flip", until_round=0)
    assert not never.active(0, seed=0)


@pytest.mark.parametrize("inner", [5, ["lie"]])
def test_inner_attack_other_than_a_name_or_a_table_is_rejected(inner: object) -> None:
    with pytest.raises(ConfigurationError, match="a model attack must be a name or a table, not"):
        attacks.build("sleeper", attack=inner)


def test_craft_passes_the_jacobian_to_the_attack() -> None:
    """Without a Jacobian, the model is stable everywhere, and the target does not move."""
    honest_ND = torch.tensor([[0.0], [2.0], [4.0]])
    target_D = craft("lie", honest_ND, n=20, m=6)
    assert torch.equal(craft("jaa", honest_ND, n=20, m=6), target_D)
    out_D = craft(
        "jaa",
        honest_ND,
        n=20,
        m=6,
        jacobian=lambda theta_D, draws: (theta_D.square().sum(), 2 * theta_D),
        alpha=1.0,
        steps=200,
    )
    torch.testing.assert_close(out_D, target_D / 2)


def test_crafted_updates_of_another_shape_are_refused() -> None:
    class Broadcast(ModelAttack):
        def craft(self, own_FD: Tensor, knowledge: Knowledge) -> Tensor:
            return own_FD[0]

    with pytest.raises(ConfigurationError, match=r"shape \(2,\) instead of \(3, 2\)"):
        Broadcast().apply(torch.ones(3, 2), everything())


class Own(DataAttack):
    """A data attack that returns or raises the given value."""

    name = "own"
    package = "my-package==1"
    given: Any = None

    def apply(self, *args: Any) -> Any:
        """Raises: the tests use only the other methods."""
        raise AssertionError

    def training(self, usual: Training) -> Training:
        if isinstance(self.given, Exception):
            raise self.given
        return self.given

    def upload(self, own_FD: Tensor) -> Tensor:
        return self.training(Training())


def test_wrong_results_of_a_data_attack_are_refused_with_its_name() -> None:
    own_FD = torch.ones(1, 3)
    with pytest.raises(ConfigurationError, match="'own' of my-package==1 changed the training"):
        Own().checked_training(Training())
    with pytest.raises(ConfigurationError, match="'own' of my-package==1 crafted None instead"):
        Own().checked_upload(own_FD)
    with pytest.raises(ConfigurationError, match=r"1 crafted updates of shape \(3,\) instead of"):
        Own(given=torch.ones(3)).checked_upload(own_FD)
    slow = Training(learning_rate=0.5)
    assert Own(given=slow).checked_training(Training()) == slow
    assert torch.equal(Own(given=own_FD + 1).checked_upload(own_FD), own_FD + 1)


def test_errors_of_an_attack_name_it() -> None:
    class Claiming(ModelAttack):
        name = "own"
        package = "my-package==1"

        def craft(self, own_FD: Tensor, knowledge: Knowledge) -> Tensor:
            return "none"  # type: ignore[return-value]  # the test is about this mistake

        def claim(self, numbers: dict[str, float], knowledge: Knowledge) -> dict[str, float]:
            raise KeyError("a")

    for call in (
        lambda: Own(given=KeyError("a")).checked_training(Training()),
        lambda: Own(given=KeyError("a")).checked_upload(torch.ones(1, 3)),
        lambda: Claiming().report({}, everything()),
    ):
        with pytest.raises(KeyError) as caught:
            call()
        assert caught.value.__notes__ == ["raised by 'own' of my-package==1"]
    with pytest.raises(ConfigurationError, match="attack 'own' of my-package==1 crafted 'none'"):
        Claiming().apply(torch.ones(1, 2), everything())
