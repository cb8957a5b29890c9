"""Divides RAMPART_POOL_MEMORY between the histories of stages and the blocks of rows."""

from pydantic import ByteSize

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.robust.engine import Plan
from rampart_fl.shared.robust.histories import history_rows


def blocks_held(plan: Plan) -> int:
    """The largest number of blocks of rows that a worker holds at the same time.

    Every round has a block, and a second block if uploads are not calibrated. If newcomers are
    probed, the worker also holds the blocks of the last round.
    """
    return (1 if plan.calibrate else 2) * (2 if plan.customizer.probes else 1)


def memory_for_blocks(
    experiment: Experiment,
    plan: Plan,
    dim: int,
    row_bytes: int,
    limit: int,
    files: bool = True,
) -> int:
    """The part of the memory limit that remains for blocks of rows, in bytes.

    Args:
        experiment: the experiment that is run.
        plan: the stages of a round.
        dim: number of coordinates of the model.
        row_bytes: size in bytes of a row of one process.
        limit: the value of RAMPART_POOL_MEMORY in bytes.
        files: whether blocks may be in files, as on the CPU; if not, all blocks must fit into
            memory.
    Raises:
        ConfigurationError: the stages or the blocks need more memory than the limit; the message
            says what takes how much memory.
    """
    clients, rows = experiment.most_clients, experiment.most_rows
    histories, holder = history_rows(plan, clients), plan.unstreamed()
    history, parts = row_bytes * sum(histories.values()), list[str]()
    needed = history
    if holder is not None or not files:
        blocks = rows * blocks_held(plan)
        needed += row_bytes * blocks
        reason = "a GPU holds all updates in its memory"
        if holder is not None:
            reason = f"{holder.name!r} needs all updates in memory ({holder.memory_reason})"
        parts.append(
            f"{reason}: {blocks} rows of {dim:,} numbers for {rows} updates take "
            f"{_readable(row_bytes * blocks)}"
        )
    if histories:
        names = " and ".join(map(repr, histories))
        parts.append(
            f"{sum(histories.values())} rows that {names} may hold of earlier rounds, with "
            f"{clients} clients, take {_readable(history)}"
        )
    if needed > limit:
        raise ConfigurationError(
            f"{', and '.join(parts)}; together {_readable(needed)}, but RAMPART_POOL_MEMORY is "
            f"{_readable(limit)}"
        )
    return limit - history


def _readable(size: int) -> str:
    return ByteSize(size).human_readable()
