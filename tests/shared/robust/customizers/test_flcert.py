"""FLCert: every group trains as if alone, and no attacker changes another group's vote."""

from collections.abc import Mapping
from itertools import combinations

import pytest
import torch
from torch import Tensor

from rampart_fl.shared.assignment import group_of
from rampart_fl.shared.errors import ConfigurationError, PreconditionError
from rampart_fl.shared.robust import Context, Rows, State
from rampart_fl.shared.robust.certificates import radii, winners
from rampart_fl.shared.robust.customizers import Customization, customizers
from rampart_fl.shared.robust.customizers.flcert import FLCert
from rampart_fl.shared.robust.engine import Plan, RoundOutcome, run_round
from rampart_fl.shared.robust.rules import rules

D = 5
CLIENTS = [f"client-{k}" for k in range(9)]
NEEDY = {"fltrust", "monna", "sageflow", "sdea"}
"""Rules that need the server's own samples."""


def close_round(
    plan: Plan,
    uploads: Mapping[str, Tensor],
    before: RoundOutcome | None = None,
    round_: int = 0,
    reference_D: Tensor | None = None,
) -> RoundOutcome:
    """A round over raw uploads, whose clients trained from their groups' models."""
    block_ND = torch.stack(list(uploads.values()))
    claims = {"moved": block_ND.norm(dim=1), "loss_gap": torch.ones(len(block_ND))}
    rows = Rows.of(block_ND, ids=list(uploads), metadata=claims)
    state = plan.init(D) if before is None else before.state
    first_D = torch.linspace(-1, 1, D) if reference_D is None else reference_D
    start_D = first_D if before is None else before.global_D
    made = {} if before is None else models(before.customization)
    context = Context(round=round_, seed=1, reference_D=start_D, models=made)
    return run_round(plan, rows, state, context)


def uploads(seed: int, clients: list[str] = CLIENTS) -> dict[str, Tensor]:
    draws = torch.Generator().manual_seed(seed)
    return {client: torch.randn(D, generator=draws) for client in clients}


def models(customization: Customization) -> dict[str, Tensor]:
    assert customization.models is not None
    return {name: customization.models.model(name) for name in customization.models.names}


def test_group_models_match_hand_computed_medians_over_two_rounds() -> None:
    customizer = FLCert(groups=2, rule=[{"name": "median"}])
    plan = Plan.of("weighted_mean", (), customizer)
    zero, one = customizer.names
    # By the hash of the ids: 0, 2, 3, 4 and 8 are the first group, 1, 5, 6 and 7 the second.
    owners = {client: group_of(client, customizer.names) for client in CLIENTS[:5]}
    assert sorted(set(owners.values())) == [zero, one]
    values = {client: torch.full((D,), float(10**k)) for k, client in enumerate(CLIENTS[:5])}
    first = close_round(plan, values)
    second = close_round(plan, values, first, 1)
    start_D = torch.linspace(-1, 1, D)
    for outcome, rounds in ((first, 1), (second, 2)):
        for name, model_D in models(outcome.customization).items():
            own = torch.tensor([10.0**k for k, c in enumerate(CLIENTS[:5]) if owners[c] == name])
            middle = float(own.quantile(0.5))
            torch.testing.assert_close(model_D, start_D + rounds * middle)
    assert {c: first.customization.names_for(c)[0] for c in owners} == owners


def test_a_group_without_clients_abstains() -> None:
    customizer = FLCert(groups=7)
    clients = CLIENTS[:3]
    outcome = close_round(Plan.of("weighted_mean", (), customizer), uploads(0, clients))
    seen = {group_of(client, customizer.names) for client in clients}
    assert set(outcome.customization.voters) == seen
    assert len(seen) < 7 == len(outcome.customization.groups)
    # A newcomer of an empty group starts from the first model, and votes from then on.
    newcomer = next(c for c in CLIENTS if group_of(c, customizer.names) not in seen)
    (name,) = outcome.customization.names_for(newcomer)
    torch.testing.assert_close(models(outcome.customization)[name], torch.linspace(-1, 1, D))
    later = close_round(
        Plan.of("weighted_mean", (), customizer), uploads(1, [*clients, newcomer]), outcome, 1
    )
    assert set(later.customization.voters) == {*seen, name}


def test_group_too_small_for_its_rule_abstains_and_the_others_vote() -> None:
    customizer = FLCert(groups=2, rule=[{"name": "krum", "f": 1}])
    names = customizer.names
    sizes = {name: sum(group_of(c, names) == name for c in CLIENTS) for name in names}
    small, large = sorted(names, key=lambda name: sizes[name])
    kept = [c for c in CLIENTS if group_of(c, names) == large]
    assert len(kept) >= 5  # krum needs 2f + 3
    few = [c for c in CLIENTS if group_of(c, names) == small][:4]
    outcome = close_round(Plan.of("weighted_mean", (), customizer), uploads(0, [*kept, *few]))
    assert outcome.customization.voters == (large,)


