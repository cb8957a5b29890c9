"""The response detector: its objections, the resulting evidence, and no framed clients.

Legend: N clients, F colluders, D coordinates.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import NormalDist

import pytest
import torch
from torch import Tensor

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.experiment.eviction import Standing
from rampart_fl.shared.robust import Context, Rows, State, Verdict
from rampart_fl.shared.robust.customizers import Customization
from rampart_fl.shared.robust.detectors import detectors
from rampart_fl.shared.robust.detectors.response import ResponseDetector
from rampart_fl.shared.robust.evidence import suspects
from rampart_fl.shared.robust.evidence.answers import Answer
from rampart_fl.shared.robust.evidence.betting import limit
from rampart_fl.shared.robust.evidence.client_memory import (
    CALM,
    ClientMemory,
    DueChallenge,
    from_state,
    to_state,
)
from rampart_fl.shared.robust.evidence.objections import (
    CohortLimits,
    Upload,
    acceptable,
    agreements,
    follows_movement,
    objection_to,
)
from rampart_fl.shared.robust.evidence.responses import ClientAverages, Response, respond
from rampart_fl.shared.robust.evidence.spot_checks import SpotChecks
from rampart_fl.shared.robust.models import ModelBlock
from rampart_fl.shared.robust.sketch import Traces, sketch

SEED = 5
"""The server's seed."""
D = 400


@pytest.fixture(autouse=True)
def _few_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few coordinates need few blocks: each costs time in every round."""
    monkeypatch.setattr(suspects, "BLOCKS", 4)


def sketched(vectors_ND: Tensor) -> Tensor:
    """Sketches (N, K) of these vectors, which have at most K coordinates: their signed copies."""
    signs_D = sketch(torch.ones(D), 1024, SEED)[:D]
    return torch.nn.functional.pad(vectors_ND * signs_D, (0, 1024 - D))


def judge(
    uploads_ND: Tensor,
    starts_ND: Tensor,
    state: State,
    detector: ResponseDetector | None = None,
    fresh: Sequence[float] | None = None,
    ids: Sequence[str] | None = None,
    round_: int | None = None,
) -> tuple[dict[str, Verdict], State]:
    """The verdicts on uploads of clients that started from these models."""
    detector = detector or ResponseDetector()
    traces = Traces(sketched(uploads_ND), sketched(starts_ND))
    rows = Rows.of(
        uploads_ND,
        ids=ids or [f"c{i:02d}" for i in range(len(uploads_ND))],
        metadata={"fresh": fresh or [1.0] * len(uploads_ND)},
        traces=traces,
    )
    context = Context(round=round_of(state) if round_ is None else round_)
    verdicts, after = detector.apply(rows, state, context)
    return {verdict.client: verdict for verdict in verdicts}, after


def round_of(state: State) -> int:
    """The round in which the state's challenges are due."""
    return int(state.tensors.get("asked", torch.tensor([-1]))[-1]) + 1


def challenged(
    uploads_ND: Tensor,
    global_D: Tensor,
    state: State,
    round_: int,
    detector: ResponseDetector | None = None,
) -> tuple[dict[str, Tensor], State]:
    """The challenged models, by client; the changes combine these uploads."""
    detector = detector or ResponseDetector()
    rows, context = Rows.of(uploads_ND), Context(round=round_, seed=SEED)
    custom, after = detector.challenge(rows, Customization(), global_D, state, context)
    if custom.models is None:
        return {}, after
    return {c: custom.models.model(name) for c, name in custom.challenged.items()}, after


class Quadratics:
    """A federation of clients that each descend their own parabola.

    A client's local training covers a share a_i of the way to its optimum θ_i, plus noise. Optima
    lie far apart, and shares, which stand for sample counts, span two orders of magnitude.
    """

    def __init__(self, clients: int, seed: int = 0, noise: float = 0.02) -> None:
        self.draws = torch.Generator().manual_seed(seed)
        self.optima_ND = 5 * torch.randn(clients, D, generator=self.draws)
        self.shares_N = 0.9 * 100 ** -torch.rand(clients, generator=self.draws)
        self.global_D = torch.randn(D, generator=self.draws)
        self.noise = noise
        self.state, self.evicted, self.rounds = State(), dict[str, int](), 0
        self.rejected: list[str] = []
        self.suspects: set[str] = set()
        self.challenges: dict[str, Tensor] = {}
        self.ids = [f"c{i:02d}" for i in range(clients)]
        self.detector = ResponseDetector()

    @property
    def known(self) -> dict[str, ClientMemory]:
        """What the detector remembers about each client."""
        return from_state(self.state, memories=2, shares=3)

    @property
    def starts_ND(self) -> Tensor:
        """The model that every client starts from."""
        return torch.stack([self.challenges.get(client, self.global_D) for client in self.ids])

    def honest(self) -> Tensor:
        """Every client's honest upload."""
        way_ND = self.optima_ND - self.starts_ND
        noise_ND = self.noise * torch.randn(way_ND.shape, generator=self.draws)
        return self.shares_N[:, None] * way_ND + noise_ND

    def run(
        self, rounds: int, attack: Callable[[Tensor], Tensor] = lambda sent_ND: sent_ND
    ) -> None:
        """Rounds of plain averaging over the accepted clients."""
        for _ in range(rounds):
            sent_ND = attack(self.honest())
            verdicts, self.state = judge(
                sent_ND, self.starts_ND, self.state, self.detector, round_=self.rounds
            )
            for client, verdict in verdicts.items():
                if verdict.decision == "evicted":
                    self.evicted.setdefault(client, self.rounds)
                elif verdict.decision == "rejected":
                    self.rejected.append(client)
            kept = [v.decision == "accepted" for v in verdicts.values()]
            if any(kept):
                # As in a federation, a challenge does not move its client's row.
                self.global_D = self.global_D + sent_ND[kept].mean(0)
                self.challenges, self.state = challenged(
                    sent_ND[kept], self.global_D, self.state, self.rounds, self.detector
                )
                self.suspects |= self.challenges.keys()  # By default, only suspects are challenged.
            self.rounds += 1


def names(numbers: range) -> set[str]:
    return {f"c{i:02d}" for i in numbers}


def test_response_matches_hand_computed_values() -> None:
    """Δw = (2, 0), Δu = (-1, 1): -<Δu, Δw> = 2, |Δu| = √2, |Δw| = 2."""
    start, before = torch.tensor([2.0, 0.0]), torch.tensor([3.0, 0.0])
    response = respond(torch.tensor([2.0, 1.0]), start, before, torch.zeros(2))
    assert response is not None
    assert response.correlation == pytest.approx(1 / math.sqrt(2))
    assert response.strength == pytest.approx(0.5)
    assert respond(before, start, before, start) is None  # the model did not move


