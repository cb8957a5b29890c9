"""Starts runs: checks experiments, and makes the first model of a run."""

import logging
from pathlib import Path

from rampart_fl.services.aggregator.state.record_store import RecordStore
from rampart_fl.services.aggregator.state.run_blobs import RunBlobs
from rampart_fl.services.aggregator.state.stored_values import read_model
from rampart_fl.services.aggregator.state.stores import Stores
from rampart_fl.services.aggregator.worker.disk.kept_models import KeptModels
from rampart_fl.services.aggregator.worker.round_engine import RoundEngine
from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.experiment.start import Start
from rampart_fl.shared.learning.training.personalizers import personalizers
from rampart_fl.shared.protocol.stored_rounds import StoredRound
from rampart_fl.shared.runtime.compute import Compute
from rampart_fl.shared.validation import barring_conflict, validate

log = logging.getLogger(__name__)


def check_experiment(experiment: Experiment, start_models: Path | None) -> Experiment:
    """Checks an experiment; returns it with the field `packages` filled in.

    Args:
        experiment: the experiment of a submission.
        start_models: folder with the model files from which experiments may start.
    Raises:
        RampartError: a federation cannot run the experiment; the error says why.
    """
    _check_start(experiment.start, start_models)
    return check_networked(validate(experiment))


def check_networked(experiment: Experiment) -> Experiment:
    """Returns the experiment if it can run over the network.

    Raises:
        ConfigurationError: the experiment can only be simulated, because its personalizer needs
            every client's gradient at every client's model.
    """
    if personalizers.parse(experiment.personalizer).simulated_only:
        raise ConfigurationError(
            f"personalizer {experiment.personalizer['name']!r} needs every client's gradient at "
            "each client's model, so it runs in simulations only (rampart simulate)"
        )
    return experiment


def _check_start(start: Start | None, folder: Path | None) -> None:
    """Refuses an experiment that starts from a model file outside of `folder`.

    The message does not reveal whether the file exists.

    Raises:
        ConfigurationError: operators are not allowed to start runs with this file.
    """
    if start is None or start.file is None:
        return
    if folder is None:
        raise ConfigurationError(
            "model.start: this federation cannot start a run from a file, because "
            'RAMPART_START_MODELS is not set; name a run instead, as in { run = "..." }'
        )
    if not Path(start.file).resolve().is_relative_to(folder.resolve()):
        raise ConfigurationError(
            f"model.start: {start.file} is not in RAMPART_START_MODELS, the folder {folder} on the "
            "worker's machine"
        )


async def start_run(
    run: str,
    stores: Stores,
    blobs: RunBlobs,
    compute: Compute,
    fence: int,
    models_kept: int,
    predictable: bool = False,
) -> str:
    """Starts the run at the head of the queue; returns the result of `RunStore.start`.

    Args:
        run: the run's id.
        stores, blobs: the federation's state.
        compute: runs a function on the round engine's thread.
        fence: the worker's fencing token.
        models_kept: number of newest rounds of each run whose global models are kept.
        predictable: whether the server's random draws follow from the experiment's seed.
    Raises:
        Exception: the run cannot be started.
    """
    experiment = await stores.runs.experiment(run)
    located = experiment
    if experiment.start is not None and experiment.start.run is not None:
        file = await _model_of(experiment.start, stores, blobs, models_kept)
        located = experiment.started_from(file)
    spec, snapshot = await compute(RoundEngine.first_model, located, blobs.of_run(run))
    now, patience = await stores.redis.time(), experiment.phases.joining.deadline
    deadline = None if patience is None else now + patience
    state = stores.of_run(run).state
    seed = experiment.seed if predictable else None
    conflict = await compute(barring_conflict, experiment)
    return await state.start(fence, experiment, spec, snapshot, now, deadline, seed, conflict)


async def _model_of(start: Start, stores: Stores, blobs: RunBlobs, models_kept: int) -> Path:
    """The path of the file with another run's global model.

    If `start.round` is given, the file has the model after this round; otherwise, the latest model.
    """
    assert start.run is not None
    source, held = stores.of_run(start.run), blobs.of_run(start.run)
    if await stores.runs.entry(start.run) is None:
        raise ConfigurationError(f"model.start: there is no run {start.run!r}")
    state = await source.state.read()
    if state is None:
        raise ConfigurationError(
            f"model.start: run {start.run!r} has not started, so it has no model"
        )
    digest = state.snapshot.global_model
    if start.round is not None:
        digest = await _model_after(start, source.records(held))
        kept = KeptModels(models_kept)
        await kept.restore(source.records(held), state.round)
        # A model that is not in `kept` can still exist, but a sweep can delete it at any time.
        if digest not in {state.snapshot.global_model, *kept.digests}:
            raise ConfigurationError(
                f"model.start: the model of run {start.run!r} after round {start.round} is not "
                f"kept; only the models of the newest {models_kept} rounds are kept "
                "(RAMPART_MODELS_KEPT)"
            )
    try:
        with held.open(digest) as file:
            return Path(file.name)
    except FileNotFoundError:
        raise ConfigurationError(
            f"model.start: the blobs of run {start.run!r} do not contain its global model; restore "
            "the blobs"
        ) from None


async def _model_after(start: Start, records: RecordStore) -> str:
    """The digest of a run's global model after one of its rounds."""
    assert start.round is not None
    entry = await records.entry(start.round)
    record = None if entry is None else await records.record_json(entry)
    stored = None if record is None else read_model(StoredRound, record)
    if stored is None or "global" not in stored.models:
        raise ConfigurationError(
            f"model.start: run {start.run!r} published no model in round {start.round}"
        )
    return stored.models["global"]
