"""Checks that the parts of an experiment fit together, before the experiment runs.

A member is a part that an experiment names, such as its rule or its data set. `CONSTRAINTS` is the
table of all constraints between members. The class of a member declares the constraints within this
member, such as the bounds of a parameter.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from rampart_fl.shared.built_experiment import BuiltExperiment, build_experiment
from rampart_fl.shared.constraint import Constraint
from rampart_fl.shared.errors import refusal
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.families import plugins
from rampart_fl.shared.model_fit import misfits

if TYPE_CHECKING:
    from rampart_fl.shared.robust.base import Detector
    from rampart_fl.shared.robust.context import Need
    from rampart_fl.shared.robust.engine import Plan


def _stages_without_samples(built: BuiltExperiment, need: "Need") -> list[str]:
    """Names of stages that declare `need` although the experiment has no samples for it."""
    server = built.experiment.server
    named = server.root if need == "server_update" else server.public
    return [] if named is not None else [s for n, s in built.plan.needs().items() if n == need]


def _sample_mismatch(built: BuiltExperiment, table: str) -> list[str]:
    """An error message if samples of `server.<table>` do not fit the model; otherwise empty."""
    from rampart_fl.shared.learning.data.server_data import require_fit

    held = getattr(built.experiment.server, table)
    labels = table in ("root", "test") or "labels" in built.plan.needs()
    data = built.experiment.data
    return [] if held is None else refusal(require_fit, held.dataset, held.size, data, labels)


def _unfit_start(built: BuiltExperiment) -> list[str]:
    """An error message if the starting model's file is missing or does not fit; otherwise empty."""
    from rampart_fl.shared.learning.network.starting_model import read_start

    start = built.experiment.start
    if start is None or start.file is None:
        return []
    return refusal(lambda: read_start(start, built.spec))


def _unfit_backdoors(built: BuiltExperiment) -> list[str]:
    """Error messages about backdoors that do not fit the samples or the classes."""
    from rampart_fl.shared.attacks.triggers import unfit

    return unfit(built.experiment, built.dataset.shape, built.dataset.classes)


def _challenge_conflicts(detectors: Iterable["Detector"]) -> Iterable[str]:
    """Settings that must change before `response` and `challenge` can share challenges."""
    from rampart_fl.shared.robust.detectors.challenge import ChallengeDetector
    from rampart_fl.shared.robust.detectors.response import ResponseDetector
    from rampart_fl.shared.robust.evidence.suspects import BLOCKS

    chosen = list(detectors)
    for response in (one for one in chosen if isinstance(one, ResponseDetector)):
        for challenge in (one for one in chosen if isinstance(one, ChallengeDetector)):
            if response.challenges and challenge.sketch != response.sketch:
                yield f"sketch = {response.sketch} for both detectors, not {challenge.sketch}"
            if response.challenges and challenge.blocks != BLOCKS:
                yield f"blocks = {BLOCKS} for challenge, not {challenge.blocks}"


def _detectors_sharing_a_bound(built: BuiltExperiment) -> list[str]:
    """Names of all detectors if isolated groups share a bound on barred clients; otherwise empty.

    In the mode `reject`, nobody is barred. In the mode `observe`, an operator may switch to a mode
    that bars clients.
    """
    plan = built.plan
    shared = plan.eviction.bounded and plan.eviction.mode != "reject"
    return [d.name for d in plan.detectors if built.customizer.isolates and shared]


@dataclass(frozen=True)
class _Stages:
    """A key of the cache; plans with equal settings and equal stage classes have equal keys."""

    settings: str
    kinds: tuple[type, ...]
    plan: "Plan" = field(compare=False)


@lru_cache(maxsize=1024)
def _unrunnable(stages: _Stages, rows: int) -> list[str]:
    """An error message if the stages cannot run on this many rows; otherwise empty.

    The result is cached, because the experiments of a sweep often share their stages.
    """
    return refusal(stages.plan.check_rows, rows)


def _too_few_rows(built: BuiltExperiment) -> list[str]:
    """An error message if round 0 always has too few rows for a stage; otherwise empty.

    Under the buffered policy, a failed round adds no rows to the next one, so no round succeeds.
    """
    plan, experiment = built.plan, built.experiment
    kinds = (*plan.pipeline.stages, *plan.detectors, plan.customizer)
    stages = _Stages(experiment.server.model_dump_json(), tuple(map(type, kinds)), plan)
    return _unrunnable(stages, experiment.closing_rows)