def test_reversed_updates_reverse_the_sign_of_the_correlation() -> None:
    here, there, theta = torch.zeros(D), torch.randn(D), torch.randn(D)
    honest = respond(0.3 * (theta - there), there, 0.3 * (theta - here), here)
    flipped = respond(-0.3 * (theta - there), there, -0.3 * (theta - here), here)
    assert honest is not None and flipped is not None
    assert honest.correlation == pytest.approx(1) and flipped.correlation == pytest.approx(-1)
    assert honest.strength == pytest.approx(0.3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_clients_with_unrelated_data_are_never_rejected_or_evicted(seed: int) -> None:
    federation = Quadratics(20, seed)
    federation.run(40)
    assert not federation.evicted and not federation.rejected


@pytest.mark.slow
@pytest.mark.parametrize(("clients", "seed"), [(8, 9), (10, 0), (10, 3), (12, 4), (14, 11)])
def test_small_federations_with_two_groups_of_data_sizes_evict_nobody(
    clients: int, seed: int
) -> None:
    """In these federations, a few clients happen to have far more data than all others."""
    honest = Quadratics(clients, seed)
    honest.run(20)
    assert honest.evicted == {}


@pytest.mark.slow
@pytest.mark.parametrize(("ratio", "most"), [(15, 1), (40, 1), (60, 20)])
def test_a_few_clients_with_far_more_data_are_never_evicted(ratio: float, most: int) -> None:
    """Uploads of up to five times the limit are accepted from the second upload on."""
    hospitals = Quadratics(12)
    hospitals.shares_N = torch.tensor([0.8 / ratio] * 9 + [0.8] * 3)
    hospitals.run(20)
    assert hospitals.evicted == {}
    assert Counter(hospitals.rejected) == dict.fromkeys(("c09", "c10", "c11"), most)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", ["noise", "constant", "reversal"])
def test_long_noise_and_constants_are_evicted_and_lone_reversals_rejected(
    kind: str, seed: int
) -> None:
    """Noise and a constant vector are evicted; a lone long reversal is only rejected."""
    federation = Quadratics(12, seed)
    federation.shares_N = torch.full((12,), 0.3)
    drawn_D = torch.nn.functional.normalize(torch.randn(D, generator=federation.draws), dim=0)
    length = 20 * float(federation.honest().norm(dim=1).median())

    def attack(sent_ND: Tensor) -> Tensor:
        noise_D = torch.nn.functional.normalize(torch.randn(D, generator=federation.draws), dim=0)
        sent = {"noise": length * noise_D, "constant": length * drawn_D}
        return torch.stack([sent.get(kind, -20 * sent_ND[4:].mean(0)), *sent_ND[1:]])

    federation.run(20, attack)
    assert set(federation.evicted) <= {"c00"}
    assert bool(federation.evicted) == (kind != "reversal")
    assert federation.rejected.count("c00") >= 6


def test_objections_to_unchallenged_uploads_match_hand_computed_cases() -> None:
    usual = CohortLimits(1.0, 10.0, (True,), turned=-0.1, overshoot=2.0, stretched=3.0, chance=0.15)
    training = Response(correlation=0.4, strength=0.8)
    for times, answer, objection, accepted in (
        (9.0, None, "", True),
        (11.0, None, "", False),
        (math.inf, None, "too long", False),
        (49.0, training, "", True),
        (51.0, training, "", False),
        (11.0, Response(correlation=0.0, strength=0.0), "", True),
        (11.0, Response(correlation=0.4, strength=0.8, steady=False), "too long", False),
        (11.0, Response(correlation=0.4, strength=2.1), "too long", False),
        (11.0, Response(correlation=-0.05, strength=-2.1), "too long", False),
        (4.0, Response(correlation=0.4, strength=2.1), "overshoots", True),
        (4.0, Response(correlation=0.2, strength=2.1), "", True),
        (2.0, Response(correlation=0.4, strength=2.1), "", True),
        (11.0, Response(correlation=-0.2, strength=-0.5), "turned", False),
    ):
        upload = Upload(times, (answer,), "usual", passive=True)
        assert objection_to(upload, answer, True, usual) == objection, upload
        assert acceptable(upload, [objection], usual) is accepted, upload


def test_objections_to_challenged_uploads_match_hand_computed_cases() -> None:
    """A clear answer makes an upload plausible, but never longer than the limit."""
    usual = CohortLimits(1.0, 10.0, (True,), turned=-0.1, overshoot=2.0, stretched=3.0, chance=0.15)
    training, noise = Response(0.4, 0.8), Response(0.0, 0.0, steady=False)
    pushes_ = Response(-0.5, -0.5)
    highest, middle = Answer(0.3, 0.5, 19, 20), Answer(0.0, 0.1, 9, 20)
    for times, response, answer, objection, accepted, pushed in (
        (11.0, training, middle, "", False, False),
        (9.0, training, highest, "", True, False),
        (11.0, training, highest, "", False, False),
        (11.0, noise, highest, "", False, False),
        (11.0, noise, middle, "too long", False, False),
        (11.0, noise, Answer(0.3, 2.1, 19, 20), "too long", False, False),
        (math.inf, None, None, "too long", False, False),
        (2.0, pushes_, highest, "", True, True),
        (2.0, pushes_, middle, "", True, True),
        (2.0, training, Answer(-0.3, -0.5, 3, 20), "turned", True, False),
        (2.0, training, Answer(-0.3, -0.5, 4, 20), "", True, False),
        (4.0, Response(0.4, 2.1), Answer(0.3, 2.1, 19, 20), "overshoots", True, False),
        (4.0, Response(0.4, 2.1), Answer(0.3, 1.9, 17, 20), "", True, False),
    ):
        upload = Upload(times, (response,), "challenged", False, agrees=True, answer=answer)
        assert objection_to(upload, response, False, usual) == objection, upload
        assert acceptable(upload, [objection], usual, suspected=True) is accepted, upload
        assert follows_movement(upload, usual) is pushed, upload


def test_long_turned_uploads_are_accepted_if_they_agree_with_others() -> None:
    usual = CohortLimits(1.0, 10.0, (True,), turned=-0.1, overshoot=2.0, stretched=3.0, chance=0.15)
    escaping = Response(correlation=-0.6, strength=-2.4)
    for times, answer, start, objection, accepted in (
        (49.0, escaping, "usual", "turned", True),
        (51.0, escaping, "usual", "turned", False),
        (11.0, escaping, "challenged", "turned", False),
        (11.0, escaping, "refused", "turned", False),
        (11.0, Response(correlation=0.4, strength=2.1), "usual", "too long", False),
        (11.0, Response(correlation=-0.6, strength=-2.4, steady=False), "usual", "too long", True),
        (11.0, None, "usual", "", True),
    ):
        upload = Upload(times, (answer,), start, passive=True, agrees=True)
        assert objection_to(upload, answer, True, usual) == objection, upload
        assert acceptable(upload, [objection], usual) is accepted, upload
        assert not acceptable(upload, [objection], usual, suspected=True), upload


def test_upload_agrees_if_it_points_in_the_majority_direction() -> None:
    """Five clients share the direction e_9. One long upload follows it, and one reverses it."""
    sent_ND = torch.eye(D)[:5] + torch.eye(D)[9]
    long_ND = 50 * torch.stack([torch.eye(D)[9], -torch.eye(D)[9], torch.eye(D)[20]])
    uploads_ND = torch.cat([sent_ND, long_ND, torch.full((1, D), torch.inf)])
    cosines = agreements(sketched(uploads_ND), [True] * 5 + [False] * 4)
    assert cosines[:5] == pytest.approx([0.5] * 5, rel=1e-5)
    assert cosines[5:8] == pytest.approx([0.5**0.5, -(0.5**0.5), 0.0], rel=1e-5)
    assert not cosines[8] > 0.05, "an upload that is not finite agrees with nobody"
    assert agreements(sketched(sent_ND[:1]), [True]) == [0.0], "nor does a lone upload"


def test_minority_cannot_choose_the_majority_direction() -> None:
    """Six honest clients share nothing; five colluders send one vector, and one agrees with it."""
    uploads_ND = torch.cat([torch.eye(D)[:6], torch.eye(D)[10].expand(6, -1)])
    cosines = agreements(sketched(uploads_ND), [True] * 11 + [False])
    assert cosines[11] == pytest.approx(0, abs=1e-6)


class Plateau(Quadratics):
    """Three clients with long uploads, and a plateau.

    While the model's first coordinate is between 1 and 60, the uploads of these three clients move
    it further, and are 40 times as long as those of the nine others. Below 1, they are 8 times as
    long. Above 60, all clients train alike.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(12, seed, noise=0.02)
        self.shares_N = torch.full((12,), 0.005)
        self.optima_ND[:, 0] = 400.0
        self.global_D[0] = 0.0

    def honest(self) -> Tensor:
        sent_ND = super().honest()
        usual = float(sent_ND[:9].norm(dim=1).median())
        if self.global_D[0] > 60:
            return sent_ND
        for place in range(9, 12):
            wide = 1 + 30 * float(torch.rand(1, generator=self.draws))
            noise_D = torch.randn(D, generator=self.draws) / D**0.5
            further = 40.0 if self.global_D[0] > 1 else 8.0
            sent_ND[place] = usual * (0.1 * wide * noise_D)
            sent_ND[place, 0] += usual * further
        return sent_ND


@pytest.mark.parametrize("seed", range(3))
def test_honest_clients_that_leave_a_plateau_are_never_rejected(seed: int) -> None:
    federation = Plateau(seed)
    federation.run(12)
    assert not federation.evicted
    assert not federation.rejected


def test_answer_matches_hand_computed_values() -> None:
    """u = (3, 4, 7), e_2 is known: r = (3, 4, 0); answers -3, -4, 4 and 0 to unit vectors."""
    asked_JK = torch.tensor([[2.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, -3.0, 0.0], [4.0, -3.0, 0.0]])
    earlier_AK = torch.tensor([[0.0, 0.0, 2.0], [0.0, 0.0, 2.0]])
    answer = Answer.of(torch.tensor([3.0, 4.0, 7.0]), earlier_AK, asked_JK)
    assert answer.correlation == pytest.approx(-0.6)
    assert answer.strength == pytest.approx(-1.5)
    assert (answer.rank, answer.count) == (2, 4)
    assert (answer.chance, answer.height) == (2 / 4, 3 / 4)
    same = Answer.of(torch.tensor([0.0, 0.0, 2.0]), earlier_AK, asked_JK)
    assert (same.correlation, same.rank) == (0.0, 4), "ties count in the client's favour"
    first = Answer.of(torch.tensor([3.0, 4.0, 7.0]), torch.zeros(2, 3), asked_JK)
    assert first.correlation == pytest.approx(-3 / 74**0.5), "nothing is known"


def test_answer_rank_matches_an_independent_computation() -> None:
    draws = torch.Generator().manual_seed(4)
    for _ in range(20):
        upload_K, earlier_AK = torch.randn(6, generator=draws), torch.randn(2, 6, generator=draws)
        asked_JK = torch.randn(20, 6, generator=draws)
        weights_A = torch.linalg.lstsq(earlier_AK.T, upload_K[:, None]).solution[:, 0]
        new_K = upload_K - weights_A @ earlier_AK
        pulls = [
            -sum(float(d) * float(c) for d, c in zip(row, new_K, strict=True))
            / math.sqrt(sum(float(d) ** 2 for d in row))
            for row in asked_JK
        ]
        answer = Answer.of(upload_K, earlier_AK, asked_JK)
        assert answer.rank == sorted(pulls).index(pulls[0]) + 1
        assert answer.correlation == pytest.approx(pulls[0] / float(new_K.norm()), rel=1e-4)
        assert answer.strength == pytest.approx(pulls[0] / float(asked_JK[0].norm()), rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("dimensions", [2, 300])
def test_uploads_that_ignore_their_challenge_get_objections_at_chance_rate(dimensions: int) -> None:
    """Even if challenges span few directions, so that correlations are high by chance."""
    draws = torch.Generator().manual_seed(8)
    spans_DK = torch.randn(dimensions, 64, generator=draws)
    low = dict.fromkeys((0.05, 0.15), 0)
    for _ in range(2_000):
        asked_JK = torch.randn(20, dimensions, generator=draws) @ spans_DK
        answer = Answer.of(spans_DK[0], spans_DK[1:2], asked_JK)
        for limit_ in low:
            low[limit_] += answer.chance <= limit_
    for limit_, count in low.items():  # Three standard deviations on either side.
        assert abs(count / 2_000 - limit_) < 3 * math.sqrt(limit_ * (1 - limit_) / 2_000)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_only_sign_flippers_are_evicted_within_20_rounds(seed: int) -> None:
    federation, signs = Quadratics(12, seed), torch.ones(12, 1)
    federation.shares_N[8:] = 0.2  # A client that hardly trains sends noise, whatever its sign.
    signs[8:] = -1
    federation.run(20, lambda sent_ND: signs * sent_ND)
    assert federation.evicted.keys() == names(range(8, 12))


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.2, 0.5, 0.8, 20.0])
@pytest.mark.parametrize(("clients", "colluders"), [(12, 5), (11, 5)])
def test_colluding_minority_gets_no_honest_client_evicted(
    epsilon: float, clients: int, colluders: int
) -> None:
    """Inner-product manipulation by identical colluders that know every update, at the bound."""
    federation = Quadratics(clients, colluders)

    def ipm(sent_ND: Tensor) -> Tensor:
        crafted_D = -epsilon * sent_ND[:-colluders].mean(0)
        return torch.cat([sent_ND[:-colluders], crafted_D.expand(colluders, -1)])

    federation.run(20, ipm)
    assert federation.evicted.keys() <= names(range(clients - colluders, clients))


@pytest.mark.slow
@pytest.mark.parametrize("target", [0, 3, 6])
def test_copies_of_an_honest_client_get_nobody_evicted(target: int) -> None:
    """Whichever client is copied. The documentation says that copies are not detected."""
    federation = Quadratics(12, target)

    def mimic(sent_ND: Tensor) -> Tensor:
        return torch.cat([sent_ND[:7], sent_ND[target].expand(5, -1)])

    federation.run(20, mimic)
    assert not federation.evicted


@pytest.mark.slow
@pytest.mark.parametrize("far", [1e4, 1e6, 1e12])
def test_noise_of_any_norm_is_rejected_immediately_and_evicted_later(far: float) -> None:
    federation = Quadratics(12, 1)

    def noise(sent_ND: Tensor) -> Tensor:
        return torch.cat([sent_ND[:8], far * torch.randn(4, D, generator=federation.draws)])

    federation.run(1, noise)
    assert set(federation.rejected) == names(range(8, 12))
    federation.run(14, noise)
    assert federation.evicted.keys() == names(range(8, 12))


def wander(memory: float) -> dict[str, Verdict]:
    """Verdicts after 40 rounds in which the model wanders and uploads are noisy; c05 flips."""
    draws, state, verdicts = torch.Generator().manual_seed(3), State(), dict[str, Verdict]()
    theta_ND, here_D = torch.randn(6, D, generator=draws), torch.zeros(D)
    for _ in range(40):
        here_D = here_D + 0.1 * torch.randn(D, generator=draws)
        noise_ND = 0.25 * torch.randn(6, D, generator=draws)
        sent_ND = 0.3 * (theta_ND - here_D) + noise_ND
        sent_ND[5] = -sent_ND[5]
        detector = ResponseDetector(memories=(memory,), challenges=False)
        verdicts, state = judge(sent_ND, here_D.expand(6, -1), state, detector)
    return verdicts


@pytest.mark.parametrize("share", [0.0, 0.1])
def test_spot_checks_find_sign_flippers_that_noise_hides(share: float) -> None:
    """The model hardly moves, so only challenges show which clients push instead of pulling."""
    federation, signs = Quadratics(12, seed=2, noise=0.05), torch.ones(12, 1)
    federation.optima_ND = 0.05 * federation.optima_ND
    federation.global_D, federation.shares_N = torch.ones(D), torch.full((12,), 0.05)
    federation.detector = ResponseDetector(spot_checks=share)
    signs[9:] = -1
    federation.run(20, lambda sent_ND: signs * sent_ND)
    assert federation.evicted.keys() == (names(range(9, 12)) if share else set())


@pytest.mark.slow
def test_averages_detect_sign_flips_that_noise_hides_in_single_rounds() -> None:
    """The model has moved further since the average than since the last round."""
    averaged, last = wander(0.8), wander(0)
    for verdicts, detected in ((averaged, True), (last, False)):
        assert (verdicts["c05"].evidence > verdicts["c05"].threshold) is detected
    for verdicts in (averaged, last):
        assert all(verdicts[client].evidence < 0 for client in names(range(5)))


def test_exponential_averages_match_an_independent_sum() -> None:
    past = ClientAverages(wealth=(0.0,))
    uploads_TK = torch.randn(7, 5, generator=torch.Generator().manual_seed(1)).double()
    for t, upload_K in enumerate(uploads_TK):
        past.average(upload_K, 2 * upload_K, memory=0.7)
        weights_T = torch.tensor([0.7**t, *(0.3 * 0.7 ** (t - s) for s in range(1, t + 1))])
        expected_K = weights_T.double() @ uploads_TK[: t + 1]
        assert past.averages is not None
        torch.testing.assert_close(past.averages[0], expected_K, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(past.averages[1], 2 * expected_K, rtol=1e-6, atol=1e-6)
    before = past.averages
    past.average(torch.full((5,), torch.inf), torch.zeros(5), memory=0.7)
    assert past.averages is before, "an upload that is not finite would stay in them for ever"


def test_state_of_a_former_version_initializes_every_memory() -> None:
    """It has one past and one wealth per client; a federation may be upgraded in mid-run."""
    ids = dict.fromkeys(("wealth", "rounds", "limit", "longest"), ("a", "b"))
    tensors = {name: torch.tensor([1.0, 2.0], dtype=torch.float64) for name in ids}
    ids |= dict.fromkeys(("correlation", "upload", "start"), ("b",))
    tensors |= {"correlation": torch.tensor([0.5]), "upload": torch.ones(1, 64)}
    tensors |= {"start": torch.zeros(1, 64), "heard": torch.tensor(2)}
    known = from_state(State(tensors, ids), memories=2, shares=3)
    assert [past.wealth for past in known["a"].pasts] == [(1.0, 1.0, 1.0)] * 2
    assert [past.averages for past in known["a"].pasts] == [None, None]
    assert [past.correlation for past in known["b"].pasts] == [0.5, 0.5]
    assert (known["b"].length, known["b"].due) == (2.0, ())
    assert (known["b"].evidence, known["b"].trials, known["b"].boldness) == (0.0, 0, 1.0)
    ids["due"], tensors["due"] = ("b",), torch.ones(1, 2, 64)
    challenged = from_state(State(tensors, ids), memories=2, shares=3)
    assert challenged["b"].due == (), "without decoys, no answer can be judged"
    tensors["decoys"] = torch.full((19, 64), 3.0)
    (due,) = from_state(State(tensors, ids), memories=2, shares=3)["b"].due
    assert due.starts(torch.ones(64)) and not due.starts(torch.zeros(64))
    assert due.asked_JK.tolist() == [[1.0] * 64, *[[3.0] * 64] * 19]
    for past in known["b"].pasts:
        assert past.averages is not None and float(past.averages[0].sum()) == 64


def test_state_round_trips_unchanged() -> None:
    torch.manual_seed(1)
    averages = (torch.randn(64).double(), torch.randn(64).double())
    decoys_JK, later_JK = torch.randn(2, 19, 64).double()

    def due(round_: int, decoys_JK: Tensor) -> DueChallenge:
        start_K, challenge_K = torch.randn(2, 64).double()
        return DueChallenge(round_, start_K, challenge_K, decoys_JK)

    known = {
        "a": ClientMemory(
            9.0,
            (ClientAverages((0.1, 0.2)), ClientAverages((0.3, 0.4))),
            rounds=3,
            longest=1.5,
            length=0.5,
            due=(due(3, decoys_JK), due(4, later_JK)),
            answered=(0.7, 0.1),
            exceeded=(0.0, 2.0),
            trials=2,
            boldness=1.5,
            checks=SpotChecks(-0.25, 3, 0.5, 7),
        ),
        "b": ClientMemory(
            8.0,
            (
                ClientAverages((0.5, 0.6), 0.25, averages),
                ClientAverages((0.7, 0.8), None, averages),
            ),
            answered=(0.0, 0.0),
            exceeded=(0.0, 0.0),
            due=(due(4, later_JK),),
        ),
        "c": ClientMemory(
            8.0, (ClientAverages((0.5, 0.6)), ClientAverages((0.7, 0.8))), (0.0, 0.0), (0.0, 0.0)
        ),
    }
    state = to_state(known, 2)
    assert state.tensors["decoys"].shape == (2, 19, 64)
    again = from_state(state, memories=2, shares=2)
    for client, one in known.items():
        back = again[client]
        assert (one.limit, one.rounds) == (back.limit, back.rounds)
        assert (one.answered, one.exceeded) == (back.answered, back.exceeded)
        assert (one.trials, one.boldness) == (back.trials, back.boldness)
        assert (one.longest, one.length) == (back.longest, back.length)
        assert one.checks == back.checks
        for original, kept in zip(one.due, back.due, strict=True):
            assert original.round == kept.round
            for part in ("start_K", "challenge_K", "decoys_JK"):
                torch.testing.assert_close(
                    getattr(original, part), getattr(kept, part), rtol=1e-6, atol=1e-7
                )
        for past, kept in zip(one.pasts, again[client].pasts, strict=True):
            assert (past.wealth, past.correlation) == (kept.wealth, kept.correlation)
            assert (past.averages is None) == (kept.averages is None)
            for left, right in zip(past.averages or (), kept.averages or (), strict=True):
                torch.testing.assert_close(left, right, rtol=1e-6, atol=1e-7)


def course(objected: Sequence[bool]) -> list[Verdict]:
    """The verdicts on a client that pulls back like five others, except where `objected`."""
    here_D, last_D = torch.zeros(D), torch.zeros(D)
    verdicts, state = list[Verdict](), State()
    step_D, theta_ND = torch.ones(D), torch.arange(6.0)[:, None].expand(6, D)
    for turn, hostile in enumerate([False, *objected]):
        here_D = here_D + step_D * (0.5 + (turn % 3))
        sent_ND = 0.3 * (theta_ND - here_D)
        if hostile:  # Moves along with the model, from wherever it was before.
            sent_ND[5] = last_D + step_D
        last_D = sent_ND[5].clone()
        detector = ResponseDetector(memories=(0,), tolerated=0.2, expected=(0.6,), challenges=False)
        judged, state = judge(sent_ND, here_D.expand(6, -1), state, detector)
        verdicts.append(judged["c05"])
    return verdicts[1:]


def test_evidence_from_objections_matches_an_independent_sum() -> None:
    objected = [True, False, True, True, False, True, True, True]
    for t, verdict in enumerate(course(objected), start=2):
        # The first round has no response: an objection has probability 0.02 and is bet at 0.06.
        gains = [0.94 / 0.98, *(3.0 if one else 0.5 for one in objected[: t - 1])]
        total = 1 / (t + 1) + sum(math.prod(gains[j:]) / ((j + 1) * (j + 2)) for j in range(t))
        assert verdict.evidence == pytest.approx(math.log(total))
        assert verdict.threshold == pytest.approx(math.log(7 / 1e-3))


def test_verdicts_state_evidence_limit_level_and_response() -> None:
    *_, verdict = course([True] * 12)
    assert verdict.decision == "evicted"
    assert verdict.reason.startswith(f"evidence {verdict.evidence:.3g} exceeds 8.85 after ")
    assert "(false-eviction level 1 in 1,000); response -" in verdict.reason
    first, *_ = course([True])
    assert first.decision == "accepted"
    assert "is below -0.15: it pushes where others pull back" in first.reason


def test_evidence_stays_near_the_limit_if_the_eviction_is_not_enforced() -> None:
    verdicts = course([True] * 30 + [False] * 12)
    assert verdicts[29].evidence < verdicts[29].threshold + 3.1
    assert verdicts[-1].decision == "accepted"


@pytest.mark.slow
def test_clients_that_scale_their_updates_are_evicted() -> None:
    """Uploads of six times an honest update; the response is six times as strong as usual."""
    federation, factors = Quadratics(12, 3), torch.ones(12, 1)
    federation.shares_N = torch.full((12,), 0.5)
    factors[9:] = 6
    federation.run(20, lambda sent_ND: factors * sent_ND)
    assert federation.evicted.keys() == names(range(9, 12))


@pytest.mark.slow
def test_lone_client_with_more_data_is_never_rejected_or_evicted() -> None:
    federation = Quadratics(12, 4)
    federation.shares_N = torch.full((12,), 0.05)
    federation.shares_N[5] = 0.45
    federation.run(40)
    assert not federation.evicted and not federation.rejected


def test_rounds_in_which_no_client_pulls_back_yield_no_suspicion() -> None:
    """If the loss has negative curvature, all responses are turned."""
    state, here_D = State(), torch.zeros(D)
    for _ in range(20):
        here_D = here_D + torch.randn(D)
        verdicts, state = judge(
            here_D * torch.linspace(0.1, 1, 8)[:, None], here_D.expand(8, -1), state
        )
        assert {v.decision for v in verdicts.values()} == {"accepted"}
    known = from_state(state, memories=2, shares=3)
    assert max(one.suspicion for one in known.values()) < 0


class Ignores(Quadratics):
    """c00's upload follows the model's movement, and does not depend on c00's challenge."""

    def honest(self) -> Tensor:
        sent_ND = super().honest()
        sent_ND[0] = 0.05 * self.global_D + 0.002 * torch.randn(D, generator=self.draws)
        return sent_ND


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_suspect_that_ignores_its_challenges_is_not_evicted(seed: int) -> None:
    """Its answers are turned only by chance, although the model moves further than challenges."""
    federation = Ignores(12, seed, noise=0.0)
    federation.shares_N = torch.full((12,), 0.05)
    federation.detector = ResponseDetector(strength=0.5)
    federation.run(60)
    assert "c00" in federation.suspects
    assert not federation.evicted


class Saddle(Quadratics):
    """c00's loss has negative curvature along the direction in which the model moves.

    The model moves along a line, and c00's upload grows by a tenth of the distance. Changes in any
    other direction c00 undoes like everyone else.
    """

    def honest(self) -> Tensor:
        sent_ND = super().honest()
        along_D = self.line_D / self.line_D.norm()
        moved = (self.starts_ND[0] - self.begun_D) @ along_D
        across_D = sent_ND[0] - (sent_ND[0] @ along_D) * along_D
        sent_ND[0] = across_D + (1 + 0.1 * moved) * along_D
        return sent_ND

    def __init__(self, clients: int, seed: int) -> None:
        super().__init__(clients, seed, noise=0.0)
        self.shares_N = torch.full((clients,), 0.05)
        self.begun_D = self.global_D.clone()
        self.line_D = self.optima_ND[1:].mean(0) - self.global_D


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_an_honest_client_on_a_saddle_is_acquitted_by_its_challenges(seed: int) -> None:
    federation = Saddle(12, seed)
    federation.run(40)
    assert federation.suspects == {"c00"}
    assert not federation.evicted
    assert len(federation.rejected) <= 2, "its answers to challenges are honest"


@pytest.mark.slow
def test_honest_client_on_a_saddle_is_evicted_without_challenges() -> None:
    """The reason for the challenges: observed responses alone do not prove anything."""
    federation, state, evicted = Saddle(12, 0), State(), set[str]()
    detector = ResponseDetector(challenges=False)
    for _ in range(40):
        sent_ND = federation.honest()
        verdicts, state = judge(sent_ND, federation.starts_ND, state, detector)
        evicted |= {c for c, verdict in verdicts.items() if verdict.decision == "evicted"}
        federation.global_D = federation.global_D + sent_ND.mean(0)
    assert evicted == {"c00"}
    unchanged = challenged(sent_ND, federation.global_D, state, 40, detector)
    assert unchanged == ({}, state)


def until_suspected(federation: Quadratics, flipped: int) -> Tensor:
    """Runs until the client that flips signs is a suspect; returns the signs."""
    signs = torch.ones(len(federation.ids), 1)
    signs[flipped] = -1
    while federation.ids[flipped] not in federation.suspects:
        federation.run(1, lambda sent_ND: signs * sent_ND)
    return signs


def test_challenge_grows_from_8_median_lengths_while_answers_are_unclear() -> None:
    federation = Quadratics(10, 2)
    signs = until_suspected(federation, 4)
    for boldness in (1.0, 2.0):
        assert federation.challenges.keys() == {"c04"}
        shift_D = federation.challenges["c04"] - federation.global_D
        middle = sorted(one.length for one in federation.known.values())[4:6]
        assert federation.known["c04"].boldness == boldness
        expected = boldness * 8 * sum(middle) / 2
        assert float(shift_D.norm()) == pytest.approx(expected, rel=1e-4)
        assert federation.known["c04"].due and not federation.known["c05"].due
        federation.run(1, lambda sent_ND: signs * sent_ND)


def test_challenges_shrink_if_answers_are_clear_or_uploads_become_too_long() -> None:
    federation = Quadratics(10, 2)
    signs = until_suspected(federation, 4)
    for factor, boldness in ((1.0, 2.0), (-1.0, 8.0), (-1e6, 2.0)):
        known = federation.known
        known["c04"].boldness = 4.0
        sent_ND = federation.honest() * torch.where(signs < 0, factor, 1.0)
        _, after = judge(sent_ND, federation.starts_ND, to_state(known, 10))
        assert from_state(after, memories=2, shares=3)["c04"].boldness == boldness, factor


def test_suspect_with_non_finite_uploads_is_evicted() -> None:
    """Such uploads are dropped before detectors see them, and count as too long."""
    federation = Quadratics(10, 2)
    until_suspected(federation, 4)
    kept = [client for client in federation.ids if client != "c04"]
    for rounds in range(1, 16):
        sent_ND = federation.honest()[[int(client[1:]) for client in kept]]
        rows = Rows.of(
            sent_ND,
            ids=kept,
            traces=Traces(sketched(sent_ND), sketched(federation.global_D.expand(9, -1))),
        )
        rows = replace(rows, dropped=("c04",))
        context = Context(round=round_of(federation.state))
        verdicts, state = ResponseDetector().apply(rows, federation.state, context)
        (verdict,) = [one for one in verdicts if one.client == "c04"]
        assert from_state(state, memories=2, shares=3)["c04"].trials == rounds
        if verdict.decision == "evicted":
            break
        federation.global_D = federation.global_D + sent_ND.mean(0)
        _, federation.state = challenged(sent_ND, federation.global_D, state, rounds)
    assert verdict.decision == "evicted" and 5 < rounds < 12


def test_challenges_rarely_make_honest_uploads_too_long() -> None:
    """Training diverges above some challenge length. Below this length, answers are unclear."""
    for longest in (0.2, 0.3, 0.7, 0.9, 1.0, 1.3, 2.0, 3.0, 4.0, 7.0, 8.0):
        boldness, calm, far = 1.0, CALM, list[bool]()
        for _ in range(1000):
            far.append(boldness > longest)
            boldness, calm = suspects.next_boldness(boldness, calm, clear=False, far=far[-1])
        assert sum(far) <= 1000 / 7 + 3, longest
    # An attacker that sent one long upload soon gets long challenges again.
    boldness, calm = suspects.next_boldness(1.0, CALM, clear=False, far=True)
    for _ in range(9):
        boldness, calm = suspects.next_boldness(boldness, calm, clear=False, far=False)
    assert boldness == suspects.BOLDEST
    shortest = suspects.next_boldness(suspects.SHORTEST, CALM, clear=False, far=True)
    assert shortest == (suspects.SHORTEST, 0)


@pytest.mark.parametrize("rows", [torch.zeros(6, D), torch.ones(6, D), torch.eye(D)[:2]])
def test_rows_without_usable_differences_lead_to_no_challenge(rows: Tensor) -> None:
    federation = Quadratics(10, 2)
    until_suspected(federation, 4)
    unchanged, state = challenged(rows, federation.global_D, federation.state, 9)
    assert unchanged == {}
    (due,) = from_state(state, memories=2, shares=3)["c04"].due
    assert due.round < 9


def test_mostly_zero_rows_still_yield_nonzero_challenges() -> None:
    federation = Quadratics(10, 2)
    until_suspected(federation, 4)
    rows_ND = torch.cat([torch.zeros(7, D), federation.honest()[:3]])
    models, _ = challenged(rows_ND, federation.global_D, federation.state, 9)
    assert float((models["c04"] - federation.global_D).norm()) > 1


def all_suspected(federation: Quadratics, rounds: int) -> Quadratics:
    """The federation after these rounds, in the first of which every client is a suspect."""
    federation.run(3)
    known = federation.known
    for one in known.values():
        for past in one.pasts:
            past.wealth = tuple(100.0 for _ in past.wealth)
    sent_ND = federation.honest()
    federation.challenges, federation.state = challenged(
        sent_ND, federation.global_D, to_state(known, len(known)), 3
    )
    assert len(federation.challenges) == len(federation.ids)
    federation.run(rounds)
    return federation


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["many sizes", "few large", "one large", "plateau", "ignores"])
@pytest.mark.parametrize("seed", range(2))
def test_honest_suspects_of_any_size_are_acquitted(kind: str, seed: int) -> None:
    federation: Quadratics = Plateau(seed) if kind == "plateau" else Quadratics(12, seed)
    if kind == "few large":
        federation.shares_N = torch.tensor([0.02] * 9 + [0.8] * 3)
    if kind == "one large":
        federation.shares_N = torch.tensor([0.8] + [0.02] * 11)
    if kind == "ignores":
        federation = Ignores(12, seed, noise=0.0)
    all_suspected(federation, 40)
    assert not federation.evicted
    assert not [client for client, one in federation.known.items() if one.suspected]


