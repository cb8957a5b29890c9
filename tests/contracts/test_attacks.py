"""The contract of all attacks; the registries list the attacks.

Legend: F attackers, B benign clients, D coordinates, S samples.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from rampart_fl.shared.attacks import craft
from rampart_fl.shared.attacks.base import LEVELS, DataAttack, Knowledge, ModelAttack
from rampart_fl.shared.attacks.data import attacks as data_attacks
from rampart_fl.shared.attacks.model import attacks as model_attacks
from rampart_fl.shared.errors import ConfigurationError, PreconditionError
from rampart_fl.shared.robust.engine import Plan

F, B, D = 3, 7, 24
PLAN = Plan.of("weighted_mean", ["robust_distance"], "fedcap")

# One entry per variant that differs in more than numbers; other attacks have their defaults.
VARIANTS: Mapping[str, tuple[Mapping[str, Any], ...]] = {
    "random_noise": ({}, {"reading": "parameters"}, {"reading": "interpolation"}),
    "min_max": ({}, {"perturbation": "unit"}, {"perturbation": "sign", "bound": "min"}),
    "min_sum": ({}, {"squared": False}, {"squared": False, "bound": "min"}, {"bound": "min"}),
    "fang": ({}, {"version": "krum"}, {"version": "median", "knows": "full"}),
    "lie": ({}, {"statistics_over": "all", "knows": "full"}),
    "norm_riding": ({}, {"knows": "full"}),
    "inf_nan": ({}, {"value": "inf", "share": 0.1}),
    "sybil_clones": ({}, {"jitter": 0.1}, {"attack": {"name": "fang"}}),
    "schedule": (
        {"attacks": ["lie", {"name": "gaussian", "probability": 0.5}]},
        {"attacks": ["sign_flip", {"name": "model_replacement", "scale": 2}]},
    ),
    "sleeper": ({"wakes": 0}, {}),
}


def cases() -> list[Any]:
    return [
        pytest.param(name, parameters, id=f"{name}-{position}")
        for name in model_attacks.names()
        for position, parameters in enumerate(VARIANTS.get(name, ({},)))
    ]


each_model_attack = pytest.mark.parametrize(("name", "parameters"), cases())
each_data_attack = pytest.mark.parametrize("name", data_attacks.names())
each_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["f32", "f64"])


def normal(*shape: int, seed: int, dtype: torch.dtype = torch.float32) -> Tensor:
    draws = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=draws, dtype=torch.float64).add(0.3).to(dtype)


def round_of(dtype: torch.dtype = torch.float32, **changes: Any) -> tuple[Tensor, Knowledge]:
    """The attackers' honest updates, and all knowledge that an attack can have."""
    own_FD = normal(F, D, seed=1, dtype=dtype)
    knowledge = Knowledge(
        participants=F + B,
        attackers=F,
        honest_BD=normal(B, D, seed=2, dtype=dtype),
        round=4,
        seed=9,
        reference_D=normal(D, seed=3, dtype=dtype),
        colluders_MD=own_FD.clone(),
        sent_FD=normal(F, D, seed=4, dtype=dtype),
        colluders_sent_MD=normal(F, D, seed=4, dtype=dtype),
        honest_sent_BD=normal(B, D, seed=6, dtype=dtype),
        plan=PLAN,
        server_update_D=normal(D, seed=5, dtype=dtype),
        initial=lambda draws: torch.randn(D, generator=draws),
        jacobian=lambda theta_D, draws: (theta_D.square().sum(), 2 * theta_D),
    )
    return own_FD, replace(knowledge, **changes)


def run(attack: ModelAttack, own_FD: Tensor, knowledge: Knowledge) -> Tensor:
    """The uploads, crafted with the knowledge that the attack asks for."""
    return attack.apply(own_FD, knowledge.limited_to(attack.asks_for))


@each_dtype
@each_model_attack
def test_uploads_have_the_shape_and_dtype_of_honest_updates(
    name: str, parameters: Mapping[str, Any], dtype: torch.dtype
) -> None:
    own_FD, knowledge = round_of(dtype)
    out_FD = run(model_attacks.build(name, **parameters), own_FD, knowledge)
    assert out_FD.shape == own_FD.shape
    assert out_FD.dtype == dtype
    assert bool(out_FD.isfinite().all()) == (name != "inf_nan")


