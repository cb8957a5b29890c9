"""One round: the order of the steps, which clients are excluded, and the server step."""

import gc
from dataclasses import replace
from typing import Any, ClassVar, Literal

import pytest
import torch
from torch import Tensor

from rampart_fl.shared.errors import ConfigurationError, PreconditionError, UnknownMember
from rampart_fl.shared.experiment.eviction import Eviction, Mode, Standing
from rampart_fl.shared.robust import Context, Rows, State, Verdict
from rampart_fl.shared.robust.base import Detector
from rampart_fl.shared.robust.customizers import Customization
from rampart_fl.shared.robust.customizers.global_model import GlobalModel
from rampart_fl.shared.robust.engine import Plan, RoundOutcome, run_round
from rampart_fl.shared.robust.evidence.challenges import Challenger, awaiting, challenged
from rampart_fl.shared.robust.pipeline import substate
from rampart_fl.shared.robust.rules import rules
from rampart_fl.shared.robust.server_step import ServerStep

IDS = ["a", "b", "c", "d"]
BLOCK_ND = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [30.0, 40.0]])


class Objects(Detector):
    """A detector for these tests: objects to one client."""

    to: str
    decision: Literal["rejected", "evicted"] = "rejected"

    def apply(
        self, rows: Rows, state: State, context: Context
    ) -> tuple[tuple[Verdict, ...], State]:
        turns = state.tensors.get("turns", torch.zeros(1)) + 1
        verdicts = tuple(
            Verdict(
                client,
                self.decision if client == self.to else "accepted",
                f"{self.when}-{self.to}",
                float(turns) if context.aggregate_D is None else float(context.aggregate_D[0]),
                0.0,
                "test",
            )
            for client in rows.ids
        )
        return verdicts, State({"turns": turns})


def play(
    plan: Plan, block_ND: Tensor = BLOCK_ND, state: State | None = None, **more: object
) -> RoundOutcome:
    rows = Rows.of(block_ND, ids=IDS[: len(block_ND)])
    context = Context(reference_D=torch.tensor([10.0, 20.0]))
    return run_round(plan, rows, state or plan.init(2), context, **more)


def test_round_without_detectors_applies_the_rule_and_accepts_everyone() -> None:
    outcome = play(Plan.of("weighted_mean"))
    torch.testing.assert_close(outcome.global_D, torch.tensor([18.0, 30.5]))
    assert [verdict.decision for verdict in outcome.verdicts] == ["accepted"] * 4
    assert {verdict.detector for verdict in outcome.verdicts} == {"none"}
    assert outcome.customization.models is None and not outcome.customization.assignment
    assert [report.stage for report in outcome.reports] == ["weighted_mean"]


def test_screened_client_is_excluded_from_the_aggregate_and_the_models() -> None:
    plan = Plan.of("weighted_mean", ["norm_bound"], "fedcap")
    outcome = play(plan)
    torch.testing.assert_close(
        outcome.global_D, torch.tensor([10.0, 20.0]) + BLOCK_ND[:3].mean(dim=0)
    )
    assert outcome.survivors.ids == ("a", "b", "c")
    assert outcome.customization.models is not None
    assert outcome.customization.models.names == ("a", "b", "c")
    assert outcome.verdicts[3].decision == "evicted"


def test_client_rejected_by_an_audit_counts_in_the_mean_but_gets_no_model() -> None:
    plan = Plan.of("weighted_mean", [Objects(to="b", when="audit")], "fedcap")
    outcome = play(plan)
    torch.testing.assert_close(outcome.global_D, torch.tensor([10.0, 20.0]) + BLOCK_ND.mean(dim=0))
    assert outcome.survivors.ids == ("a", "c", "d")
    assert outcome.verdicts[1].score == float(BLOCK_ND.mean(dim=0)[0]), "it saw the aggregate"


def test_customized_models_start_from_the_reference_model() -> None:
    outcome = play(Plan.of("weighted_mean", [], {"name": "fedcap", "phi": 1.0}))
    assert outcome.customization.models is not None
    torch.testing.assert_close(outcome.customization.models.model("a"), torch.tensor([11.0, 20.0]))


