"""What a worker needs to execute one run under one lease."""

from dataclasses import dataclass

from rampart_fl.services.aggregator.state.blobs import Blobs
from rampart_fl.services.aggregator.state.client_store import ClientStore
from rampart_fl.services.aggregator.state.record_store import RecordStore
from rampart_fl.services.aggregator.state.stores import RunStores
from rampart_fl.services.aggregator.worker.round_engine import RoundEngine
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.runtime.compute import Compute


@dataclass(frozen=True)
class RunResources:
    """A run's state and the engine that computes on it, for the coordinator and its parts."""

    stores: RunStores
    """The state of the run in Redis."""
    clients: ClientStore
    """The clients of the federation."""
    blobs: Blobs
    """The models and updates of the run."""
    records: RecordStore
    """The records of the run's finished rounds."""
    round_engine: RoundEngine
    """Computes on models and updates."""
    compute: Compute
    """Runs a function on the round engine's thread."""
    experiment: Experiment
    """The run's experiment."""
    fence: int
    """The lease's fencing token."""
