"""Customizers create models in addition to the global model, and assign models to clients.

To add a customizer, write a module in this package, and a test file with the name of the module.
The module defines a subclass of `Customizer`, decorated with `@customizers.register("name")`.

Code for personal models, which clients train themselves, belongs in
`learning.training.personalizers`.

Legend: D coordinates, M rows of the pool.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

from torch import Tensor

from rampart_fl.shared.assignment import names_for
from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.families.registry import Registry
from rampart_fl.shared.robust.base import Context, Rows, Stage, State
from rampart_fl.shared.robust.models import Models


@dataclass(frozen=True, eq=False)
class Customization:
    """The models other than the global model, and their assignment to clients.

    A customization can describe one model per client, one model per group of clients, or several
    models per client.

    Args:
        models: the models by name; None if every client gets the global model. A model's name is a
            client's id, or contains a colon.
        assignment: for each client id, the names of the client's models. The client trains from the
            model with the first name. All other names belong to additional models that the client
            gets. `GLOBAL` is the name of the global model. Some clients have neither an assignment
            nor a group. Such a client gets the global model if the customizer asks for no probes.
            Otherwise, the client gets a model that depends on its answer to a probe.
        groups: names of the groups' models. The hash of a client's id selects its group. Every
            client that is not in `assignment` gets the model of its group.
        voters: names of the models that predict together by majority vote. Every client gets these
            models when the federation ends.
        challenged: for each challenged client, the name of its challenged model. A challenged model
            is the client's own model plus a random change. The client trains from the challenged
            model instead of its own model. When the federation ends, the client gets its own model.
        awaited: the clients whose next uploads a detector awaits. If such a client is not drawn for
            the next round, the server may summon it.
    """

    models: Models | None = None
    assignment: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    groups: tuple[str, ...] = ()
    voters: tuple[str, ...] = ()
    challenged: Mapping[str, str] = field(default_factory=dict)
    awaited: frozenset[str] = frozenset()

    def names_for(self, client: str) -> tuple[str, ...]:
        """The names of a client's models; empty if the client has no models."""
        return names_for(client, (), self.assignment, self.groups)

    def known(self, client: str) -> bool:
        """Whether the client has its own model, a group's model or a challenged model."""
        return bool(self.names_for(client)) or client in self.challenged


class Customizer(Stage):
    """Maps the rows of the accepted clients to a model for each client.

    A customizer may be a user's own code. Errors that a customizer's methods raise therefore name
    the customizer. If a result is obviously wrong, a `ConfigurationError` that names the customizer
    is raised.
    """

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Wraps the methods of a new subclass, so that their errors name the customizer."""
        super().__pydantic_init_subclass__(**kwargs)
        for name in ("apply", "customize_newcomer", "check_rows", "init"):
            owner = next(base for base in cls.__mro__ if name in vars(base))
            # The class that defines the method may be a mixin.
            if owner is cls or not issubclass(owner, Customizer):
                setattr(cls, name, _named(name, vars(owner)[name]))

    @property
    def probes(self) -> bool:
        """Whether a client without a row in the pool must first answer a probe.

        To answer a probe, the client trains once from the reference model.
        """
        return False

    @property
    def common(self) -> bool:
        """Whether all clients train from the same global model."""
        return False

    @property
    def compares_heads(self) -> bool:
        """Whether the customizer needs to know the model's last layer (`Context.head`)."""
        return False

    @property
    def continues(self) -> bool:
        """Whether the customizer continues from its models of the previous round.

        If `continues` is true, `context.models` holds the models of the previous round.
        """
        return False

    @property
    def claims(self) -> tuple[str, ...]:
        """Names of the client-reported metrics that the customizer reads from `rows.metadata`."""
        return ()

    @property
    def recovers(self) -> bool:
        """Whether the customizer needs clients' whole models; if so, uploads must be calibrated.

        A client's whole model is the sum of the global model and the calibrated upload.
        """
        return False

    @property
    def isolates(self) -> bool:
        """Whether groups of clients are isolated from each other.

        If groups are isolated, clients of one group must not influence another group. A client's
        row is then relative to the model that the client received, not to the global model.
        """
        return False

    @property
    def offered(self) -> int:
        """Number of models that each client gets in a round besides the model that it trains."""
        return 0

    def models_of(self, clients: int) -> int:
        """The largest number of models that the customizer makes for `clients` clients.

        The global model is not included.
        """
        return clients

    def check_rows(self, rows: Rows, context: Context) -> None:
        """Raises `ConfigurationError` for settings that would fail in every round."""

    @abstractmethod
    def apply(
        self, rows: Rows, similar: Rows, state: State, context: Context
    ) -> tuple[Customization, State]:
        """The models made from `rows`, their assignment to clients, and the next state.

        Args:
            rows: the accepted updates relative to `context.reference_D`; there may be no rows.
            similar: the rows from which the customizer computes similarities between clients, one
                for each client in `rows`. If calibration is off, these rows are the raw uploads;
                otherwise, they are equal to `rows`.
            state: the state from `init` or from the previous round.
            context: the round, the seed and the reference model.
        """

    def customize_newcomer(self, probe_D: Tensor, rows: Rows, context: Context) -> Tensor:
        """Weights (M,) with which the pool's rows are mixed into a model for a newcomer.

        `probe_D` is the newcomer's answer to a probe. `Rounds.newcomer` calls this method, but only
        if `probes` is true. Customizers with probes override this method.
        """
        raise AssertionError(f"{self.name} sends no probes, so it mixes no models for newcomers")


def _named(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a customizer's method: errors then name the customizer, and the result is checked."""

    @wraps(method)
    def call(self: Customizer, *args: Any, **options: Any) -> Any:
        with self.own_errors():
            result = method(self, *args, **options)
        wanted = ""
        if name == "apply" and not _customizes(result):
            wanted = "a Customization and a State"
        if name == "customize_newcomer":
            count = len(args[1] if len(args) > 1 else options["rows"])
            if not isinstance(result, Tensor) or result.shape != (count,):
                wanted = f"{count} weights"
        if wanted:
            shown = f"shape {tuple(result.shape)}" if isinstance(result, Tensor) else repr(result)
            raise ConfigurationError(
                f"customizer {self.origin}: {name} returned {shown[:200]}, not {wanted}"
            )
        return result

    return call


def _customizes(result: object) -> bool:
    """Whether a value has the type that `Customizer.apply` must return."""
    match result:
        case (Customization(), State()):
            return True
        case _:
            return False


customizers: Registry[Customizer] = Registry(
    Customizer, "customizer", package=__name__, group="rampart_fl.customizers"
)