@pytest.mark.parametrize("rule", [name for name in rules.names() if name not in NEEDY])
def test_attackers_in_one_group_change_no_bit_of_another_group(rule: str) -> None:
    """Bit by bit, over three rounds, whatever the attackers of other groups send."""
    customizer = FLCert(groups=2, rule=[{"name": rule}])
    plan = Plan.of("weighted_mean", (), customizer)
    hostile = customizer.names[0]

    def run(poison: Tensor | None) -> Tensor:
        outcome = None
        for round_ in range(3):
            sent = uploads(round_)
            for client in sent:
                if poison is not None and group_of(client, customizer.names) == hostile:
                    sent[client] = poison * (round_ + 1)
            outcome = close_round(plan, sent, outcome, round_)
        assert outcome is not None
        return models(outcome.customization)[customizer.names[1]]

    calm = run(None)
    for poison in (torch.full((D,), 1e30), torch.full((D,), float("nan")), -1e3 * torch.ones(D)):
        assert torch.equal(run(poison), calm)


@pytest.mark.slow
def test_certificate_holds_against_every_set_of_attackers() -> None:
    """Retrains tiny linear classifiers under every set of m attackers with extreme uploads.

    No set of m attackers changes a decision that is certified against m attackers.
    """
    customizer = FLCert(groups=4)
    plan = Plan.of("weighted_mean", (), customizer)
    inputs_TD = torch.randn(12, D, generator=torch.Generator().manual_seed(9))

    def votes(hostile: tuple[str, ...], poison: Tensor) -> Tensor:
        outcome = None
        for round_ in range(2):
            sent = uploads(10 + round_)
            sent.update(dict.fromkeys(hostile, poison))
            outcome = close_round(plan, sent, outcome, round_, torch.zeros(D))
        assert outcome is not None
        result = models(outcome.customization)
        ballots = [(inputs_TD @ result[name] > 0).long() for name in outcome.customization.voters]
        return torch.nn.functional.one_hot(torch.stack(ballots), 2).sum(0)

    calm_TC = votes((), torch.zeros(D))
    before_T, radii_T = winners(calm_TC), radii(calm_TC)
    assert {0, 1} <= set(radii_T.tolist())
    changed = torch.zeros(len(inputs_TD), dtype=torch.bool)
    for m in (1, 2):
        for hostile in combinations(CLIENTS, m):
            for poison in (torch.full((D,), 1e6), torch.full((D,), -1e6), torch.eye(D)[0] * 1e6):
                after_T = winners(votes(hostile, poison))
                moved_T = after_T != before_T
                assert not (moved_T & (radii_T >= m)).any()
                changed |= moved_T & (m == 1)
    assert changed.any()  # The attackers do change decisions that are not certified.


def test_base_rule_can_have_its_own_pre_aggregators_and_bounds() -> None:
    customizer = customizers.parse(
        {"name": "flcert", "groups": 3, "rule": ["nnm", {"name": "trimmed_mean", "f": 1}]}, f=5
    )
    assert isinstance(customizer, FLCert)
    assert [stage.name for stage in customizer.pipeline().stages] == ["nnm", "trimmed_mean"]
    assert customizers.parse({"name": "flcert", "rule": "median"}).rule == [{"name": "median"}]


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ("no_such_rule", "unknown stage 'no_such_rule'"),
        ({"name": "trimmed_mean", "g": 1}, "g"),
        ("fltrust", "own update"),
        ("nnm", "ends with a rule"),
    ],
)
def test_invalid_base_rules_are_rejected(rule: object, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        customizers.parse({"name": "flcert", "rule": rule})


def test_too_few_rows_for_the_global_rule_do_not_stop_the_groups() -> None:
    """If hostile clients send nothing, krum has too few rows."""
    plan, sent = Plan.of({"name": "krum", "f": 3}, (), FLCert(groups=2)), uploads(0, CLIENTS[:1])
    outcome = close_round(plan, sent)
    torch.testing.assert_close(outcome.global_D, torch.linspace(-1, 1, D))
    (own,) = outcome.customization.names_for(CLIENTS[0])
    expected_D = torch.linspace(-1, 1, D) + sent[CLIENTS[0]]
    torch.testing.assert_close(models(outcome.customization)[own], expected_D)
    with pytest.raises(PreconditionError):
        close_round(Plan.of({"name": "krum", "f": 3}), sent)


def test_shared_running_statistics_are_rejected() -> None:
    held = Context(reference_D=torch.zeros(D), statistics=(("~norm.running_mean", 3, D),))
    plan, rows = Plan.of("weighted_mean", (), "flcert"), Rows.of(torch.randn(4, D))
    with pytest.raises(ConfigurationError, match="without batch normalization"):
        run_round(plan, rows, plan.init(3), held)


def test_state_of_base_rules_is_kept_for_each_group() -> None:
    customizer = FLCert(groups=2, rule=[{"name": "centered_clipping"}])
    rows = Rows.of(torch.randn(9, D), ids=CLIENTS)
    _, state = customizer.apply(rows, rows, State(), Context(reference_D=torch.zeros(D)))
    kept = {name for name in state.tensors if name.startswith("group:")}
    assert {name.partition("/")[0] for name in kept} == set(customizer.names)
