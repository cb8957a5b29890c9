"""The copy detector, in full rounds of the engine with clients that train on parabolas.

Legend: N clients, F colluders, D coordinates.
"""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.experiment.eviction import Eviction
from rampart_fl.shared.experiment.selection import drawn_count, summon
from rampart_fl.shared.robust import Context, Rows, State
from rampart_fl.shared.robust.base import Verdict
from rampart_fl.shared.robust.customizers import Customization
from rampart_fl.shared.robust.detectors import detectors
from rampart_fl.shared.robust.detectors.challenge import ANSWERS, ChallengeDetector
from rampart_fl.shared.robust.engine import Plan, run_round
from rampart_fl.shared.robust.evidence.betting import evidence
from rampart_fl.shared.robust.evidence.relays import NOTHING
from rampart_fl.shared.robust.evidence.trials import TrialRecord, from_state, to_state
from rampart_fl.shared.robust.pipeline import split_state
from rampart_fl.shared.robust.sketch import Traces, sketch

D = 240
SKETCH = 256
SEED = 5
"""The server's seed."""
BLOCKS = 8
"""A quarter of the default number, so that rounds are quick."""
KEY = "detector-0-challenge"
Attack = Callable[[Tensor], Tensor]


def sketched(vectors_ND: Tensor) -> Tensor:
    """Sketches (N, K) of these vectors, which have at most K coordinates: their signed copies."""
    signs_D = sketch(torch.ones(D), SKETCH, SEED)[:D]
    return torch.nn.functional.pad(vectors_ND * signs_D, (0, SKETCH - D))


class Federation:
    """Clients that each descend their own parabola, and the engine that judges their uploads.

    Curvatures and optima differ between clients. In a round, a client covers a share of the way to
    its optimum, plus noise.
    """

    def __init__(
        self, clients: int, seed: int = 0, eviction: Eviction | None = None, **options: Any
    ) -> None:
        self.draws = torch.Generator().manual_seed(seed)
        self.names = [f"c{i:02d}" for i in range(clients)]
        self.optima_ND = torch.randn(clients, D, generator=self.draws)
        self.curves_ND = 0.5 * torch.rand(clients, D, generator=self.draws)
        detector = {"name": "challenge", "sketch": SKETCH, "blocks": BLOCKS, **options}
        self.plan = Plan.of("weighted_mean", [detector], eviction=eviction)
        self.state = self.plan.init(D)
        self.global_D = torch.zeros(D)
        self.custom = Customization()
        self.evicted: dict[str, int] = {}
        self.rejected: list[str] = []
        self.verdicts: tuple[Verdict, ...] = ()
        self.challenged: set[str] = set()
        self.noise = 0.05
        self.round = 0

    def starts(self) -> Tensor:
        """The models (N, D) from which the clients start, challenged or not."""
        starts_ND = self.global_D.repeat(len(self.names), 1)
        if self.custom.models is not None and self.custom.challenged:
            places = [self.names.index(name) for name in self.custom.challenged]
            starts_ND[places] = self.custom.models.block(list(self.custom.challenged.values()))
        return starts_ND

    def run(
        self,
        rounds: int,
        attack: Attack = lambda sent_ND: sent_ND,
        fraction: float = 1.0,
        summons: float = 1.0,
    ) -> None:
        """Averages over drawn clients that are not evicted; an attack crafts the uploads."""
        for _ in range(rounds):
            starts_ND = self.starts()
            noise_ND = self.noise * torch.randn(len(self.names), D, generator=self.draws)
            sent_ND = attack(self.curves_ND * (self.optima_ND - starts_ND) + noise_ND)
            present = [name for name in self.names if name not in self.evicted]
            count = drawn_count(len(present), fraction)
            awaited = self.custom.awaited if summons and count < len(present) else frozenset()
            chosen = summon(SEED, SEED, self.round, present, awaited, count, summons)
            there = [self.names.index(name) for name in chosen.clients]
            rows = Rows.of(
                sent_ND[there],
                ids=[self.names[i] for i in there],
                traces=Traces(sketched(sent_ND[there]), sketched(starts_ND[there])),
            )
            context = Context(
                round=self.round,
                seed=SEED,
                reference_D=self.global_D,
                selected=frozenset(self.names[i] for i in there),
                examined=frozenset(chosen.examined),
            )
            outcome = run_round(self.plan, rows, self.state, context)
            self.state, self.global_D = outcome.state, outcome.global_D
            self.custom = outcome.customization
            self.challenged |= set(self.custom.challenged)
            self.verdicts = outcome.verdicts
            for verdict in outcome.verdicts:
                if verdict.decision == "evicted":
                    self.evicted.setdefault(verdict.client, self.round)
                elif verdict.decision == "rejected":
                    self.rejected.append(verdict.client)
            self.round += 1