def test_only_answers_to_challenges_count_against_a_suspect() -> None:
    """A round without a challenge yields no evidence; an upload that dodges one is rejected."""
    federation = Quadratics(10, 2)
    signs = until_suspected(federation, 4)
    assert federation.known["c04"].evidence == 0
    suspicion = federation.known["c04"].suspicion
    dodged = federation.global_D.expand(10, -1)
    verdicts, state = judge(signs * federation.honest(), dodged, federation.state)
    assert verdicts["c04"].decision == "rejected"
    assert "did not start from the model that challenges the client" in verdicts["c04"].reason
    # Nobody issued another challenge: nothing is due, and nothing counts.
    for further, decision in ((1.0, "rejected"), (-1.0, "accepted")):
        start_ND = dodged + 1
        sent_ND = federation.shares_N[:, None] * (federation.optima_ND - start_ND)
        sent_ND[4] = sent_ND[4] * further * signs[4]
        verdicts, state = judge(sent_ND, start_ND, state)
        assert verdicts["c04"].decision == decision
        assert verdicts["c04"].evidence == 0
    after = from_state(state, memories=2, shares=3)["c04"]
    assert (after.suspicion, after.trials) == (pytest.approx(suspicion), 0)
    answered, _ = judge(signs * federation.honest(), federation.starts_ND, federation.state)
    assert answered["c04"].evidence > 0
    assert "to its challenge is among the lowest 15% of its" in answered["c04"].reason
    assert "; suspect: suspicion " in answered["c04"].reason
    assert answered["c04"].reason.endswith(" of 9.31 after 1 challenge")


