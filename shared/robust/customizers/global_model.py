"""The customizer for federations in which all clients train from one global model."""

from rampart_fl.shared.robust.base import Context, Rows, State
from rampart_fl.shared.robust.customizers import Customization, Customizer, customizers


@customizers.register("global_model")
class GlobalModel(Customizer):
    """No customization: every client's next model is the global model."""

    paper = "McMahan et al., 2017 (FedAvg)"
    complexity = "O(1)"
    passes = "0"

    @property
    def common(self) -> bool:
        return True

    def models_of(self, clients: int) -> int:
        return 0

    def apply(
        self, rows: Rows, similar: Rows, state: State, context: Context
    ) -> tuple[Customization, State]:
        return Customization(), state
