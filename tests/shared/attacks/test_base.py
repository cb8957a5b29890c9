"""Knowledge contains no more than its level, and attacks name what they lack."""

import pytest
import torch

from rampart_fl.shared.attacks import craft
from rampart_fl.shared.attacks.base import Knowledge
from rampart_fl.shared.attacks.model import attacks
from rampart_fl.shared.errors import ConfigurationError, PreconditionError, UnknownMember
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


def test_full_knowledge_is_everything() -> None:
    full = everything().limited_to("full")
    assert full.honest_BD is BENIGN_BD
    assert full.plan is PLAN


def test_partial_knowledge_is_the_colluders_updates() -> None:
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


def test_knowledge_never_grows() -> None:
    agnostic = everything().limited_to("agnostic")
    assert agnostic.limited_to("full") is agnostic
    partial = everything().limited_to("partial")
    assert partial.limited_to("full") is partial
    assert partial.limited_to("agnostic").honest_BD is None


def test_colluders_ask_for_what_their_parameters_say() -> None:
    assert attacks.build("sign_flip").asks_for == "agnostic"
    assert attacks.build("lie").asks_for == "partial"
    assert attacks.build("lie", knows="full").asks_for == "full"


def test_more_attackers_than_participants_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="7 attackers of 6"):
        Knowledge(participants=6, attackers=7)


@pytest.mark.parametrize("honest_BD", [None, torch.empty(0, 2)])
def test_no_known_honest_update_is_said(honest_BD: torch.Tensor | None) -> None:
    with pytest.raises(PreconditionError, match=r"ipm needs partial knowledge.*n=5, m=2"):
        attacks.build("ipm").apply(torch.ones(2, 2), Knowledge(5, 2, honest_BD))


def test_updates_are_rows() -> None:
    with pytest.raises(ValueError, match=r"\[F, D\]"):
        attacks.build("sign_flip").apply(torch.ones(2), Knowledge(5, 2))
    with pytest.raises(ValueError, match="int64"):
        attacks.build("sign_flip").apply(torch.ones(2, 2).long(), Knowledge(5, 2))


def test_craft_gives_back_the_honest_update_without_attackers() -> None:
    own_D = torch.tensor([1.0, 2.0])
    assert craft("ipm", torch.zeros(3, 2), n=3, m=0, own_D=own_D).tolist() == [1.0, 2.0]


def test_craft_takes_the_mean_of_the_honest_as_its_own() -> None:
    assert craft("sign_flip", torch.tensor([[1.0], [3.0]]), n=3, m=1).tolist() == [-2.0]


def test_craft_says_which_attacks_there_are() -> None:
    with pytest.raises(UnknownMember, match="did you mean 'lie'"):
        craft("lies", torch.ones(2, 2), n=3, m=1)
    with pytest.raises(ConfigurationError, match="epsilon"):
        craft("ipm", torch.ones(2, 2), n=3, m=1, epsilom=2)


def test_craft_takes_the_model_that_the_attackers_trained_from() -> None:
    """A fresh model where they began, or one drawn in a way of one's own."""
    honest_ND, sent_D = torch.ones(3, 400), torch.full((400,), 5.0)
    out_D = craft("random_noise", honest_ND, n=5, m=2, reading="parameters", sent_D=sent_D)
    reached_D = out_D + sent_D
    assert 0.045 < float(reached_D.abs().max()) <= 0.05 + 1e-6
    given = {"sent_D": sent_D, "initial": lambda draws: torch.full((400,), 9.0)}
    out_D = craft("random_noise", honest_ND, n=5, m=2, reading="interpolation", **given)
    torch.testing.assert_close(out_D, torch.full((400,), (9 + 6) / 2 - 5.0))


def test_craft_refuses_updates_that_say_nothing() -> None:
    """The mean of none would be NaN, whatever the attack."""
    with pytest.raises(PreconditionError, match="no honest update is known"):
        craft("sign_flip", torch.zeros(0, 2), n=3, m=1)
    assert craft("sign_flip", torch.zeros(0, 1), n=3, m=1, own_D=torch.ones(1)).tolist() == [-1.0]
    for wrong in (torch.ones(3), torch.ones(3, 2, dtype=torch.int64)):
        with pytest.raises(ValueError, match=r"must be a floating \[N, D\] tensor"):
            craft("ipm", wrong, n=3, m=1)


def test_an_attack_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="until_round 3 is before from_round"):
        attacks.build("sign_flip", from_round=5, until_round=3)
    never = attacks.build("sign_flip", until_round=0)
    assert not never.active(0, seed=0)


@pytest.mark.parametrize("inner", [5, ["lie"]])
def test_an_attack_inside_is_a_name_or_a_table(inner: object) -> None:
    with pytest.raises(ConfigurationError, match="a model attack must be a name or a table, not"):
        attacks.build("sleeper", attack=inner)


def test_craft_takes_a_jacobian() -> None:
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