@each_model_attack
def test_float32_and_float64_uploads_agree(name: str, parameters: Mapping[str, Any]) -> None:
    if name == "inf_nan":
        pytest.skip("no numbers to compare")
    attack = model_attacks.build(name, **parameters)
    single = run(attack, *round_of(torch.float32))
    double = run(attack, *round_of(torch.float64))
    torch.testing.assert_close(single.double(), double, rtol=1e-4, atol=1e-4)


@each_model_attack
def test_uploads_are_deterministic_given_the_seed(name: str, parameters: Mapping[str, Any]) -> None:
    attack = model_attacks.build(name, **parameters)
    first, second = run(attack, *round_of()), run(attack, *round_of())
    assert torch.equal(first.nan_to_num(), second.nan_to_num())


@each_model_attack
def test_attack_does_not_modify_its_inputs(name: str, parameters: Mapping[str, Any]) -> None:
    own_FD, knowledge = round_of()
    tensors = [value for value in (own_FD, *vars(knowledge).values()) if isinstance(value, Tensor)]
    before = [tensor.clone() for tensor in tensors]
    out_FD = run(model_attacks.build(name, **parameters), own_FD, knowledge)
    out_FD.fill_(77)
    for tensor, kept in zip(tensors, before, strict=True):
        assert torch.equal(tensor, kept)


@each_model_attack
def test_uploads_of_different_attackers_share_no_memory(
    name: str, parameters: Mapping[str, Any]
) -> None:
    own_FD, knowledge = round_of()
    out_FD = run(model_attacks.build(name, **parameters), own_FD, knowledge)
    kept = out_FD[1].clone()
    out_FD[0] = 77
    assert torch.equal(out_FD[1].nan_to_num(), kept.nan_to_num())


@each_model_attack
def test_attack_declared_identical_sends_identical_uploads(
    name: str, parameters: Mapping[str, Any]
) -> None:
    attack = model_attacks.build(name, **parameters)
    if not attack.identical:
        pytest.skip("every attacker uploads its own")
    out_FD = run(attack, *round_of())
    assert torch.equal(out_FD, out_FD[:1].expand_as(out_FD))


@each_model_attack
def test_crafting_per_attacker_equals_joint_crafting(
    name: str, parameters: Mapping[str, Any]
) -> None:
    attack = model_attacks.build(name, **parameters)
    own_FD, knowledge = round_of()
    together = run(attack, own_FD, knowledge)
    assert knowledge.sent_FD is not None
    for f in range(F):
        alone = replace(knowledge, first=f, sent_FD=knowledge.sent_FD[f : f + 1])
        out = run(attack, own_FD[f : f + 1], alone)
        assert torch.equal(out[0].nan_to_num(), together[f].nan_to_num())


@each_model_attack
def test_attack_without_attackers_leaves_updates_and_reports_unchanged(
    name: str, parameters: Mapping[str, Any]
) -> None:
    attack = model_attacks.build(name, **parameters)
    own_FD, _ = round_of()
    nobody = Knowledge(participants=B, attackers=0)
    out_FD = attack.apply(own_FD, nobody)
    assert torch.equal(out_FD, own_FD)
    assert out_FD.data_ptr() != own_FD.data_ptr()
    assert attack.apply(own_FD[:0], nobody).shape == (0, D)
    assert attack.report({"loss_gap": 0.5}, nobody) == {"loss_gap": 0.5}


@each_model_attack
def test_attack_is_honest_outside_its_active_rounds(
    name: str, parameters: Mapping[str, Any]
) -> None:
    own_FD, knowledge = round_of()
    for when in ({"from_round": 5}, {"until_round": 4}, {"probability": 0.0}):
        attack = model_attacks.build(name, **{**parameters, **when})
        assert torch.equal(run(attack, own_FD, knowledge), own_FD)
        assert attack.report({"loss_gap": 0.5}, knowledge) == {"loss_gap": 0.5}