def test_evidence_from_answers_matches_an_independent_sum() -> None:
    """The mean of six e-processes: three bet on the answers' ranks, three on long uploads."""
    federation = Quadratics(10, 2)
    signs = until_suspected(federation, 4)
    ranks, total, normal = list[int](), 0.0, NormalDist()
    for _ in range(3):
        before = federation.known["c04"]
        (due,) = before.due
        sent_ND = signs * federation.honest()
        answer = before.answer(sketched(sent_ND)[4], due.asked_JK)
        assert answer is not None and answer.count == 40
        ranks.append(answer.rank)
        federation.run(1, lambda _, sent_ND=sent_ND: sent_ND)
    assert federation.known["c04"].calm == CALM + 3, "no upload was too long"
    for share in (0.35, 0.6, 0.9):
        shift = normal.inv_cdf(share) - normal.inv_cdf(0.15)
        heights = [math.exp(-shift * normal.inv_cdf((2 * k - 1) / 80)) for k in range(1, 41)]
        low = [40 * heights[rank - 1] / sum(heights) for rank in ranks]
        for gains in (low, [(1 - share) / 0.85] * 3):
            total += sum(math.prod(gains[j:]) / ((j + 1) * (j + 2)) for j in range(3)) / 6
    assert federation.known["c04"].evidence == pytest.approx(math.log(total + 1 / 4))


