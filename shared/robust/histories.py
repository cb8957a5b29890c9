"""Counts the rows that a worker and a plan's stages hold in a round, and store after the round."""

from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.robust.engine import Plan
from rampart_fl.shared.robust.evidence.challenges import Challenger
from rampart_fl.shared.rounding import ceil_div


def blocks_held(plan: Plan) -> int:
    """The largest number of blocks of rows that a worker holds at the same time.

    A round has one block of rows, and a second block if uploads are not calibrated. If newcomers
    are probed, the worker also holds the blocks of the previous round, because it mixes models for
    newcomers from these blocks.
    """
    return (1 if plan.calibrate else 2) * (2 if plan.customizer.probes else 1)


def challenges_clients(plan: Plan) -> bool:
    """Whether a detector challenges clients.

    >>> without = {"name": "response", "challenges": False}
    >>> challenges_clients(Plan.of("median", ["response"]))
    True
    >>> challenges_clients(Plan.of("median", [without]))
    False
    """
    stages = (stage for stage in plan.detectors if isinstance(stage, Challenger))
    return any(getattr(stage, "challenges", True) for stage in stages)


def most_rows(plan: Plan, experiment: Experiment) -> int:
    """The largest number of rows in a round, if at most `most_clients` clients join.

    If a detector challenges clients, the server may summon clients in addition to the drawn ones.

    >>> small = Experiment.load("digits-partial")
    >>> most_rows(Plan.of("median", ["challenge"]), small), most_rows(Plan.of("median"), small)
    (20, 10)
    """
    return experiment.most_rows + (experiment.most_summoned if challenges_clients(plan) else 0)


def challenged_controls(plan: Plan, clients: int, known: int) -> int:
    """The usual number of clients that a round challenges only for comparison.

    A detector draws these clients from all clients. It draws enough clients that a few of them take
    part in the next round.

    Args:
        plan: the stages of a round.
        clients: number of clients in a round.
        known: number of all clients.

    >>> challenged_controls(Plan.of("median", ["challenge"]), clients=10, known=100)
    50
    """
    stages = [stage for stage in plan.detectors if isinstance(stage, Challenger)]
    controls = max((getattr(stage, "controls", 0) for stage in stages), default=0)
    return min(known, ceil_div(controls * known, max(1, clients)))


def history_rows(plan: Plan, clients: int) -> dict[str, int]:
    """For each stage, the largest size of its history during a round, in rows of d coordinates.

    Args:
        plan: the stages of a round.
        clients: the number of different clients that may take part over all rounds. If `clients` is
            0, the result includes only the models of groups. The number of groups does not depend
            on the number of clients.
    Returns:
        The number of rows, keyed by the stage's name; stages that hold no rows are left out.

    >>> history_rows(Plan.of("foolsgold", ["cross_round"]), clients=10)
    {'foolsgold': 20, 'cross_round': 30}
    >>> history_rows(Plan.of("median", customizer={"name": "flcert", "groups": 4}), clients=10)
    {'flcert': 8}
    """
    rows = dict[str, int]()
    for stage in (*plan.pipeline.stages, *plan.detectors, plan.customizer):
        if held := stage.history_rows(clients):
            rows[stage.name] = rows.get(stage.name, 0) + held
    return rows


def stored_rows(plan: Plan, clients: int) -> int:
    """The largest number of rows of d coordinates in the state that a round stores.

    The result does not include the models of clusters and groups, because they are stored as
    customized models.

    Args:
        plan: the stages of a round.
        clients: the number of different clients that may take part over all rounds.

    >>> stored_rows(Plan.of("foolsgold", ["cross_round"]), clients=10)
    20
    >>> stored_rows(Plan.of("median", customizer={"name": "flcert", "groups": 4}), clients=10)
    0
    """
    stages, customizer = (*plan.pipeline.stages, *plan.detectors), plan.customizer
    rows = sum(clients * stage.remembers + stage.kept_vectors for stage in stages)
    # The history of a customizer contains two versions of each row: an old one and a new one.
    rows += max(0, customizer.history_rows(clients) // 2 - customizer.models_of(clients))
    return rows + bool(plan.step.momentum)