def test_severest_verdict_wins_and_the_first_one_breaks_ties() -> None:
    rejects, evicts = Objects(to="b"), Objects(to="b", when="audit", decision="evicted")
    both = play(Plan.of("median", [rejects, Objects(to="b", when="audit")]))
    assert both.verdicts[1].detector == "screen-b"
    worst = play(Plan.of("median", [rejects, evicts]))
    assert worst.verdicts[1].detector == "audit-b" and worst.verdicts[1].decision == "evicted"


def test_all_screens_judge_before_any_row_is_removed() -> None:
    plan = Plan.of("median", [Objects(to="a"), {"name": "cosine", "threshold": -0.5}])
    block_ND = torch.tensor([[1.0, 0.0], [1.0, 0.1], [-1.0, 0.0]])
    outcome = play(plan, block_ND)
    # If row a were removed first, the other two would be opposite, and both would be rejected.
    assert [verdict.decision for verdict in outcome.verdicts] == [
        "rejected",
        "accepted",
        "rejected",
    ]


def test_global_model_is_unchanged_if_no_client_is_left() -> None:
    plan = Plan.of("weighted_mean", [{"name": "norm_bound", "threshold": 1e-6}], "fedcap")
    outcome = play(plan)
    assert torch.equal(outcome.global_D, torch.tensor([10.0, 20.0]))
    assert len(outcome.survivors) == 0 and outcome.customization.models is None
    decisions = [verdict.decision for verdict in outcome.verdicts]
    assert decisions == ["abstained", "abstained", "abstained", "evicted"]
    assert outcome.reports == ()


def test_flagged_clients_count_in_the_mean_only_in_observe_mode() -> None:
    table = {
        mode: play(Plan.of("weighted_mean", ["norm_bound"], eviction=Eviction(mode=mode)))
        for mode in ("observe", "reject", "evict")
    }
    reference_D = torch.tensor([10.0, 20.0])
    torch.testing.assert_close(table["observe"].global_D, reference_D + BLOCK_ND.mean(dim=0))
    assert table["observe"].survivors.ids == tuple(IDS)
    last = table["observe"].verdicts[3]
    assert (last.decision, last.asked, last.score) == ("accepted", "evicted", 50.0)
    for mode, decision in (("reject", "rejected"), ("evict", "evicted")):
        torch.testing.assert_close(table[mode].global_D, reference_D + BLOCK_ND[:3].mean(dim=0))
        assert table[mode].verdicts[3].decision == decision


class Challenges(Objects, Challenger):
    """Challenges the client that it objects to, unless that client has a challenge."""

    own: ClassVar[bool] = True

    def challenge(
        self,
        rows: Rows,
        customization: Customization,
        global_D: Tensor,
        state: State,
        context: Context,
    ) -> tuple[Customization, State]:
        met = State({"met": torch.tensor(len(customization.challenged))})
        if self.to in customization.challenged:
            return customization, met
        weights_BM = torch.tensor([[1.0] + [0.0] * (len(rows) - 1)], dtype=torch.float64)
        return challenged(customization, global_D, rows, {self.to: weights_BM}), met


class Reuses(Challenges):
    """Can use any challenge, including those of other detectors."""

    own: ClassVar[bool] = False


def test_detectors_that_can_reuse_challenges_draw_theirs_last() -> None:
    plan = Plan.of("weighted_mean", screens=(Reuses(to="b"), Challenges(to="b"), Reuses(to="c")))
    outcome = play(plan)
    assert dict(outcome.customization.challenged) == {"b": "challenge:b", "c": "challenge:c"}
    states = [substate(outcome.state, key).tensors["met"].item() for key in plan.stages()]
    assert states == [1, 0, 1], "whom the second detector challenged, the first one met"