def test_observe_mode_gathers_evidence_from_every_round() -> None:
    """The server challenges nobody. Verdicts name clients to evict, but have no effect."""
    federation = Quadratics(10, 2)
    signs = until_suspected(federation, 4)
    standing, state, verdict = Standing(10, 10, mode="observe"), federation.state, None
    federation.challenges = {}
    for _ in range(8):
        federation.global_D = federation.global_D + federation.honest().mean(0)
        traces = Traces(
            sketched(signs * federation.honest()), sketched(federation.global_D.expand(10, -1))
        )
        rows = Rows.of(signs * federation.honest(), ids=federation.ids, traces=traces)
        verdicts, state = ResponseDetector().apply(rows, state, Context(standing=standing))
        verdict = verdicts[4]
    assert verdict is not None and verdict.decision == "evicted"
    assert not from_state(state, memories=2, shares=3)["c04"].due


def test_suspicion_from_observe_mode_alone_evicts_no_client() -> None:
    """Suspicion from rounds without challenges is no evidence once the mode is `evict`."""
    federation = Quadratics(10, 2)
    federation.run(3)
    known = federation.known
    for past in known["c03"].pasts:
        past.wealth = tuple(1e6 for _ in past.wealth)
    federation.challenges, federation.state = challenged(
        federation.honest(), federation.global_D, to_state(known, 10), 3
    )
    assert federation.challenges.keys() == {"c03"}
    verdicts, _ = judge(federation.honest(), federation.starts_ND, federation.state)
    assert (verdicts["c03"].decision, verdicts["c03"].evidence < 0) == ("accepted", True)
    signs, rounds = torch.ones(10, 1), 0
    signs[3] = -1
    while "c03" not in federation.evicted and rounds < 20:
        federation.run(1, lambda sent_ND: signs * sent_ND)
        rounds += 1
    assert 4 < rounds < 20