@each_model_attack
def test_attack_uses_no_more_knowledge_than_it_declares(
    name: str, parameters: Mapping[str, Any]
) -> None:
    attack = model_attacks.build(name, **parameters)
    assert LEVELS.index(attack.knowledge) <= LEVELS.index(attack.asks_for)
    own_FD, knowledge = round_of()
    if attack.asks_for == "agnostic":
        bare = replace(knowledge, honest_BD=None, colluders_MD=None, server_update_D=None)
        everything = attack.apply(own_FD, knowledge)
        assert torch.equal(everything.nan_to_num(), attack.apply(own_FD, bare).nan_to_num())
        return
    with pytest.raises(PreconditionError, match="no honest update is known"):
        attack.apply(own_FD, knowledge.limited_to("agnostic"))


@each_model_attack
def test_attack_works_with_one_known_update(name: str, parameters: Mapping[str, Any]) -> None:
    own_FD, knowledge = round_of()
    lonely = replace(
        knowledge, participants=2, attackers=1, honest_BD=own_FD[:1], colluders_MD=own_FD[:1]
    )
    assert knowledge.sent_FD is not None
    sent_FD = knowledge.sent_FD[:1]
    lonely = replace(lonely, sent_FD=sent_FD, colluders_sent_MD=sent_FD, honest_sent_BD=sent_FD)
    out = run(model_attacks.build(name, **parameters), own_FD[:1], lonely)
    assert out.shape == (1, D)
    assert bool(out.isfinite().all()) == (name != "inf_nan")


@each_model_attack
def test_attack_on_zero_updates_is_finite(name: str, parameters: Mapping[str, Any]) -> None:
    own_FD, knowledge = round_of()
    zeros = replace(
        knowledge,
        honest_BD=torch.zeros(B, D),
        colluders_MD=torch.zeros(F, D),
        server_update_D=torch.zeros(D),
    )
    out_FD = run(model_attacks.build(name, **parameters), torch.zeros_like(own_FD), zeros)
    assert bool(out_FD.isfinite().all()) == (name != "inf_nan")


@each_model_attack
def test_attack_sends_honest_updates_if_all_known_updates_are_non_finite(
    name: str, parameters: Mapping[str, Any]
) -> None:
    own_FD, knowledge = round_of()
    attack = model_attacks.build(name, **parameters)
    if attack.asks_for == "agnostic":
        return
    diverged = replace(
        knowledge,
        honest_BD=torch.full((B, D), torch.inf),
        colluders_MD=torch.full((F, D), torch.nan),
    )
    assert torch.equal(run(attack, own_FD, diverged), own_FD)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@each_model_attack
def test_known_updates_that_are_not_finite_are_left_out(
    name: str, parameters: Mapping[str, Any], value: float
) -> None:
    """With partial knowledge, the diverged update is that of the first colluder."""
    attack = model_attacks.build(name, **parameters)
    own_FD, knowledge = round_of()
    known = knowledge.limited_to(attack.asks_for)
    if known.honest_BD is None:
        return
    assert known.honest_sent_BD is not None
    diverged_BD = known.honest_BD.clone()
    diverged_BD[0, 3] = value
    diverged = replace(known, honest_BD=diverged_BD)
    known = replace(known, honest_BD=known.honest_BD[1:], honest_sent_BD=known.honest_sent_BD[1:])
    if attack.asks_for == "partial":
        diverged = replace(diverged, colluders_MD=diverged_BD)
        known = replace(known, colluders_MD=known.honest_BD, colluders_sent_MD=known.honest_sent_BD)
    out_FD = attack.apply(own_FD, diverged)
    assert bool(out_FD.isfinite().all())
    assert torch.equal(out_FD, attack.apply(own_FD, known))


def test_finite_knowledge_is_not_copied() -> None:
    _, knowledge = round_of()
    assert knowledge.finite() is knowledge