def _without_common_model(built: BuiltExperiment) -> list[str]:
    """If clients have no common model, the given settings that assume one; otherwise empty."""
    from rampart_fl.shared.robust.rules.performance_aware import PerformanceAware

    if not built.personalizer.simulated_only:
        return []
    server, training = built.experiment.server, built.experiment.training
    unfit = {
        "server.detectors": bool(server.detectors),
        "server.customizer": server.customizer != {"name": "global_model"},
        "server.learning_rate": server.learning_rate != 1,
        "server.momentum": server.momentum != 0,
        "server.test": server.test is not None,
        "fraction": built.experiment.fraction != 1,
        "policy": built.experiment.policy != "sync",
        "training.momentum": training.momentum != 0,
        "training.objective": bool(training.objective),
        "training.privacy": training.privacy is not None,
        "training.output_noise": training.output_noise != 0,
        "training settings of a data attack, such as its learning_rate": any(
            attack.checked_training(training) != training for attack in built.data_attacks
        ),
        "performance_aware": isinstance(built.plan.pipeline.rule, PerformanceAware),
        "a model with running statistics": bool(built.spec.statistics),
    }
    return [name for name, given in unfit.items() if given]


def _noise_beyond_uploads(built: BuiltExperiment) -> bool:
    """Whether noise would change coordinates that clients never upload."""
    noisy = built.experiment.training.output_noise > 0
    return noisy and not built.personalizer.uploads_all