def test_challenge_by_another_detector_is_reused() -> None:
    federation = Quadratics(10, 2)
    until_suspected(federation, 4)
    uploads_ND, global_D = federation.honest(), federation.global_D
    other = Customization(
        models=ModelBlock(("challenge:c04",), (global_D + 1)[None]),
        challenged={"c04": "challenge:c04"},
    )
    custom, state = ResponseDetector().challenge(
        Rows.of(uploads_ND), other, global_D, federation.state, Context(round=9, seed=SEED)
    )
    assert custom.challenged == other.challenged and custom.models is other.models
    due = from_state(state, memories=2, shares=3)["c04"].due[-1]
    torch.testing.assert_close(due.start_K, sketch(global_D + 1, 1024, SEED).double())
    change_K = sketch(torch.ones(D), 1024, SEED).double()
    torch.testing.assert_close(due.challenge_K, change_K, rtol=0, atol=1e-5)


def test_stale_row_is_not_judged_again() -> None:
    federation = Quadratics(6, 5)
    federation.run(3)
    before = federation.state
    old = [1.0] * 5 + [0.0]
    starts_ND = federation.global_D.expand(6, -1)
    verdicts, after = judge(-federation.honest(), starts_ND, before, fresh=old)
    assert verdicts["c05"].reason == "judged before"
    for name in ("wealth", "rounds", "upload"):
        assert torch.equal(before.by_id(name)["c05"], after.by_id(name)["c05"])