@pytest.mark.parametrize("name", ["lie", "min_max", "min_sum", "slow_poison"])
@pytest.mark.parametrize("knows", ["partial", "full"])
def test_statistics_over_all_updates_leave_out_diverged_colluders(name: str, knows: Any) -> None:
    attack = model_attacks.build(name, knows=knows, statistics_over="all")
    own_FD, knowledge = round_of()
    assert knowledge.colluders_MD is not None
    knowledge.colluders_MD[1, 3] = torch.nan
    expected = replace(knowledge, colluders_MD=knowledge.colluders_MD[[0, 2]])
    out_FD = run(attack, own_FD, knowledge)
    assert bool(out_FD.isfinite().all())
    assert torch.equal(out_FD, run(attack, own_FD, expected))


@each_model_attack
def test_attack_supports_bfloat16_updates(name: str, parameters: Mapping[str, Any]) -> None:
    out_FD = run(model_attacks.build(name, **parameters), *round_of(torch.bfloat16))
    assert out_FD.dtype == torch.bfloat16
    assert bool(out_FD.isfinite().all()) == (name != "inf_nan")


@pytest.mark.parametrize("name", model_attacks.names())
def test_unknown_parameters_are_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="from_round"):
        model_attacks.build(name, strenght=1)


@pytest.mark.parametrize("name", [name for name in model_attacks.names() if name != "schedule"])
def test_craft_returns_one_deterministic_vector_without_services(name: str) -> None:
    honest_ND = normal(14, D, seed=6)
    crafted_D = craft(name, honest_ND, n=20, m=6)
    assert crafted_D.shape == (D,)
    assert torch.equal(crafted_D.nan_to_num(), craft(name, honest_ND, n=20, m=6).nan_to_num())


def samples() -> tuple[Tensor, Tensor]:
    draws = torch.Generator().manual_seed(8)
    return torch.rand(60, 1, 12, 12, generator=draws), torch.randint(10, (60,), generator=draws)


def poison(attack: DataAttack, seed: int = 1) -> tuple[Tensor, Tensor]:
    return attack.apply(*samples(), 10, torch.Generator().manual_seed(seed))


@each_data_attack
def test_poisoned_samples_are_valid_copies_determined_by_the_seed(name: str) -> None:
    attack = data_attacks.build(name)
    x, y = samples()
    poisoned_x, poisoned_y = attack.apply(x, y, 10, torch.Generator().manual_seed(1))
    assert poisoned_x.shape == x.shape
    assert poisoned_x.dtype == x.dtype
    assert poisoned_y.dtype == y.dtype
    assert 0 <= int(poisoned_y.min()) <= int(poisoned_y.max()) < 10
    assert bool((poisoned_y != y).any())
    again_x, again_y = poison(attack)
    assert torch.equal(poisoned_x, again_x)
    assert torch.equal(poisoned_y, again_y)
    poisoned_x.fill_(77)
    poisoned_y.fill_(77)
    assert torch.equal(x, samples()[0])
    assert torch.equal(y, samples()[1])


@each_data_attack
def test_data_attacks_do_not_modify_updates_by_default(name: str) -> None:
    own_FD, _ = round_of()
    out_FD = data_attacks.build(name).upload(own_FD)
    assert torch.equal(out_FD, own_FD)
    assert out_FD.data_ptr() != own_FD.data_ptr()


@each_data_attack
def test_data_attacks_accept_an_empty_data_set(name: str) -> None:
    attack = data_attacks.build(name)
    x, y = samples()
    empty_x, empty_y = attack.apply(x[:0], y[:0], 10, torch.Generator())
    assert len(empty_x) == len(empty_y) == 0


CATALOGUE = Path(__file__).parents[2] / "docs" / "attacks.md"


@pytest.mark.parametrize(
    "member",
    [registry.get(name) for registry in (model_attacks, data_attacks) for name in registry.names()],
    ids=lambda member: member.name,
)
def test_catalogue_names_every_attack_and_parameter(member: Any) -> None:
    lines = [
        line
        for line in CATALOGUE.read_text().splitlines()
        if line.startswith(f"| `{member.name}` |")
    ]
    assert len(lines) == 1
    shared = {"from_round", "until_round", "probability"}
    for key in set(member.model_fields) - shared:
        assert f"`{key}`" in lines[0]
    assert member.paper