def test_no_client_is_challenged_in_observe_mode() -> None:
    plan = replace(
        Plan.of("weighted_mean", screens=(Challenges(to="b"),)), eviction=Eviction(mode="observe")
    )
    assert not play(plan).customization.challenged


class Counts(Objects):
    """Counts the rounds of each client."""

    def apply(
        self, rows: Rows, state: State, context: Context
    ) -> tuple[tuple[Verdict, ...], State]:
        held = {client: float(turns) for client, turns in state.by_id("rounds").items()}
        held |= {client: held.get(client, 0.0) + 1 for client in rows.ids}
        counts = State({"rounds": torch.tensor(list(held.values()))}, {"rounds": tuple(held)})
        return super().apply(rows, State(), context)[0], counts


def counted_rounds(outcome: RoundOutcome) -> dict[str, int]:
    """What the detector `Counts` remembers."""
    state = substate(outcome.state, "detector-0-")
    return {client: int(turns) for client, turns in state.by_id("rounds").items()}


def test_detector_forgets_only_clients_that_were_barred() -> None:
    objects = Counts(to="c", decision="evicted")
    for eviction, f, kept in (
        (Eviction(), None, {"a": 1, "b": 1, "d": 1}),
        (Eviction(mode="quarantine"), None, {"a": 1, "b": 1, "d": 1}),
        (Eviction(by="operator"), None, {"a": 1, "b": 1, "d": 1}),
        (Eviction(mode="observe"), None, dict.fromkeys(IDS, 1)),
        (Eviction(mode="reject"), None, dict.fromkeys(IDS, 1)),
        (Eviction(), 0, dict.fromkeys(IDS, 1)),
    ):
        plan = Plan.of("median", [objects], eviction=eviction, f=f)
        assert counted_rounds(play(plan)) == kept


@pytest.mark.parametrize("mode", ["evict", "reject", "observe"])
def test_detector_forgets_clients_that_an_operator_evicted(mode: Mode) -> None:
    """If such a client is reinstated, the evidence against it starts from zero."""
    plan = Plan.of("median", [Counts(to="nobody")], eviction=Eviction(mode=mode))
    before = play(plan)
    assert counted_rounds(before) == dict.fromkeys(IDS, 1)
    standing = Standing(4, 4, frozenset("d"), frozenset())
    context = Context(reference_D=torch.tensor([10.0, 20.0]), standing=standing)
    after = run_round(plan, Rows.of(BLOCK_ND[:3], ids=IDS[:3]), before.state, context)
    assert counted_rounds(after) == {"a": 2, "b": 2, "c": 2}


def test_detector_forgets_a_reinstated_client_before_it_judges() -> None:
    """No result was computed while the client was out."""
    plan = Plan.of("median", [Counts(to="nobody")])
    standing = Standing(4, 4, reinstated=frozenset("b"))
    context = Context(reference_D=torch.tensor([10.0, 20.0]), standing=standing)
    after = run_round(plan, Rows.of(BLOCK_ND, ids=IDS), play(plan).state, context)
    assert counted_rounds(after) == {"a": 2, "b": 1, "c": 2, "d": 2}


def test_non_finite_rows_also_get_a_verdict() -> None:
    block_ND = BLOCK_ND.clone()
    block_ND[1, 1] = float("nan")
    outcome = play(Plan.of("median"), block_ND)
    assert [verdict.client for verdict in outcome.verdicts] == IDS
    assert outcome.verdicts[1].decision == "rejected" and outcome.verdicts[1].detector == "finite"
    assert play(Plan.of("median", ["norm_bound"]), block_ND).verdicts[1].decision == "evicted"
    nobody = play(Plan.of("median"), torch.full((2, 2), float("inf")))
    assert torch.equal(nobody.global_D, torch.tensor([10.0, 20.0]))
    assert {verdict.decision for verdict in nobody.verdicts} == {"rejected"}


