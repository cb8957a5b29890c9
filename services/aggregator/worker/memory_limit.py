"""Divides RAMPART_POOL_MEMORY between the models of groups and the blocks of rows."""

from rampart_fl.services.aggregator.worker.byte_size import readable
from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.robust.engine import Plan
from rampart_fl.shared.robust.histories import blocks_held, history_rows, most_rows


def memory_for_blocks(
    experiment: Experiment,
    plan: Plan,
    dim: int,
    row_bytes: int,
    limit: int,
    files: bool = True,
) -> int:
    """The memory for blocks of rows in bytes: the limit minus the memory for models of groups.

    The rows that stages keep for every client are also stored in blocks of rows.

    Args:
        experiment: the experiment that is run.
        plan: the stages of a round.
        dim: number of coordinates of the model.
        row_bytes: size in bytes of the part of a row that one process has.
        limit: the value of RAMPART_POOL_MEMORY in bytes.
        files: whether blocks may be in files; true on the CPU. If `files` is false, all blocks must
            fit into memory, including the rows that stages keep for every client.
    Raises:
        ConfigurationError: the stages or the blocks need more memory than the limit; the message
            says how much memory each of them needs.
    """
    clients, rows = experiment.most_clients, most_rows(plan, experiment)
    holder, parts = plan.unstreamed(), list[str]()
    filed = files and holder is None
    # The models of groups must be in memory, even if the rows of clients are in files. If the rows
    # are in files, pass 0 clients: `history_rows` then counts only the models of groups.
    histories = history_rows(plan, 0 if filed else clients)
    history = needed = row_bytes * sum(histories.values())
    if not filed:
        blocks = rows * blocks_held(plan)
        needed += row_bytes * blocks
        reason = "a GPU holds all updates in its memory"
        if holder is not None:
            reason = f"{holder.name!r} needs all updates in memory ({holder.memory_reason})"
        parts.append(
            f"{reason}: {blocks} rows of {dim:,} numbers for {rows} updates take "
            f"{readable(row_bytes * blocks)}"
        )
    if histories:
        names = " and ".join(map(repr, histories))
        held = "models of groups" if filed else "rows of earlier rounds"
        reach = "" if filed else f", with {clients} clients,"
        parts.append(
            f"{sum(histories.values())} {held} that {names} may hold{reach} take "
            f"{readable(history)}"
        )
    if needed > limit:
        raise ConfigurationError(
            f"{', and '.join(parts)}; together {readable(needed)}, but RAMPART_POOL_MEMORY is "
            f"{readable(limit)}"
        )
    return limit - row_bytes * sum(history_rows(plan, 0).values())