@pytest.mark.slow
def test_only_attackers_are_evicted_under_partial_participation() -> None:
    """A third of the clients takes part in each round; half of a draw may be hostile.

    Each client is compared with its own past uploads, however old they are.
    """
    federation, signs = Quadratics(18, 6), torch.ones(18, 1)
    signs[13:] = -1
    own = dict.fromkeys(names(range(18)), 0)
    for round_ in range(60):
        drawn = sorted(torch.randperm(18, generator=federation.draws)[:6].tolist())
        drawn = [i for i in drawn if f"c{i:02d}" not in federation.evicted]
        sent_ND = (signs * federation.honest())[drawn]
        ids = [f"c{i:02d}" for i in drawn]
        starts_ND = federation.starts_ND[drawn]
        verdicts, federation.state = judge(sent_ND, starts_ND, federation.state, ids=ids)
        for client, verdict in verdicts.items():
            own[client] += 1
            if verdict.decision == "evicted":
                federation.evicted[client] = own[client]
        kept = [v.decision == "accepted" for v in verdicts.values()]
        if any(kept):
            federation.global_D = federation.global_D + sent_ND[kept].mean(0)
            federation.challenges, federation.state = challenged(
                sent_ND[kept], federation.global_D, federation.state, round_
            )
    assert federation.evicted.keys() == names(range(13, 18))
    assert sorted(federation.evicted.values())[2] <= 15


def test_forgotten_client_restarts_with_a_newcomers_share_of_the_level() -> None:
    federation = Quadratics(6, 7)
    federation.run(2)
    state = ResponseDetector().forget(federation.state, {"c02"})
    starts_ND = federation.global_D.expand(6, -1)
    verdicts, after = judge(federation.honest(), starts_ND, state)
    # The shares 0.35, 0.6 and 0.9 of 0.15, as 0.02 scales them: no objection in the first round.
    shares = [0.02 * share / 0.15 for share in (0.35, 0.6, 0.9)]
    kept = [0.5 * (1 - share) / 0.98 for share in shares]
    known = from_state(after, memories=2, shares=3)
    assert known["c02"].suspicion == pytest.approx(math.log(sum(kept) / 3 + 0.5))
    assert verdicts["c02"].evidence == 0
    assert verdicts["c02"].threshold == pytest.approx(limit(1e-3, before=6, together=1))
    assert verdicts["c03"].threshold == pytest.approx(limit(1e-3, before=0, together=6))


def test_claimed_sample_counts_do_not_affect_verdicts() -> None:
    federation = Quadratics(8, 8)
    federation.run(4)
    sent_ND, starts_ND = federation.honest(), federation.global_D.expand(8, -1)
    traces = Traces(sketched(sent_ND), sketched(starts_ND))
    verdicts = [
        ResponseDetector().apply(
            Rows.of(sent_ND, weights=weights, traces=traces), federation.state, Context()
        )[0]
        for weights in ([1.0] * 8, [10_000.0] + [1.0] * 7)
    ]
    assert verdicts[0] == verdicts[1]