def test_client_is_evicted_although_its_round_has_no_finite_row() -> None:
    """Otherwise, a client that is alone in its rounds could send such rows forever."""
    plan = Plan.of("median", ["response", "norm_bound", "robust_distance", "cosine"])
    rows = Rows.of(torch.full((1, 2), float("nan")), ids=["a"])
    context = Context(reference_D=torch.tensor([10.0, 20.0]), standing=Standing(5, 5))
    outcome = run_round(plan, rows, plan.init(2), context)
    assert torch.equal(outcome.global_D, torch.tensor([10.0, 20.0]))
    (verdict,) = outcome.verdicts
    assert (verdict.detector, verdict.decision) == ("norm_bound", "evicted")
    plan = Plan.of("median", ["response", "robust_distance", "cosine"])
    (verdict,) = run_round(plan, rows, plan.init(2), context).verdicts
    assert (verdict.detector, verdict.decision) == ("finite", "rejected")


def test_detectors_judge_raw_uploads_if_calibration_is_off() -> None:
    raw = Rows.of(BLOCK_ND[[3, 1, 2, 0]], ids=IDS)
    outcome = play(Plan.of("weighted_mean", ["norm_bound"]), similar=raw)
    assert outcome.survivors.ids == ("b", "c", "d")
    torch.testing.assert_close(outcome.survivors.row(2), BLOCK_ND[3])


def test_every_stage_gets_its_own_state_back_in_the_next_round() -> None:
    plan = Plan.of("foolsgold", [Objects(to="z"), Objects(to="y")], step=ServerStep(momentum=0.5))
    first = play(plan)
    second = play(plan, state=first.state)
    names = set(second.state.tensors)
    assert {"detector-0-/turns", "detector-1-/turns", "step/velocity"} <= names
    assert float(second.state.tensors["detector-0-/turns"]) == 2
    assert any(name.endswith("foolsgold/history") for name in names)
    history = next(t for name, t in second.state.tensors.items() if name.endswith("history"))
    torch.testing.assert_close(history, 2 * BLOCK_ND)


def test_repeated_round_is_bit_identical_and_does_not_modify_the_input() -> None:
    plan = Plan.of("dnc", ["norm_bound", "cosine"], "fedcap", f=1)
    before = BLOCK_ND.clone()
    one, two = play(plan), play(plan)
    assert torch.equal(one.global_D, two.global_D) and one.verdicts == two.verdicts
    assert torch.equal(BLOCK_ND, before)


