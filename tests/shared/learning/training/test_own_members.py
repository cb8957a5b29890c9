"""A user's own schedule, objective, personalizer and model: errors and wrong results name them."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rampart_fl.shared.built_experiment import build_experiment
from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.learning.data.client_data import ClientData, client_data
from rampart_fl.shared.learning.network.models import Model, models
from rampart_fl.shared.learning.network.vector import initial_model
from rampart_fl.shared.learning.training.evaluation import evaluate
from rampart_fl.shared.learning.training.learner import Learner
from rampart_fl.shared.learning.training.local import LocalResult, train_round
from rampart_fl.shared.learning.training.objectives import Objective, Point, objectives
from rampart_fl.shared.learning.training.personalizers import (
    Batch,
    Personalizer,
    StepState,
    Task,
    personalizers,
)
from rampart_fl.shared.learning.training.schedules import Schedule, schedules
from rampart_fl.shared.model_fit import misfits
from rampart_fl.shared.simulation.exact_round import ExactRound

OwnMember = Callable[..., type]
NOTE = "raised by 'own' of my-package==1"


def experiment(**tables: Any) -> Experiment:
    """A small experiment on digits with some tables replaced."""
    usual = {
        "name": "small",
        "data": {"dataset": "digits", "clients": 20, "samples": 20},
        "model": "logistic",
        "training": {"batch_size": 8},
    }
    return Experiment.from_tables({**usual, **tables})


def samples(table: Experiment) -> ClientData:
    return client_data(table.data, 0, seed=1)


def train(**tables: Any) -> LocalResult:
    """One round of one client of the experiment."""
    chosen = experiment(**tables)
    learner = Learner.of(chosen)
    start_D = learner.initial_model()
    state = learner.first_state(start_D)
    return train_round(learner, samples(chosen), start_D, state, seed=1, client="a", round_=0)


def answer(given: Any) -> Any:
    """Returns the given value, or raises it if it is an error."""
    if isinstance(given, Exception):
        raise given
    return given


def own_schedule(given: Any) -> type[Schedule]:
    class Own(Schedule):
        def share(self, round_: int, rounds: int) -> float:
            return answer(given)

    return Own


@pytest.mark.parametrize(
    "given", [float("nan"), float("inf"), -0.5, "half", None, 1j], ids=lambda given: repr(given)
)
def test_wrong_share_is_refused_with_the_name_of_the_schedule(
    own_member: OwnMember, given: Any
) -> None:
    own_member(schedules, own_schedule(given))
    with pytest.raises(ConfigurationError) as caught:
        train(training={"schedule": "own"})
    assert str(caught.value) == (
        f"schedule 'own' of my-package==1 returned {given!r} for round 0, not a finite number of "
        "at least 0"
    )


@pytest.mark.parametrize("given", [0, 0.0, 1, True, torch.tensor(0.5)], ids=repr)
def test_share_may_be_any_number_of_at_least_zero(own_member: OwnMember, given: Any) -> None:
    own_member(schedules, own_schedule(given))
    update_D = train(training={"schedule": "own"}).update_D
    whole_D = train(training={"schedule": "constant"}).update_D
    assert bool(update_D.any()) == (given != 0)
    assert torch.equal(update_D, whole_D) == (given == 1)


def test_errors_of_a_schedule_name_it(own_member: OwnMember) -> None:
    own_member(schedules, own_schedule(KeyError("a")))
    with pytest.raises(KeyError) as caught:
        train(training={"schedule": "own"})
    assert caught.value.__notes__ == [NOTE]


def test_exact_rounds_check_the_schedule(own_member: OwnMember) -> None:
    own_member(schedules, own_schedule(-1.0))
    learner = Learner.of(experiment(training={"schedule": "own"}))
    clients: Any = type("Clients", (), {"learner": learner})
    with pytest.raises(ConfigurationError, match="schedule 'own' of my-package==1 returned"):
        ExactRound(clients, server=clients, round=0).rate  # noqa: B018 - the property raises


def own_objective(gradient: Any = None, measured: Any = None) -> type[Objective]:
    class Own(Objective):
        @property
        def weight(self) -> float:
            return 1.0

        def gradient(self, point: Point) -> Tensor:
            return torch.zeros_like(point.models_KD) if gradient is None else answer(gradient)

        def measure(self, *args: Any) -> dict[str, Tensor]:
            return answer(measured)

    return Own


PRIVACY = {"noise_multiplier": 1.0, "clip": 1.0, "delta": 1e-3}


@pytest.mark.parametrize("private", [{}, {"privacy": PRIVACY}])
@pytest.mark.parametrize("reads", [True, False])
def test_gradients_and_errors_of_an_objective_are_checked(
    own_member: OwnMember, private: dict[str, Any], reads: bool
) -> None:
    tables = {"training": {"objective": ["own"], **private}}
    own_member(objectives, own_objective(torch.zeros(3))).reads_samples = reads
    wrong = r"objective 'own' of my-package==1 returned a gradient of shape \(3,\), not of shape"
    with pytest.raises(ConfigurationError, match=wrong):
        train(**tables)
    own_member(objectives, own_objective("none")).reads_samples = reads
    with pytest.raises(ConfigurationError, match="'own' of my-package==1 returned a gradient of"):
        train(**tables)
    own_member(objectives, own_objective(KeyError("a"))).reads_samples = reads
    with pytest.raises(KeyError) as caught:
        train(**tables)
    assert caught.value.__notes__ == [NOTE]


def test_measurements_and_errors_of_an_objective_are_checked(own_member: OwnMember) -> None:
    tables = {"training": {"objective": ["own"]}}
    for measured, problem in (
        (None, "measured None, not a mapping of tensors"),
        ({"norm": 3.0}, "measured 3.0 as 'norm', not one number for each"),
        ({"norm": torch.zeros(2)}, r"measured tensor\(\[0., 0.\]\) as 'norm', not one number"),
    ):
        own_member(objectives, own_objective(measured=measured))
        with pytest.raises(ConfigurationError, match=f"objective 'own' of my-package==1 {problem}"):
            train(**tables)
    own_member(objectives, own_objective(measured=KeyError("a")))
    with pytest.raises(KeyError) as caught:
        train(**tables)
    assert caught.value.__notes__ == [NOTE]


def own_personalizer(method: str, given: Any) -> type[Personalizer]:
    """A personalizer in which one method returns or raises the given value."""

    class Own(Personalizer):
        def step(
            self, local: StepState, received_KD: Tensor, batch: Batch, task: Task
        ) -> StepState:
            (gradient_KD,) = task.gradients(batch, local.model_KD)
            return task.descend(local, gradient_KD)

    setattr(Own, method, lambda self, *args: answer(given))
    return Own


SHORT = torch.zeros(1, 3)


@pytest.mark.parametrize(
    ("method", "given", "problem"),
    [
        ("step", None, "returned None, not a StepState"),
        ("step", StepState(SHORT), r"returned a tensor of shape \(1, 3\), not models of shape"),
        ("start", None, "returned None, not models and a mapping"),
        ("start", (None, {}), r"returned None, not models of shape \(1, 650\)"),
        ("start", (torch.zeros(1, 650), None), "returned None, not a mapping of tensors"),
        ("begin", None, "returned None, not a mapping of tensors"),
        ("begin", {"a": 1}, "returned 1, not a tensor with 1 rows as 'a'"),
        ("init", None, "returned None, not a mapping of tensors"),
        ("init", {"a": torch.zeros(2, 3)}, r"of shape \(2, 3\), not a tensor with 1 rows as 'a'"),
        ("personalized", SHORT, r"returned a tensor of shape \(1, 3\), not models of shape"),
    ],
)
def test_wrong_results_of_a_personalizer_are_refused_with_its_name(
    own_member: OwnMember, method: str, given: Any, problem: str
) -> None:
    own_member(personalizers, own_personalizer(method, given))
    with pytest.raises(
        ConfigurationError,
        match=f"^personalizer 'own' of my-package==1: {method} returned .*{problem[9:]}",
    ):
        train(personalizer="own")


@pytest.mark.parametrize("method", ["step", "start", "begin", "init", "personalized", "check"])
def test_errors_of_a_personalizer_name_it(own_member: OwnMember, method: str) -> None:
    own_member(personalizers, own_personalizer(method, KeyError("a")))
    with pytest.raises(KeyError) as caught:
        train(personalizer="own")
    assert caught.value.__notes__ == [NOTE]


def test_evaluation_checks_the_personal_models(own_member: OwnMember) -> None:
    own_member(personalizers, own_personalizer("personalized", SHORT))
    chosen = experiment(personalizer="own")
    learner = Learner.of(chosen)
    with pytest.raises(ConfigurationError, match="'own' of my-package==1: personalized returned"):
        evaluate(learner, samples(chosen), learner.initial_model(), {})


def own_model(module: Any) -> type[Model]:
    class Own(Model):
        def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
            return answer(module)

    return Own


class Forward(nn.Module):
    """A module with the given forward pass."""

    def __init__(self, forward: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.run = forward

    def forward(self, x: Tensor) -> Any:
        """Logits."""
        return self.run(x)


def on_real_samples(x: Tensor) -> Tensor:
    """Works only on samples that are 0."""
    if not bool((x == 0).all()):
        raise KeyError("token 9")
    return x.flatten(1)[:, :10]


@pytest.mark.parametrize(
    ("module", "problem"),
    [
        (None, "built a NoneType, not a torch.nn.Module"),
        (Forward(lambda x: x.flatten(1)), r"maps a batch of shape .* to \(2, 64\), not to logits"),
        (Forward(lambda x: None), "maps a batch of shape .* to NoneType, not to logits"),
        (Forward(lambda x: x[9]), "fails on a batch of shape .*: IndexError"),
    ],
)
def test_wrong_module_is_refused_with_the_name_of_the_model(
    own_member: OwnMember, module: Any, problem: str
) -> None:
    own_member(models, own_model(module))
    with pytest.raises(ConfigurationError, match=f"model 'own' of my-package==1 {problem}"):
        initial_model(experiment(model="own"))
    (message,) = misfits(build_experiment(experiment(model="own"))).samples
    assert message.startswith("model 'own' of my-package==1")


def test_errors_of_a_model_name_it(own_member: OwnMember) -> None:
    own_member(models, own_model(KeyError("a")))
    with pytest.raises(KeyError) as caught:
        initial_model(experiment(model="own"))
    assert caught.value.__notes__ == [NOTE]
    assert misfits(build_experiment(experiment(model="own"))).samples == [f"KeyError: 'a' ({NOTE})"]
    own_member(models, own_model(Forward(on_real_samples)))
    with pytest.raises(KeyError) as caught:
        train(model="own")
    assert caught.value.__notes__ == [NOTE]


def test_error_of_an_objective_does_not_name_the_personalizer(own_member: OwnMember) -> None:
    """The personalizer's step calls the objective."""
    own_member(personalizers, own_personalizer("held", None))
    own_member(objectives, own_objective(KeyError("a"))).package = "my-terms==2"
    with pytest.raises(KeyError) as caught:
        train(personalizer="own", training={"objective": ["own"]})
    assert caught.value.__notes__ == ["raised by 'own' of my-terms==2"]


def test_personalizer_refusal_at_validation_names_it(own_member: OwnMember) -> None:
    own_member(personalizers, own_personalizer("check", KeyError("a")))
    found: Mapping[str, Any] = vars(misfits(build_experiment(experiment(personalizer="own"))))
    assert found["personalizer"] == [f"KeyError: 'a' ({NOTE})"]