def colluders(count: int, craft: Callable[[Tensor], Tensor]) -> Attack:
    """The last clients all send one upload that is crafted from the others' uploads."""

    def attack(sent_ND: Tensor) -> Tensor:
        honest_BD = sent_ND[:-count]
        return torch.cat([honest_BD, craft(honest_BD).expand(count, -1)])

    return attack


def names(numbers: range) -> set[str]:
    return {f"c{i:02d}" for i in numbers}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_honest_clients_are_never_evicted_rejected_or_challenged(seed: int) -> None:
    federation = Federation(12, seed)
    federation.run(40)
    assert not federation.evicted and not federation.rejected and not federation.challenged


CRAFTED: dict[str, Callable[[Tensor], Tensor]] = {
    "ipm": lambda honest_BD: -0.5 * honest_BD.mean(0),
    "within the spread": lambda honest_BD: honest_BD.mean(0) - 0.8 * honest_BD.std(0),
    "always the same": lambda honest_BD: torch.linspace(-1, 1, D),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CRAFTED)
@pytest.mark.parametrize(("clients", "hostile"), [(14, 4), (11, 5)])
def test_only_colluders_with_identical_updates_are_evicted(
    name: str, clients: int, hostile: int
) -> None:
    federation = Federation(clients, seed=hostile)
    federation.run(20, colluders(hostile, CRAFTED[name]))
    assert federation.evicted.keys() == names(range(clients - hostile, clients))


@pytest.mark.slow
@pytest.mark.parametrize("target", [0, 3, 6])
def test_copiers_are_evicted_but_the_copied_client_is_not(target: int) -> None:
    federation = Federation(12, target)
    federation.run(24, colluders(5, lambda honest_BD: honest_BD[target]))
    assert federation.evicted.keys() == names(range(7, 12))


def share(hostile: int) -> Attack:
    """The last clients train, and each of them uploads the mean of their updates."""

    def attack(sent_ND: Tensor) -> Tensor:
        sent_ND[-hostile:] = sent_ND[-hostile:].mean(0)
        return sent_ND

    return attack


