"""The step from the aggregate to the next global model.

Legend: D parameters.
"""

from pydantic import Field
from torch import Tensor

from rampart_fl.shared.families.registry import FamilyMember
from rampart_fl.shared.robust.base import State
from rampart_fl.shared.runtime.device import to_device


class ServerStep(FamilyMember):
    """Moves the global model by the aggregate, with momentum.

    The velocity v becomes momentum · v + aggregate. Then learning_rate · v is added to the model.
    """

    learning_rate: float = Field(default=1.0, gt=0)
    momentum: float = Field(default=0.0, ge=0, lt=1)

    def apply(self, reference_D: Tensor, aggregate_D: Tensor, state: State) -> tuple[Tensor, State]:
        """The next global model (D,), and the state that holds the velocity v."""
        if not self.momentum:
            return (self.learning_rate * aggregate_D).add_(reference_D), state
        velocity_D = aggregate_D.clone()
        if "velocity" in state.tensors:
            held_D = to_device(state.tensors["velocity"], aggregate_D.device)
            velocity_D.add_(held_D, alpha=self.momentum)
        kept = State({"velocity": velocity_D}, vectors=frozenset({"velocity"}))
        return (self.learning_rate * velocity_D).add_(reference_D), kept
