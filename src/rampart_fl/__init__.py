"""Byzantine-robust, personalized federated learning: the public names of Rampart.

Names are loaded on first use, so `import rampart_fl` alone is fast and needs no torch.

>>> import torch
>>> import rampart_fl
>>> rampart_fl.aggregate(torch.tensor([[1.0, 0.0], [1.2, 0.1], [1e30, -1e30]]), "median")
tensor([1.2000, 0.0000])
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rampart_fl.services.client_agent.custom import take_part
    from rampart_fl.shared.agent.loop import Participant
    from rampart_fl.shared.attacks import craft
    from rampart_fl.shared.attacks.base import DataAttack, Knowledge, ModelAttack
    from rampart_fl.shared.errors import (
        ConfigurationError,
        PreconditionError,
        RampartError,
        UnknownMember,
    )
    from rampart_fl.shared.experiment import Experiment
    from rampart_fl.shared.experiment.sweep import Sweep
    from rampart_fl.shared.learning.data.datasets import Dataset, Samples
    from rampart_fl.shared.learning.data.partitions import Partition
    from rampart_fl.shared.learning.network.models import Model
    from rampart_fl.shared.learning.training.objectives import Objective, Point
    from rampart_fl.shared.learning.training.personalizers import (
        Batch,
        Personalizer,
        StepState,
        Task,
    )
    from rampart_fl.shared.learning.training.schedules import Schedule
    from rampart_fl.shared.robust import Context, Report, Rows, State, Verdict, aggregate
    from rampart_fl.shared.robust.base import Detector, PreAggregator, Rule
    from rampart_fl.shared.robust.customizers import Customization, Customizer
    from rampart_fl.shared.robust.models import ClientModels, Mixture, ModelBlock
    from rampart_fl.shared.simulation import Simulation, SimulationResult, simulate
    from rampart_fl.shared.simulation.tuning import search_weight
    from rampart_fl.shared.validation import validate

# OpenMP's threads must not busy-wait, because they would take CPU time from other processes. OpenMP
# reads OMP_WAIT_POLICY when torch is loaded, so set the variable here, before torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

__all__ = [
    "Batch",
    "ClientModels",
    "ConfigurationError",
    "Context",
    "Customization",
    "Customizer",
    "DataAttack",
    "Dataset",
    "Detector",
    "Experiment",
    "Knowledge",
    "Mixture",
    "Model",
    "ModelAttack",
    "ModelBlock",
    "Objective",
    "Participant",
    "Partition",
    "Personalizer",
    "Point",
    "PreAggregator",
    "PreconditionError",
    "RampartError",
    "Report",
    "Rows",
    "Rule",
    "Samples",
    "Schedule",
    "Simulation",
    "SimulationResult",
    "State",
    "StepState",
    "Sweep",
    "Task",
    "UnknownMember",
    "Verdict",
    "aggregate",
    "craft",
    "search_weight",
    "simulate",
    "take_part",
    "validate",
]
_NAMES = {
    "services.client_agent.custom": "take_part",
    "shared.agent.loop": "Participant",
    "shared.attacks": "craft",
    "shared.attacks.base": "DataAttack, Knowledge, ModelAttack",
    "shared.errors": "ConfigurationError, PreconditionError, RampartError, UnknownMember",
    "shared.experiment": "Experiment",
    "shared.experiment.sweep": "Sweep",
    "shared.learning.data.datasets": "Dataset, Samples",
    "shared.learning.network.models": "Model",
    "shared.learning.training.objectives": "Objective, Point",
    "shared.learning.data.partitions": "Partition",
    "shared.learning.training.personalizers": "Batch, Personalizer, StepState, Task",
    "shared.learning.training.schedules": "Schedule",
    "shared.robust": "Context, Report, Rows, State, Verdict, aggregate",
    "shared.robust.base": "Detector, PreAggregator, Rule",
    "shared.robust.customizers": "Customization, Customizer",
    "shared.robust.models": "ClientModels, Mixture, ModelBlock",
    "shared.simulation": "Simulation, SimulationResult, simulate",
    "shared.simulation.tuning": "search_weight",
    "shared.validation": "validate",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split(", ")}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    member = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = member
    return member


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