@pytest.mark.slow
@pytest.mark.parametrize(("clients", "hostile"), [(12, 3), (12, 5), (9, 2)])
def test_colluders_that_train_and_share_their_mean_are_evicted_soon(
    clients: int, hostile: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of their uploads answers its sender's challenge, but also those of the others."""
    federation = Federation(clients, seed=clients)
    federation.run(10, share(hostile))
    assert federation.evicted.keys() == names(range(clients - hostile, clients))
    monkeypatch.setattr("rampart_fl.shared.robust.evidence.groups.relays", lambda *_: {})
    blind = Federation(clients, seed=clients)
    blind.run(10, share(hostile))
    assert not blind.evicted, "their own answers say little"


@pytest.mark.slow
def test_eviction_does_not_wait_for_a_colluder_that_has_gone() -> None:
    federation = Federation(12, seed=12)
    federation.run(5, share(3))
    federation.evicted["c11"] = 5  # It takes part in no later round.
    federation.run(14, share(3))
    assert federation.evicted.keys() == names(range(9, 12))


def test_eviction_waits_for_clients_of_the_group_that_are_on_trial() -> None:
    detector = ChallengeDetector()
    guilty = TrialRecord(limit=9.0, wealth=(0.0,), trial=5, waited=1)
    other = TrialRecord(limit=9.0, wealth=(0.0,), trial=5)

    def decision(*group: TrialRecord) -> str:
        return detector._judge("a", guilty, None, 1.0, [], False, group).decision

    assert (decision(), decision(other)) == ("evicted", "rejected")
    other.waited = 1
    assert decision(other) == "evicted"
    other.waited, other.trial = 0, 0
    assert decision(other) == "evicted", "an acquitted client is not waited for"


@pytest.mark.parametrize(("group", "retried"), [(1, True), (2, False)])
def test_acquitted_clients_of_a_guilty_clients_group_are_tried_again(
    group: int, retried: bool
) -> None:
    """Colluders that were acquitted by chance do not stay behind."""
    federation = Federation(12, seed=12)
    federation.run(3, share(3))
    known, joined = from_state(split_state(federation.state)[KEY], 1)
    guilty, acquitted = known["c11"], known["c10"]
    guilty.relayed, guilty.compared, guilty.group = (1e6,) * 4, 9, 1
    acquitted.acquit(20)
    acquitted.group = group
    _, after = ChallengeDetector(sketch=SKETCH, blocks=BLOCKS).apply(
        Rows.of(torch.randn(12, D, generator=federation.draws), ids=federation.names),
        to_state(known, joined),
        Context(round=3, seed=SEED),
    )
    again, _ = from_state(after, 1)
    assert again["c11"].waited == 1
    assert (again["c10"].trial > 0, again["c10"].rest > 0) == (retried, not retried)


def test_client_that_relays_is_not_acquitted_and_its_copies_do_not_count() -> None:
    detector = ChallengeDetector()
    for relayed, acquitted in (((0.0,) * 4, True), ((20.0,) * 4, False)):
        one = TrialRecord(9.0, (0.0,), trial=10, answered=9, cleared=1e4, relayed=relayed)
        one.rounds, one.compared = 9, 9
        equal = detector._judge("a", one, 2.0, 2.0, [one], True, []).decision
        assert equal == ("accepted" if acquitted else "rejected")
        detector._bet(one, 2.0, 2.0, None)
        assert (one.rest > 0) == acquitted


@pytest.mark.slow
def test_evidence_from_relays_appears_in_the_verdict() -> None:
    federation, seen = Federation(12, seed=12, level=1e-9), set[str]()
    for _ in range(20):
        federation.run(1, share(3))
        seen |= {v.client for v in federation.verdicts if "answer challenges of others" in v.reason}
    assert seen == names(range(9, 12))


def test_identical_uploads_are_rejected_until_their_sender_has_answered() -> None:
    """From the first round on. The copied client's uploads count again after some answers."""
    federation = Federation(12, 1)
    federation.run(1, colluders(3, lambda honest_BD: honest_BD[0]))
    assert federation.rejected == ["c00", "c09", "c10", "c11"]
    federation.run(11, colluders(3, lambda honest_BD: honest_BD[0]))
    federation.rejected.clear()
    federation.run(5, colluders(3, lambda honest_BD: honest_BD[0]))
    assert set(federation.rejected) <= names(range(9, 12)), "c00 counts"


@pytest.mark.slow
def test_eviction_waits_for_evidence_on_senders_of_the_same_upload() -> None:
    """Otherwise the last colluder would remain, without another copy to compare it with."""
    together = Federation(12, 3, share=0.0)
    together.run(50, colluders(4, CRAFTED["ipm"]))
    at_once = Federation(12, 3, share=0.0, wait=0)
    at_once.run(40, colluders(4, CRAFTED["ipm"]))
    assert len(set(together.evicted.values())) < len(set(at_once.evicted.values()))


def test_observe_mode_challenges_no_client() -> None:
    federation = Federation(12, eviction=Eviction(mode="observe"))
    federation.run(10, colluders(4, CRAFTED["ipm"]))
    assert not federation.challenged


@pytest.mark.slow
def test_long_running_challenges_do_not_escalate() -> None:
    """Most clients are challenged for many rounds; the norms of their uploads stay bounded."""
    federation = Federation(10, 3, level=1e-30)
    federation.run(2, colluders(4, CRAFTED["ipm"]))
    known, _ = from_state(split_state(federation.state)[KEY], 1)
    before = max(one.length for one in known.values())
    federation.run(20, colluders(4, CRAFTED["ipm"]))
    assert federation.custom.challenged
    known, _ = from_state(split_state(federation.state)[KEY], 1)
    assert all(
        float(one.average.norm()) < 3 * before for one in known.values() if one.average is not None
    )


def test_identical_uploads_of_a_majority_start_no_trial() -> None:
    """Fewer than half collude, so a similar majority has similar data: no sign of an attack."""
    federation = Federation(12, 1)
    federation.run(10, colluders(7, CRAFTED["ipm"]))
    assert not federation.challenged and not federation.rejected
    federation.run(3, colluders(5, CRAFTED["ipm"]))
    assert federation.challenged >= names(range(7, 12))


def test_single_copy_starts_no_trial() -> None:
    """Two clients with similar data may send similar uploads once, and a trial costs accuracy."""
    federation = Federation(12, trial=3)
    for _ in range(4):
        federation.run(1, colluders(4, CRAFTED["ipm"]))
        federation.run(3)
    assert not federation.challenged
    federation.run(1, colluders(4, CRAFTED["ipm"]))
    federation.run(2)
    federation.run(1, colluders(4, CRAFTED["ipm"]))
    assert federation.challenged >= names(range(8, 12))


def test_trial_ends_if_no_further_copies_are_sent() -> None:
    federation = Federation(12, trial=3)
    federation.run(2, colluders(4, CRAFTED["ipm"]))
    assert federation.custom.challenged
    federation.run(3)
    assert not federation.custom.challenged


def rounds_with_challenges(rest: int) -> tuple[list[int], Federation]:
    """The rounds, out of 32, with challenges because two clients have the same data."""
    federation = Federation(12, 6, rest=rest)
    federation.noise = 0.005
    for held_ND in (federation.optima_ND, federation.curves_ND):
        held_ND[1] = held_ND[0]
    challenged = []
    for number in range(32):
        federation.run(1)
        challenged += [number] if federation.custom.challenged else []
    return challenged, federation


@pytest.mark.slow
def test_client_that_answers_is_acquitted_and_exempt_for_the_rest_period() -> None:
    challenged, federation = rounds_with_challenges(rest=20)
    assert not federation.evicted and not federation.rejected
    first, *later = (n for n in challenged if n - 1 not in challenged)
    last = next(n for n in range(first, 32) if n + 1 not in challenged)
    assert last - first < 10, "a few answers acquit both clients"
    assert later and min(later) - last >= 20, "then their models stay as they are"
    assert len(rounds_with_challenges(rest=0)[0]) > 2 * len(challenged)


def test_chance_acquits_a_copier_in_at_most_1_percent_of_trials() -> None:
    """In the worst case, a copy reaches the limit in two of five rounds; trials take 60 rounds."""
    draws, acquitted = torch.Generator().manual_seed(1), 0
    for good_T in (torch.rand(2000, 60, generator=draws) < 0.4).tolist():
        cleared, most = 0.0, 0.0
        for number, good in enumerate(good_T, start=1):
            cleared = ANSWERS.settled(cleared, number, ANSWERS.gain(good))
            most = max(most, evidence([cleared], number))
        acquitted += most > math.log(100)
    assert 0 < acquitted <= 20


def test_acquitted_client_can_be_put_on_trial_during_its_rest_period() -> None:
    one = TrialRecord(limit=9.0, wealth=(0.0,))
    one.acquit(20)
    assert not one.sighted(True, 10) and not one.trial, "copies do not count while it rests"
    one.try_for(50)
    assert (one.trial, one.rest) == (50, 0)
    one.sighted(True, 10)
    assert one.trial == 50, "a further copy does not shorten the trial"


@pytest.mark.slow
def test_verdicts_state_copies_trial_evidence_and_limit() -> None:
    rows = Rows.of(torch.cat([torch.eye(5, 50), torch.ones(2, 50)]))
    verdicts, state = ChallengeDetector().apply(rows, State(), Context())
    assert verdicts[0].reason == "sent no copy; evidence 0 of 8.99"
    assert verdicts[6].reason == "sent the same as another client; evidence 0 of 8.99"
    verdicts, _ = ChallengeDetector().apply(rows, state, Context(round=1))
    assert verdicts[6].reason == "on trial: sent the same as another client; evidence 0 of 8.99"
    federation = Federation(12, 2)
    federation.run(15, colluders(4, CRAFTED["ipm"]))
    known, joined = from_state(split_state(federation.state)[KEY], 1)
    assert joined == 12 and known.keys() >= names(range(8))


def test_state_round_trips_unchanged() -> None:
    federation = Federation(12, 4)
    federation.run(5, colluders(4, CRAFTED["ipm"]))
    state = split_state(federation.state)[KEY]
    again = to_state(*from_state(state, 1))
    assert again.ids == {name: tuple(ids) for name, ids in state.ids.items()}
    for name, tensor in state.tensors.items():
        torch.testing.assert_close(again.tensors[name], tensor)


def test_state_of_an_earlier_version_is_read() -> None:
    """It has no relays and no averages; the last uploads that it has instead are ignored."""
    federation = Federation(12, 4)
    federation.run(5, colluders(4, CRAFTED["ipm"]))
    state = split_state(federation.state)[KEY]
    tensors, ids = dict(state.tensors), dict(state.ids)
    for name in ("relayed", "compared", "group"):
        del tensors[name], ids[name]
    for name in ("upload", "shift"):
        tensors[name], ids[name] = tensors["average"], ids["average"]
    del tensors["average"], ids["average"]
    known, joined = from_state(State(tensors, ids), 1)
    now, _ = from_state(state, 1)
    for name, one in now.items():
        assert known[name].wealth == one.wealth and known[name].trial == one.trial
        assert (known[name].relayed, known[name].compared, known[name].group) == (NOTHING, 0, 0)
        assert known[name].average is None
    assert joined == 12


def test_number_of_controls_is_rounded_up_exactly() -> None:
    # In floating-point numbers, 7 * (87 / 21) is greater than 29.
    detector = ChallengeDetector(controls=7)
    known = {f"c{i:02d}": TrialRecord(limit=9.0, wealth=(0.0,)) for i in range(87)}
    assert len(detector._controls(known, 21, torch.Generator())) == 29


@pytest.mark.slow
def test_evicted_clients_are_forgotten() -> None:
    federation = Federation(12, 4)
    federation.run(20, colluders(4, CRAFTED["ipm"]))
    known, _ = from_state(split_state(federation.state)[KEY], 1)
    assert known.keys() == names(range(8))


def test_expected_share_below_the_tolerated_share_is_a_configuration_error() -> None:
    with pytest.raises(ConfigurationError, match="not above tolerated"):
        detectors.parse({"name": "challenge", "tolerated": 0.6, "expected": [0.9, 0.5]})


def test_zero_uploads_are_not_treated_as_copies() -> None:
    block = torch.zeros(6, 50)
    block[0, 0] = block[1, 1] = block[2, 2] = 1.0
    _, state = ChallengeDetector().apply(Rows.of(block), State(), Context())
    assert not any(trial.item() for trial in state.by_id("trial").values())


def judged(
    uploads_ND: Tensor, examined: str, rounds: int = 2
) -> tuple[Customization, tuple[Verdict, ...]]:
    """What the detector awaits and decides if clients send these uploads in two rounds."""
    plan = Plan.of("weighted_mean", [{"name": "challenge", "sketch": SKETCH}])
    state, ids = plan.init(D), [chr(ord("a") + i) for i in range(len(uploads_ND))]
    traces = Traces(sketched(uploads_ND), torch.zeros(len(ids), SKETCH))
    rows = Rows.of(uploads_ND, ids=ids, traces=traces)
    for number in range(rounds):
        context = Context(
            round=number,
            seed=SEED,
            reference_D=torch.zeros(D),
            selected=frozenset(ids),
            examined=frozenset(examined),
        )
        outcome = run_round(plan, rows, state, context)
        state = outcome.state
    return outcome.customization, outcome.verdicts


COPIES_ND = torch.randn(10, D, generator=torch.Generator().manual_seed(8))
COPIES_ND[6:] = COPIES_ND[5]


def test_a_client_is_awaited_from_its_first_copy_on() -> None:
    assert judged(COPIES_ND, "", rounds=1)[0].awaited == set("fghij")
    assert judged(COPIES_ND, "", rounds=1)[0].challenged == {}
    once, _ = judged(COPIES_ND, "", rounds=2)
    assert once.awaited == set("fghij") < set(once.challenged), "controls are not awaited"


def test_examined_copiers_do_not_count_towards_the_majority_that_sends_copies() -> None:
    """If most drawn clients send copies, copies prove nothing. Summoned clients are suspicious."""
    both_ND = COPIES_ND[2:]
    assert judged(both_ND, "")[0].awaited == set(), "five of eight clients send copies"
    assert judged(both_ND, "fgh")[0].awaited == set("defgh"), "two of the five drawn clients do"


def test_examined_copiers_do_not_change_what_counts_as_a_copy() -> None:
    """The distance below which uploads are copies depends on the drawn clients' distances."""
    near_ND = COPIES_ND[:6].clone()
    near_ND[1] = near_ND[0] + 0.01 * COPIES_ND[1]
    crowd_ND = torch.cat([near_ND, near_ND[5].expand(14, D)])
    crowd = "".join(chr(ord("a") + i) for i in range(6, 20))
    assert {"a", "b"} <= judged(crowd_ND, crowd)[0].awaited


def test_examined_copies_cannot_silence_the_client_that_they_copy() -> None:
    """The server leaves out equal uploads. A client whose upload does not count has no such say."""
    mimic_ND = torch.cat([COPIES_ND[:5], COPIES_ND[:1].expand(2, D)])

    def rejected(examined: str) -> set[str]:
        verdicts = judged(mimic_ND, examined, rounds=1)[1]
        return {verdict.client for verdict in verdicts if verdict.decision != "accepted"}

    assert rejected("") == set("afg")
    assert "a" not in rejected("fg")


def test_examined_copies_of_many_clients_cannot_blind_the_detector() -> None:
    """Each of three examined clients copies another one of five clients whose uploads count."""
    mimics_ND = torch.cat([COPIES_ND[:5], COPIES_ND[:3]])
    assert judged(mimics_ND, "")[0].awaited == set(), "six of eight clients send copies"
    assert judged(mimics_ND, "fgh")[0].awaited == set("abcfgh")


@pytest.mark.slow
def test_summoned_colluders_are_evicted_in_half_of_the_rounds_and_honest_clients_are_not() -> None:
    """A draw of half of the clients takes more rounds if nobody is examined."""

    def last_eviction(summons: float) -> int:
        federation = Federation(14, seed=3)
        while len(federation.evicted) < 4 and federation.round < 60:
            federation.run(1, colluders(4, CRAFTED["ipm"]), fraction=0.5, summons=summons)
        assert federation.evicted.keys() == names(range(10, 14))
        return federation.round

    assert last_eviction(1.0) < last_eviction(0.0)