@pytest.mark.parametrize(
    "wrong",
    [
        {"tolerated": 0.35},
        {"expected": []},
        {"memories": [1.0]},
        {"tolerated_long": 0.3},
        {"long": 1},
        {"level": 0},
        {"turned": 0.2},
        {"sketch": 1},
        {"strength": 0},
        {"decoys": 7},
        {"tolerated": 0.02},
    ],
)
def test_invalid_parameters_are_configuration_errors(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError):
        detectors.build("response", **wrong)


def suspected(federation: Quadratics, client: str) -> State:
    """The federation's state, in which only this client is a suspect."""
    known = federation.known
    for past in known[client].pasts:
        past.wealth = tuple(100.0 for _ in past.wealth)
    assert [c for c, one in known.items() if one.suspected] == [client]
    return to_state(known, len(known))


@pytest.mark.slow
def test_challenges_and_decoys_have_the_same_distribution() -> None:
    """An upload that depends on neither has one of the lowest answers in 15 % of the draws."""
    federation = Quadratics(10, 2)
    federation.run(3)
    known = from_state(suspected(federation, "c04"), memories=2, shares=3)
    rows = Rows.of(federation.honest(), ids=federation.ids)
    upload_K = sketched(federation.honest()[4:5])[0]  # It lies where challenges are likely to lie.
    low, count = 0, 400
    for round_ in range(count):
        known["c04"].due = ()
        suspects.challenge(
            known,
            rows,
            Customization(),
            federation.global_D,
            "response",
            Context(round=round_, seed=SEED),
            8.0,
            19,
            1024,
        )
        (due,) = known["c04"].due
        answer = Answer.of(upload_K, torch.zeros(1, 1024), due.asked_JK)
        low += answer.chance <= 0.15
    assert abs(low / count - 0.15) < 3 * math.sqrt(0.15 * 0.85 / count)


def test_challenged_upload_that_follows_the_model_is_rejected_without_evidence() -> None:
    """Its answer to the challenge is not low, but its response to the whole movement is turned."""
    federation = Quadratics(10, 2, noise=0.0)
    federation.run(4)
    state = suspected(federation, "c04")
    before_D = federation.global_D
    sent_ND = federation.honest()
    _, state = judge(sent_ND, federation.starts_ND, state)
    moved_D = before_D + 100 * torch.nn.functional.normalize(torch.ones(D), dim=0)
    weak = ResponseDetector(strength=0.01)
    federation.global_D = moved_D
    federation.challenges, state = challenged(sent_ND, moved_D, state, 4, weak)
    assert federation.challenges.keys() == {"c04"}
    challenge_D = federation.challenges["c04"] - moved_D
    after_ND = federation.honest()
    after_ND[4] = sent_ND[4] + 0.5 * (moved_D - before_D) - 0.5 * challenge_D
    verdicts, _ = judge(after_ND, federation.starts_ND, state, weak)
    assert verdicts["c04"].evidence < 0
    assert verdicts["c04"].decision == "rejected"


@pytest.mark.parametrize(
    ("sign", "decision", "reason"),
    [(1, "accepted", "response -1.00 to the model's movement"), (-1, "rejected", "upload is 13.7")],
)
def test_long_turned_uploads_are_rejected_unless_they_agree_with_others(
    sign: int, decision: str, reason: str
) -> None:
    """All move towards 2 e_0. The first upload is 20 times as long, turned, and maybe reversed."""
    draws, along_D, state = torch.Generator().manual_seed(2), torch.eye(D)[0], State()
    for here, length in ((0, 5.0), (sign, 21.0)):
        start_D = here * along_D
        noise_ND = 0.3 * torch.randn(8, D, generator=draws) / D**0.5
        sent_ND = 0.5 * (2 * along_D - start_D) + noise_ND
        sent_ND[0] = sign * length * along_D
        verdicts, state = judge(sent_ND, start_D.expand(8, -1), state)
    assert verdicts["c00"].decision == decision
    assert verdicts["c00"].reason.startswith(reason)


@pytest.mark.parametrize(("late", "start"), [(1, "challenged"), (8, "challenged"), (9, "usual")])
def test_slow_suspect_is_judged_by_the_challenge_it_started_from(late: int, start: str) -> None:
    """Under the buffered policy, an upload may arrive up to eight rounds after its challenge."""
    federation = Quadratics(10, 2)
    until_suspected(federation, 4)
    detector, state, first = federation.detector, federation.state, federation.rounds
    others = [place for place in range(10) if place != 4]
    slow_D = federation.starts_ND[4]
    for later in range(1, late + 1):
        starts_ND = federation.starts_ND
        starts_ND[4] = slow_D
        sent_ND = federation.shares_N[:, None] * (federation.optima_ND - starts_ND)
        some = range(10) if later == late else others
        ids = [federation.ids[place] for place in some]
        traces = Traces(sketched(sent_ND[some]), sketched(starts_ND[some]))
        ages = [float(later - 1 if place == 4 else 0) for place in some]
        rows = Rows.of(sent_ND[some], ids=ids, traces=traces, metadata={"age": ages})
        context = Context(round=first + later - 1, seed=SEED, buffered=True)
        verdicts, state = detector.apply(rows, state, context)
        federation.global_D = federation.global_D + sent_ND[others].mean(0)
        rows = Rows.of(sent_ND[others])
        _, state = detector.challenge(rows, Customization(), federation.global_D, state, context)
    (verdict,) = [one for one in verdicts if one.client == "c04"]
    assert from_state(state, memories=2, shares=3)["c04"].trials == (start == "challenged")
    assert verdict.decision == "accepted", verdict.reason


def test_challenge_is_due_for_one_round_only_under_the_sync_policy() -> None:
    federation = Quadratics(10, 2)
    until_suspected(federation, 4)
    kept = [place for place in range(10) if place != 4]
    sent_ND = federation.honest()[kept]
    ids = [federation.ids[place] for place in kept]
    rows = Rows.of(
        sent_ND, ids=ids, traces=Traces(sketched(sent_ND), sketched(federation.starts_ND[kept]))
    )
    for buffered in (False, True):
        context = Context(round=federation.rounds, buffered=buffered)
        _, state = ResponseDetector().apply(rows, federation.state, context)
        assert len(from_state(state, memories=2, shares=3)["c04"].due) == buffered


def test_suspect_that_started_before_its_challenge_is_not_rejected() -> None:
    """Under the buffered policy, a client may still train when it is first challenged."""
    federation = Quadratics(10, 2)
    until_suspected(federation, 4)
    global_ND = federation.global_D.expand(10, -1)
    sent_ND = federation.shares_N[:, None] * (federation.optima_ND - global_ND)
    for age, decision in ((0.0, "rejected"), (1.0, "accepted")):
        rows = Rows.of(
            sent_ND,
            ids=federation.ids,
            traces=Traces(sketched(sent_ND), sketched(global_ND)),
            metadata={"age": [age if place == 4 else 0.0 for place in range(10)]},
        )
        context = Context(round=federation.rounds, buffered=True)
        verdicts, _ = ResponseDetector().apply(rows, federation.state, context)
        assert verdicts[4].decision == decision, verdicts[4].reason
