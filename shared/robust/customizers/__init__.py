"""Customizers: which models there are beside the global one, and which client gets which.

To add one: a module here with a subclass of `Customizer` under `@customizers.register("name")`,
and a test file of the same name.

Legend: D coordinates, M rows of the pool.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from rampart_fl.shared.assignment import names_for
from rampart_fl.shared.families.registry import Registry
from rampart_fl.shared.robust.base import Context, Rows, Stage, State
from rampart_fl.shared.robust.models import Models


@dataclass(frozen=True, eq=False)
class Customization:
    """Which models there are beside the global one, and which client gets which.

    One model per client, one per group of clients, and several per client are the same thing.

    Args:
        models: by name; None where everyone gets the global model. A name is a client's id, or
            holds a colon.
        assignment: names by client id: the model that it trains from, then those that it gets
            beside it; `GLOBAL` stands for the global one. A client that neither this nor `groups`
            knows gets the global model, or is probed first where the customizer says so.
        groups: names, one of which every client not in `assignment` gets by the hash of its id.
        voters: names of models that every client gets at the end, to decide by their majority.
        challenged: by client, the name of the model that it trains from in place of its own; at
            the end it gets its own.
    """

    models: Models | None = None
    assignment: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    groups: tuple[str, ...] = ()
    voters: tuple[str, ...] = ()
    challenged: Mapping[str, str] = field(default_factory=dict)

    def names_for(self, client: str) -> tuple[str, ...]:
        """The names of a client's models; none where nothing is known of it."""
        return names_for(client, (), self.assignment, self.groups)


class Customizer(Stage):
    """Maps the surviving rows to a model per client."""

    @property
    def probes(self) -> bool:
        """Whether a client without a row in the pool first trains once from the reference."""
        return False

    @property
    def common(self) -> bool:
        """Whether all clients train from the one global model."""
        return False

    @property
    def continues(self) -> bool:
        """Whether it goes on from its models of the last round, which `context.models` then has."""
        return False

    @property
    def claims(self) -> tuple[str, ...]:
        """Names of metrics that clients report and that this reads in `rows.metadata`."""
        return ()

    @property
    def recovers(self) -> bool:
        """Whether it needs clients' whole models, and so uploads that the server calibrates."""
        return False

    @property
    def isolates(self) -> bool:
        """Whether each client's row is relative to the model that it is handed, not to the global
        one, and nothing of one group's clients may reach another group."""
        return False

    def check_rows(self, rows: Rows, context: Context) -> None:
        """Refuses (`ConfigurationError`) what fails in every round, whatever the rows are."""

    @abstractmethod
    def apply(
        self, rows: Rows, similar: Rows, state: State, context: Context
    ) -> tuple[Customization, State]:
        """The models for the clients whose rows these are, and the next state.

        Args:
            rows: surviving updates relative to `context.reference_D`; there may be none.
            similar: the same clients' rows that similarity is judged by (the raw uploads where
                calibration is switched off).
            state: from `init` or the last round.
            context: round, seed, reference.
        """

    def customize_newcomer(self, probe_D: Tensor, rows: Rows, context: Context) -> Tensor:
        """Mixing weights (M,) over the pool for a client that answered a probe with `probe_D`.

        Only customizers that probe (`probes`) are asked, and these bring their own.
        """
        raise AssertionError(f"{self.name} does not probe")


customizers: Registry[Customizer] = Registry(
    Customizer, "customizer", package=__name__, group="rampart_fl.customizers"
)
