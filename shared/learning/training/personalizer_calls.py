"""Calls a personalizer's methods, and checks the results: a personalizer may be a user's own code.

If a result is wrong, the functions raise a `ConfigurationError` that names the personalizer. Any
other error of the personalizer's own code gets a note with the personalizer's name.

Legend: K clients, D parameters.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.learning.training.personalizers import (
    Batch,
    Loss,
    Offers,
    Personalizer,
    StepState,
    Task,
)
from rampart_fl.shared.modelspec import ModelSpec


def check(personalizer: Personalizer, module: nn.Module, spec: ModelSpec) -> None:
    """Refuses a model that does not suit the personalizer."""
    with personalizer.own_errors():
        personalizer.check(module, spec)


def first_state(personalizer: Personalizer, initial_KD: Tensor) -> dict[str, Tensor]:
    """The personal state (K, ...) before the clients' first round."""
    with personalizer.own_errors():
        state: Any = personalizer.init(initial_KD)
    return dict(_tensors(personalizer, "init", state, len(initial_KD)))


def start(
    personalizer: Personalizer,
    received_KD: Tensor,
    personal: Mapping[str, Tensor],
    offers: Offers,
    loss: Loss,
) -> tuple[Tensor, Mapping[str, Tensor]]:
    """The models (K, D) from which training starts, and values (K,) to report."""
    with personalizer.own_errors():
        given: Any = personalizer.start(received_KD, personal, offers, loss)
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise _refusal(personalizer, "start", given, "models and a mapping of tensors")
    models_KD = _models(personalizer, "start", given[0], received_KD)
    return models_KD, _tensors(personalizer, "start", given[1], len(received_KD))


def begin(
    personalizer: Personalizer, models_KD: Tensor, personal: Mapping[str, Tensor]
) -> StepState:
    """The models and the personal state at the beginning of a round's training."""
    with personalizer.own_errors():
        state: Any = personalizer.begin(models_KD, personal)
    return StepState(models_KD, _tensors(personalizer, "begin", state, len(models_KD)))


def step(
    personalizer: Personalizer, local: StepState, received_KD: Tensor, batch: Batch, task: Task
) -> StepState:
    """The models and the state after one mini-batch."""
    with personalizer.own_errors():
        after: Any = personalizer.step(local, received_KD, batch, task)
    if not isinstance(after, StepState):
        raise _refusal(personalizer, "step", after, "a StepState")
    _models(personalizer, "step", after.model_KD, local.model_KD)
    return after


def personalized(
    personalizer: Personalizer, model_KD: Tensor, personal: Mapping[str, Tensor]
) -> Tensor | None:
    """The clients' personal models (K, D), if there are any."""
    with personalizer.own_errors():
        kept_KD: Any = personalizer.personalized(model_KD, personal)
    return None if kept_KD is None else _models(personalizer, "personalized", kept_KD, model_KD)


def _models(personalizer: Personalizer, method: str, given: Any, like_KD: Tensor) -> Tensor:
    if not isinstance(given, Tensor) or given.shape != like_KD.shape:
        wanted = f"models of shape {tuple(like_KD.shape)}"
        raise _refusal(personalizer, method, given, wanted)
    return given


def _tensors(
    personalizer: Personalizer, method: str, given: Any, clients: int
) -> Mapping[str, Tensor]:
    if not isinstance(given, Mapping):
        raise _refusal(personalizer, method, given, "a mapping of tensors")
    for name, tensor in given.items():
        if not isinstance(tensor, Tensor) or tensor.shape[:1] != (clients,):
            wanted = f"a tensor with {clients} rows as {name!r}"
            raise _refusal(personalizer, method, tensor, wanted)
    return given


def _refusal(
    personalizer: Personalizer, method: str, given: object, wanted: str
) -> ConfigurationError:
    shown = f"a tensor of shape {tuple(given.shape)}" if isinstance(given, Tensor) else repr(given)
    return ConfigurationError(
        f"personalizer {personalizer.origin}: {method} returned {shown[:200]}, not {wanted}"
    )
