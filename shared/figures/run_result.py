"""The metrics of a run, as the commands print them with --json and store them in result.json.

Each type describes the JSON object of a group of metrics; `RunResult` describes the whole object.
Accuracies and rates are fractions from 0 to 1. An optional metric without a value is left out of
the JSON object; any other metric without a value is None.
"""

from typing import Literal, TypedDict

ModelKind = Literal["customized", "local", "personalized"]
"""The kinds of model that a client measures: the received model, the same model after local
training, and the model that the client keeps for itself."""
AccuracySource = Literal["last", "mean5", "best", "end"]
"""The source of a final accuracy: the last round, the mean of the last five rounds, the best round,
or an evaluation at the end. In the evaluation at the end, every client evaluates the models that
the last aggregation produced."""


class Accuracies(TypedDict):
    """The accuracy over the test samples of all honest clients, for each kind of model.

    `accuracy` is the accuracy of the customized model or of the personalized model, whichever is
    higher.
    """

    accuracy: float | None
    accuracy_customized: float | None
    accuracy_local: float | None
    accuracy_personalized: float | None


class Errors(TypedDict, total=False):
    """The mean squared error of the honest clients, for each kind of model; only for estimation.

    `error` is the error of the received model or of the personalized model, whichever is smaller.
    """

    error: float | None
    error_customized: float | None
    error_local: float | None
    error_personalized: float | None


class ServerAccuracy(TypedDict, total=False):
    """The global model's accuracy on the server's test samples; only if the server has samples."""

    accuracy_server: float


class AttackSuccess(TypedDict, total=False):
    """The success rate of a backdoor for each kind of model; only if a backdoor was measured."""

    attack_success_customized: float
    attack_success_local: float
    attack_success_personalized: float


class LargestGap(TypedDict, total=False):
    """The largest decrease of an honest client's training loss during local training."""

    largest_gap: float


class Detection(TypedDict):
    """How well the evictions match the attackers.

    `dacc` is the fraction of clients that are judged correctly. `fpr` is the fraction of honest
    clients that are evicted. `fnr` is the fraction of hostile clients that are not evicted.
    """

    dacc: float | None
    fpr: float | None
    fnr: float | None


class FinalFigures(Errors, Accuracies, AttackSuccess, LargestGap, Detection, ServerAccuracy):
    """The final metrics of a run; see `rampart_fl.shared.figures.final.final_figures`.

    `rounds_to_accuracy` maps each target accuracy to the number of rounds until the target was
    first reached. `attack_success` is measured on the same model as `accuracy`.
    """

    rounds_to_accuracy: dict[str, int | None]
    attack_success: float | None
    evicted: list[str]


class Decisions(TypedDict):
    """For each side: the number of client-rounds with each decision, and the silenced fraction.

    The sides are "honest" and "hostile"; see `rampart_fl.shared.figures.final.decisions`.
    """

    decisions: dict[str, dict[str, int]]
    silenced: dict[str, float | None]


class Traffic(TypedDict):
    """Bytes that a client receives (`down`) and sends (`up`) per round, on average."""

    down: float | None
    up: float | None


class Costs(TypedDict):
    """The traffic, and the seconds per round that each step takes."""

    bytes_per_client: Traffic
    seconds_per_round: dict[str, float]


class VoteFigures(TypedDict, total=False):
    """The metrics of a vote; see `rampart_fl.shared.figures.votes`.

    `certified[m]` is the fraction of test samples that are predicted correctly whatever m hostile
    clients do.
    """

    certified: list[float]
    attack_success_vote: float


class RunResult(FinalFigures, Decisions, VoteFigures, Costs):
    """The result of a run that has ended; `seconds` is the wall time."""

    experiment: str
    experiment_digest: str
    rounds: int
    failed_rounds: int
    seconds: float


class SimulationSummary(RunResult):
    """The result of `rampart simulate`.

    `models_digest` identifies the final models by their numbers; see
    `rampart_fl.shared.simulation.federation.models_digest`.
    """

    models_digest: str


class UpSummary(RunResult):
    """The result of `rampart up`.

    `blobs_digest` identifies the final models by their blobs; it is None if no round published a
    model. `records` is the run's folder.
    """

    blobs_digest: str | None
    records: str


class DetectionIfAttacked(TypedDict, total=False):
    """The metrics of `Detection`; only if the experiment has attackers."""

    dacc: float | None
    fpr: float | None
    fnr: float | None


class RunFigures(Accuracies, Errors, DetectionIfAttacked):
    """The metrics of a run so far; see `rampart_fl.shared.figures.comparison.run_figures`.

    `bytes` is the traffic of the whole run. `seconds` is None if the run has not started.
    """

    experiment: str
    experiment_digest: str
    clients: int
    rounds: int
    failed_rounds: int
    evicted: list[str]
    bytes_per_client: Traffic
    bytes: int
    seconds: float | None