NO_SHARED_BOUND = Constraint(
    "If groups are isolated, no bound on barred clients connects them.",
    _detectors_sharing_a_bound,
    "{customizer} isolates groups from each other, but all groups share the bound on barred "
    "clients: if {culprit} bars clients of one group, clients of other groups may stay; set "
    "server.eviction.bounded = false",
)
CONSTRAINTS = (
    Constraint(
        "The model fits the task and the shape of the samples.",
        lambda m: misfits(m).samples,
        "{culprit}",
    ),
    Constraint(
        "If groups are isolated, detectors judge each client separately.",
        lambda m: [d.name for d in m.plan.detectors if m.customizer.isolates and not d.alone],
        "{customizer} isolates groups from each other, but {culprit} compares clients of all "
        "groups; use norm_bound or no detector",
    ),
    NO_SHARED_BOUND,
    Constraint(
        "No detector is listed twice.",
        lambda m: [d.name for i, d in enumerate(m.plan.detectors) if d in m.plan.detectors[:i]],
        "server.detectors lists {culprit} twice with the same parameters; list it once",
    ),
    Constraint(
        "If groups are isolated, the model has no running statistics.",
        lambda m: (
            refusal(m.plan.check_statistics) if m.customizer.isolates and m.spec.statistics else []
        ),
        "{culprit}",
    ),
    Constraint(
        "If detectors share challenges, they draw and sketch challenges alike.",
        lambda m: _challenge_conflicts(m.plan.detectors),
        "`response` compares the challenges of the detector `challenge` with its own decoys; "
        "set {culprit}",
    ),
    Constraint(
        "If a detector reconstructs training, all clients train from the global model.",
        lambda m: [d.name for d in m.plan.detectors if d.retraces and not m.customizer.common],
        "{culprit} reconstructs training from the global model, but with the customizer "
        "{customizer}, clients start from other models; use global_model",
    ),
    Constraint(
        "If a detector reconstructs training, clients train and upload the whole model.",
        lambda m: [d.name for d in m.plan.detectors if d.retraces and not m.personalizer.whole],
        "{culprit} reconstructs training of the whole model on all samples, but the personalizer "
        "{personalizer} does not upload the result of such training; use another personalizer",
    ),
    Constraint(
        "If a detector reconstructs training, samples are not rows of token ids.",
        lambda m: [d.name for d in m.plan.detectors if d.retraces and m.dataset.discrete],
        "{culprit} searches by gradient descent for samples that could have caused an update, but "
        "token ids have no gradient; use another detector",
    ),
    Constraint(
        "If a detector reconstructs training, the model has no running statistics.",
        lambda m: [d.name for d in m.plan.detectors if d.retraces and m.spec.statistics],
        "{culprit} reconstructs training with fixed statistics, but batch normalization uses the "
        "statistics of each batch; use a model without batch normalization, or another detector",
    ),
    Constraint(
        "If a customizer needs clients' whole models, uploads are calibrated.",
        lambda m: (
            [m.customizer.name]
            if m.customizer.recovers and not m.experiment.server.calibrate
            else []
        ),
        "{culprit} needs whole models: set calibrate = true",
    ),
    Constraint(
        "If a customizer reads clients' reports, all clients report on the same round.",
        lambda m: (
            [m.customizer.name] if m.customizer.claims and m.experiment.policy != "sync" else []
        ),
        "{culprit} reads what clients report about the models of one round: set policy = sync",
    ),
    Constraint(
        "If a personalizer weighs offered models, the customizer offers models.",
        lambda m: (
            [m.personalizer.name] if m.personalizer.held_out and not m.customizer.claims else []
        ),
        "the personalizer {culprit} weighs models that the server offers: name a customizer that "
        "offers models, such as fedfomo",
    ),
    Constraint(
        "If a stage needs the server's own update, there are root samples.",
        lambda m: _stages_without_samples(m, "server_update"),
        "{culprit} needs the server's own update: name a data set in [server.root]",
    ),
    Constraint(
        "If a stage needs unlabelled public samples, [server.public] names a data set.",
        lambda m: [] if "labels" in m.plan.needs() else _stages_without_samples(m, "public"),
        "{culprit} needs public samples: name a data set in [server.public]",
    ),
    Constraint(
        "If a stage needs labelled public samples, there are public samples.",
        lambda m: _stages_without_samples(m, "labels"),
        "{culprit} needs labelled public samples: name a data set in [server.public]",
    ),
    Constraint(
        "Root samples fit the clients' model and classes.",
        lambda m: _sample_mismatch(m, "root"),
        "{culprit}",
    ),
    Constraint(
        "Public samples fit the clients' model and, if a stage needs labels, the clients' classes.",
        lambda m: _sample_mismatch(m, "public"),
        "{culprit}",
    ),
    Constraint(
        "The server's test samples fit the clients' model and classes.",
        lambda m: _sample_mismatch(m, "test"),
        "{culprit}",
    ),
    Constraint(
        "Only images are augmented.",
        lambda m: (
            [str(m.dataset.shape)]
            if m.experiment.server.public is not None
            and m.experiment.server.public.augmentation != "none"
            and (len(m.dataset.shape) != 3 or min(m.dataset.shape[1:]) < 2)
            else []
        ),
        "server.public: augmentation is for images, but the samples have shape {culprit}",
    ),
    Constraint(
        "Backdoors fit the samples and the classes.",
        _unfit_backdoors,
        "{culprit}",
    ),
    Constraint(
        "A starting model has the tensors of the experiment's model.",
        _unfit_start,
        "{culprit}",
    ),
    Constraint(
        "Rounds can have enough rows for every stage.",
        _too_few_rows,
        "{culprit}",
    ),
    Constraint(
        "If clients have no common model, no setting assumes a common model.",
        _without_common_model,
        "`interpolated` in exact mode has no common model: every client takes plain steps towards "
        "its own aggregate. Leave out {culprits}",
    ),
    Constraint(
        "The personalizer suits the model.",
        lambda m: misfits(m).personalizer,
        "{culprit}",
    ),
    Constraint(
        "Output noise is added only to coordinates that clients upload.",
        lambda m: [m.personalizer.name] if _noise_beyond_uploads(m) else [],
        "clients of {personalizer} never upload some coordinates, but training.output_noise would "
        "change them; leave out one of the two",
    ),
    Constraint(
        "If training is private, its privacy loss can be computed.",
        lambda m: misfits(m).privacy,
        "{culprit}",
    ),
)
"""All constraints between the parts of an experiment; only the first violation is reported."""


def barring_conflict(experiment: Experiment) -> str:
    """Why a run of the experiment may not switch to a mode that bars clients; "" if it may."""
    server = experiment.server
    eviction = server.eviction.model_copy(update={"mode": "evict"})
    barring = server.model_copy(update={"eviction": eviction})
    built = build_experiment(experiment.model_copy(update={"server": barring}))
    return "".join(refusal(NO_SHARED_BOUND.check, built))


def validate(experiment: Experiment) -> Experiment:
    """Builds all parts that an experiment names, and checks that the parts fit together.

    Returns:
        The experiment, with `packages` filled in.
    Raises:
        RampartError: a part or a combination of parts is wrong; the message says which.
        TypeError: `experiment` has another type; for example, it is the path of a file.

    >>> validate(Experiment.load("digits-benign")).packages
    {}
    """
    if not isinstance(experiment, Experiment):
        raise TypeError(
            f"expected an Experiment, not {experiment!r}: read a file, or a shipped experiment, "
            "with Experiment.load"
        )
    with plugins.record_lookups(experiment.packages) as packages:
        built = build_experiment(experiment)
        for constraint in CONSTRAINTS:
            constraint.check(built)
    return experiment.model_copy(update={"packages": packages})