def test_aggregate_is_freed_before_models_are_customized(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models may be as large as memory allows, so a round holds no vector that it does not need."""
    dim, live = 1237, []
    customize = GlobalModel.apply

    def counting(self: GlobalModel, *given: Any) -> Any:
        vectors = [o for o in gc.get_objects() if isinstance(o, Tensor) and o.shape == (dim,)]
        live.append(len({vector.data_ptr() for vector in vectors}))
        return customize(self, *given)

    monkeypatch.setattr(GlobalModel, "apply", counting)
    plan = Plan.of("median", step=ServerStep(learning_rate=0.5))
    context = Context(reference_D=torch.zeros(dim))
    run_round(plan, Rows.of(torch.randn(5, dim)), plan.init(dim), context)
    assert live == [2], "the reference and the next global model"


def test_server_step_applies_learning_rate_and_momentum() -> None:
    step, state = ServerStep(learning_rate=0.5, momentum=0.9), State()
    model_D, velocity = torch.zeros(1), 0.0
    expected = 0.0
    for update in (1.0, 2.0, -4.0):
        model_D, state = step.apply(model_D, torch.tensor([update]), state)
        velocity = 0.9 * velocity + update
        expected += 0.5 * velocity
        assert float(model_D) == pytest.approx(expected)
    plain, kept = ServerStep().apply(torch.ones(2), torch.tensor([1.0, -2.0]), State())
    assert plain.tolist() == [2, -1] and not kept.tensors


def test_velocity_does_not_share_memory_with_the_aggregate() -> None:
    aggregate_D = torch.ones(1)
    _, state = ServerStep(momentum=0.5).apply(torch.zeros(1), aggregate_D, State())
    aggregate_D.zero_()
    assert float(state.tensors["velocity"]) == 1


def test_plans_with_unknown_members_or_parameters_are_rejected() -> None:
    with pytest.raises(UnknownMember, match="norm_bound"):
        Plan.of("median", ["norm_bond"])
    with pytest.raises(UnknownMember, match="fedcap"):
        Plan.of("median", customizer="fedcup")
    with pytest.raises(ConfigurationError, match="momentum"):
        Plan.of({"name": "median", "momentum": 1})


def test_check_rows_rejects_pipelines_that_no_round_can_satisfy() -> None:
    Plan.of("krum", f=3).check_rows(9)
    with pytest.raises(ConfigurationError, match=r"no round can succeed: krum needs .* n=8, f=3"):
        Plan.of("krum", f=3).check_rows(8)
    with pytest.raises(ConfigurationError, match="n=4, f=2"):
        Plan.of(["nnm", "trimmed_mean"], f=2).check_rows(4)


def test_check_rows_ignores_requirements_known_only_during_a_round() -> None:
    Plan.of({"name": "monna", "pivot": "a"}, f=1).check_rows(4)
    Plan.of("fltrust").check_rows(1)
    groups = {"name": "flcert", "groups": 2, "rule": "median"}
    Plan.of("krum", customizer=groups, f=3).check_rows(4)
    Plan.of("performance_aware", f=1).check_rows(4)
    small = {"name": "clustered", "rule": {"name": "krum", "f": 1}}
    Plan.of("median", customizer=small).check_rows(4)


def test_check_rows_rejects_incompatible_stages() -> None:
    aware = {"name": "performance_aware", "rule": "median"}
    selection = {"name": "selection", "rule": "median"}
    for plan in (
        Plan.of(aware),
        Plan.of("median", [selection]),
        Plan.of("median", customizer={"name": "clustered", "rule": aware}),
        Plan.of("median", customizer={"name": "flcert", "rule": aware}),
    ):
        with pytest.raises(ConfigurationError, match=r"weights|one weight"):
            plan.check_rows(9)
    with pytest.raises(ConfigurationError, match=r"no round can succeed: krum .* n=6, f=5"):
        Plan.of("median", [{"name": "selection", "rule": "krum", "f": 5}]).check_rows(6)


@pytest.mark.parametrize("name", rules.names())
def test_check_rows_supports_every_rule(name: str) -> None:
    Plan.of(name, f=2).check_rows(11)


@pytest.mark.parametrize("isolates", [False, True])
def test_non_finite_model_is_never_published(isolates: bool) -> None:
    """If a rule bounds nothing, one upload near the limit of float32 suffices."""
    groups = {"name": "flcert", "groups": 2, "rule": "median"}
    plan = Plan.of("weighted_mean", customizer=groups if isolates else "global_model")
    most = torch.finfo(torch.float32).max
    rows = Rows.of(torch.tensor([[most], [most]]), ["a", "b"])
    context = Context(reference_D=torch.tensor([most / 2]))
    if isolates:
        outcome = run_round(plan, rows, plan.init(1), context)
        assert torch.equal(outcome.global_D, torch.tensor([most / 2]))
    else:
        with pytest.raises(PreconditionError, match="would not be finite"):
            run_round(plan, rows, plan.init(1), context)


@pytest.mark.parametrize("judged", [[], ["0"], ["0", "1", "1"], ["0", "1", "2", "stranger"]])
def test_detector_that_does_not_judge_each_row_once_is_refused(judged: list[str]) -> None:
    """Otherwise, a client without a verdict would count as accepted."""

    class Forgetful(Detector):
        def apply(
            self, rows: Rows, state: State, context: Context
        ) -> tuple[tuple[Verdict, ...], State]:
            return tuple(
                Verdict(client, "accepted", "forgetful", 0.0, 1.0, "fine") for client in judged
            ), state

    rows = Rows.of(torch.ones(3, 2), ids=["0", "1", "2"])
    with pytest.raises(ConfigurationError, match="one verdict per row"):
        Forgetful().judge(rows, State(), Context())
    with pytest.raises(ConfigurationError, match="one verdict per row"):
        Plan.of("median", [Forgetful()]).check_rows(3)


@pytest.mark.parametrize("decision", ["quarantined", "proposed", "abstained", "bad"])
def test_detector_cannot_ask_for_a_decision_that_ignores_the_mode(decision: str) -> None:
    class Bypass(Detector):
        def apply(
            self, rows: Rows, state: State, context: Context
        ) -> tuple[tuple[Verdict, ...], State]:
            bad: Any = decision
            return tuple(Verdict(c, bad, "bypass", 0.0, 1.0, "out") for c in rows.ids), state

    rows = Rows.of(torch.ones(2, 2), ids=["0", "1"])
    with pytest.raises(ConfigurationError, match=f"Bypass.*not for '{decision}'"):
        Bypass().judge(rows, State(), Context())


# -- too few rows are left ------------------------------------------------------------------------


def catches(rule: Any, f: int, n: int, caught: int) -> tuple[Plan, Rows]:
    """A plan with a detector that objects to long rows, and n rows, of which some are long."""
    norm_bound = {"name": "norm_bound", "threshold": 100}
    bound = Eviction.model_validate({"bounded": False})
    plan = Plan.of(rule, [norm_bound], eviction=bound, f=f)
    draws = torch.Generator().manual_seed(4)
    block_ND = torch.randn(n, 30, generator=draws) + 1
    block_ND[n - caught :] *= 1000
    return plan, Rows.of(block_ND, ids=[f"{i:02d}" for i in range(n)])


@pytest.mark.parametrize(
    ("rule", "f", "n", "caught"),
    [
        ("krum", 2, 7, 1),
        ("multi_krum", 2, 8, 2),
        (["nnm", "trimmed_mean"], 3, 7, 1),
        ("bulyan", 2, 11, 1),
        ({"name": "trimmed_mean", "b": 3}, 3, 7, 1),
        ({"name": "multi_krum", "m": 7}, 2, 8, 2),
        (["arc", "geometric_median"], 3, 7, 1),
    ],
)
def test_client_that_is_caught_leaves_enough_rows_for_the_rule(
    rule: Any, f: int, n: int, caught: int
) -> None:
    """Otherwise, the round would fail, and with it the eviction: in every round anew."""
    plan, rows = catches(rule, f, n, caught)
    context = Context(reference_D=torch.zeros(30))
    outcome = run_round(plan, rows, plan.init(30), context)
    barred = frozenset(v.client for v in outcome.verdicts if v.decision == "evicted")
    assert barred == set(rows.ids[n - caught :])
    assert float((outcome.global_D - 1).norm()) < float((rows.block_ND[: n - caught] - 1).norm())
    # The barred clients stay away, and the bound f stays too high for the others.
    left = Rows.of(rows.block_ND[: n - caught], ids=rows.ids[: n - caught])
    with pytest.raises(PreconditionError):
        run_round(plan, left, plan.init(30), context)
    for standing in (Standing(n, n, evicted=barred), Standing(n, n, quarantined=barred)):
        again = run_round(plan, left, outcome.state, replace(context, standing=standing))
        assert torch.equal(again.global_D, outcome.global_D)


def test_bound_f_is_lowered_no_further_than_necessary() -> None:
    plan, rows = catches("trimmed_mean", 3, 12, 2)
    outcome = run_round(plan, rows, plan.init(30), Context(reference_D=torch.zeros(30)))
    assert outcome.reports[-1].values == {"b": 3}
    plan, rows = catches("trimmed_mean", 3, 8, 3)
    outcome = run_round(plan, rows, plan.init(30), Context(reference_D=torch.zeros(30)))
    assert outcome.reports[-1].values == {"b": 2}


def test_verdicts_are_kept_if_the_rule_still_has_too_few_rows() -> None:
    plan, rows = catches("bulyan", 2, 11, 1)
    few = Rows.of(rows.block_ND[4:], ids=rows.ids[4:])
    with pytest.raises(PreconditionError):
        run_round(Plan.of("bulyan", f=2), few, plan.init(30), Context(reference_D=torch.zeros(30)))
    reference_D = torch.full((30,), 0.5)
    outcome = run_round(plan, few, plan.init(30), Context(reference_D=reference_D))
    assert torch.equal(outcome.global_D, reference_D)
    assert {v.client: v.decision for v in outcome.verdicts}["10"] == "evicted"


@pytest.mark.parametrize("barred", ["evicted", "quarantined"])
def test_detector_with_a_rule_still_judges_without_barred_clients(barred: str) -> None:
    selection = {"name": "selection", "rule": "krum", "f": 2}
    plan = Plan.of("median", [selection])
    block_ND = torch.randn(6, 5, generator=torch.Generator().manual_seed(1))
    rows, context = Rows.of(block_ND), Context(reference_D=torch.zeros(5))
    with pytest.raises(PreconditionError, match="n >= 2f"):
        run_round(plan, rows, plan.init(5), context)
    gone = replace(Standing(7, 7), **{barred: frozenset({"gone"})})
    outcome = run_round(plan, rows, plan.init(5), replace(context, standing=gone))
    assert {verdict.client for verdict in outcome.verdicts} == {*rows.ids}


class Awaits(Objects, Challenger):
    """Objects to one client, and awaits the next uploads of two clients."""

    seen: ClassVar[list[tuple[str, ...]]] = []

    def apply(
        self, rows: Rows, state: State, context: Context
    ) -> tuple[tuple[Verdict, ...], State]:
        self.seen.append(rows.ids)
        return super().apply(rows, state, context)

    def challenge(
        self,
        rows: Rows,
        customization: Customization,
        global_D: Tensor,
        state: State,
        context: Context,
    ) -> tuple[Customization, State]:
        return awaiting(customization, {"c", "d"}), state


def test_examined_clients_are_judged_and_not_aggregated() -> None:
    """The models are those of a round without the examined clients."""
    plan = Plan.of("weighted_mean", customizer="fedcap")
    detectors = (Awaits(to="d", decision="evicted"), Objects(to="c"))
    judging = replace(plan, detectors=detectors)
    rows, context = Rows.of(BLOCK_ND, ids=IDS), Context(reference_D=torch.tensor([10.0, 20.0]))
    examined = replace(context, examined=frozenset("cd"))
    Awaits.seen.clear()
    outcome = run_round(judging, rows, judging.init(2), examined)
    drawn = run_round(plan, rows.keep([0, 1]), plan.init(2), context)
    assert torch.equal(outcome.global_D, drawn.global_D)
    assert outcome.survivors.ids == ("a", "b")
    assert outcome.customization.models is not None
    assert outcome.customization.models.names == ("a", "b")
    assert outcome.customization.awaited == {"c", "d"}
    assert Awaits.seen == [tuple(IDS)]
    decided = {verdict.client: (verdict.decision, verdict.detector) for verdict in outcome.verdicts}
    assert decided["d"] == ("evicted", "screen-d")
    assert decided["c"][0] == "accepted", "other detectors compare drawn clients only"


def test_examined_clients_without_a_finite_row_do_not_count_as_hostile_rows() -> None:
    """The rule would otherwise tolerate fewer hostile rows among the drawn clients."""
    block_ND = torch.cat([torch.randn(5, 3), torch.full((2, 3), torch.nan)])
    rows = Rows.of(block_ND, ids=list("abcdefg"))
    plan = replace(Plan.of("trimmed_mean", f=2), detectors=(Awaits(to=""),))
    context = Context(reference_D=torch.zeros(3), examined=frozenset("fg"))
    outcome = run_round(plan, rows, plan.init(3), context)
    assert outcome.reports[-1].values == {"b": 2}
    assert {v.client for v in outcome.verdicts if v.decision != "accepted"} == {"f", "g"}
