"""Estimates what a run needs: memory of the worker, disk space for blobs, and traffic per client.

Legend: N clients in a round, C clients of the experiment, B bytes of a model in float32, L
customized models.
"""

from rampart_fl.shared.built_experiment import build_plan
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.learning.network.vector import outline, spec_of
from rampart_fl.shared.modelspec import ModelSpec
from rampart_fl.shared.protocol.estimates import Estimate
from rampart_fl.shared.protocol.traffic import model_bytes
from rampart_fl.shared.robust.engine import Plan
from rampart_fl.shared.robust.histories import (
    blocks_held,
    challenged_controls,
    history_rows,
    most_rows,
)
from rampart_fl.shared.robust.view import WINDOW

PROCESS = 400 * 2**20
"""Bytes of memory that a worker without rows needs: 350 MiB before the first round, plus 50 MiB for
buffers."""
VECTORS = 4
"""Number of model-sized vectors that a worker holds while it reads rows from a file."""
REPORT = 400
"""Size of the report in an upload, in bytes."""
RECORD, VERDICT = 600, 150
"""Bytes of a round's compressed record: a fixed part, and a part for each client."""
SKETCH = 16 * 2**10
"""Size in bytes of a detector's state for one client, without the client's row."""


def estimate(experiment: Experiment) -> Estimate:
    """Estimates the resources that a run needs if all clients of the experiment take part.

    The worker needs 400 MiB + B·(N·(p + 0.3) + h) of memory. Here, p is the number of blocks of N
    rows that the worker holds at the same time. The stages hold h rows from earlier rounds. The
    module `rampart_fl.shared.robust.histories` computes p and h.

    Blobs need B·(N·(1 + k) + 2C·s + 2L + 4) bytes of disk, plus the size of the records. Here, k is
    1 if rows are needed after the round in which they arrive; otherwise, k is 0. The number s
    counts the stages that store a row for each client.

    If the memory for rows is limited, the blocks of N rows that exceed the limit are on the disk.
    If any rows are on the disk, the worker reads them in pieces, so the term 0.3·B·N is limited to
    512 MiB + 4·B.

    Each detector also needs 32 KiB of memory and 32 KiB of disk per client.

    The estimate assumes uploads in float32 without compression. The estimate includes the records
    of all rounds, but excludes data sets.

    >>> needs = estimate(Experiment.load("digits-benign"))
    >>> needs.clients, needs.down_bytes // 1000
    (20, 153)
    """
    return of_model(experiment, spec_of(outline(experiment)), build_plan(experiment))


def of_model(
    experiment: Experiment, spec: ModelSpec, plan: Plan, pool_memory: int | None = None
) -> Estimate:
    """Like `estimate`, but for a model and stages that are already built.

    Args:
        experiment: the experiment of the run.
        spec: the experiment's model.
        plan: the experiment's stages.
        pool_memory: limit on the memory for rows, in bytes, summed over the worker's processes;
            None if there is no limit.
    """
    n, clients, b = most_rows(plan, experiment), experiment.most_clients, 4 * spec.dim
    customizer = plan.customizer
    stages = (*plan.detectors, *plan.pipeline.stages)
    remembering = sum(stage.remembers for stage in stages)
    held = blocks_held(plan)
    kept = customizer.probes or experiment.policy == "buffered"
    drawn = experiment.most_rows
    mixed = customizer.models_of(drawn)
    models = max(mixed, min(clients, mixed + n - drawn + challenged_controls(plan, drawn, clients)))
    record = RECORD + VERDICT * n + (4 * drawn * mixed if mixed == drawn else 0)
    records = record * experiment.rounds
    history, in_memory = (sum(history_rows(plan, seen).values()) for seen in (clients, 0))
    remembered = history - in_memory
    sketches = 2 * SKETCH * clients * len(plan.detectors)
    filed, more = 0, 0.3 * b * n
    if pool_memory is not None:
        room = max(0, pool_memory - b * in_memory)
        filed = n * max(0, held - room // (b * n))
        if b * (n * held - filed + remembered) > room:
            filed += remembered
    if filed:
        more = min(more, 2 * WINDOW + VECTORS * b)
    down = model_bytes(spec) * (1 + customizer.offered)
    up = model_bytes(spec) + REPORT
    # A client's first probe causes as much traffic as a round. The final evaluation needs one more
    # download.
    turns = round(experiment.rounds * experiment.fraction) + customizer.probes
    return Estimate(
        parameters=spec.dim,
        clients=n,
        memory_bytes=PROCESS + b * (n * held + history - filed) + round(more) + sketches,
        disk_bytes=b * (n * (1 + kept) + filed + 2 * clients * remembering + 2 * models + 4)
        + sketches
        + records,
        record_bytes=records,
        down_bytes=down,
        up_bytes=up,
        client_bytes=turns * (down + up) + down,
    )
