"""Checks that a worker's ranks and memory limit are sufficient for an experiment."""

from rampart_fl.services.aggregator.settings import Settings
from rampart_fl.services.aggregator.worker.memory_limit import memory_for_blocks
from rampart_fl.services.aggregator.worker.ranks import Ranks
from rampart_fl.shared.built_experiment import build_plan
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.figures.estimate import of_model
from rampart_fl.shared.learning.network.vector import outline, spec_of
from rampart_fl.shared.protocol.estimates import Estimate
from rampart_fl.shared.round.rounds import check_divides


def needs(experiment: Experiment, settings: Settings, ranks: Ranks) -> Estimate:
    """Estimates the memory, disk space and traffic of an experiment on this worker.

    Raises:
        ConfigurationError: a stage or the model cannot be divided among the ranks, or the run needs
            more memory than RAMPART_POOL_MEMORY.
    """
    spec, plan, limit = spec_of(outline(experiment)), build_plan(experiment), None
    if ranks.size > 1:
        check_divides(plan, spec)
    if settings.pool_memory is not None:
        most, files = 4 * ranks.most(spec.dim), ranks.device(settings.device).type == "cpu"
        memory_for_blocks(experiment, plan, spec.dim, most, settings.pool_memory, files)
        # RAMPART_POOL_MEMORY limits each process, and a process needs memory in proportion to its
        # coordinates. The process with the most coordinates therefore reaches its limit first, and
        # determines the limit for all processes together.
        limit = settings.pool_memory * 4 * spec.dim // most
    return of_model(experiment, spec, plan, limit)
