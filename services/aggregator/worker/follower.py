"""When rank 0 calls a method, every other rank runs the same method on its own coordinates."""

from contextlib import suppress

from rampart_fl.services.aggregator.settings import Settings
from rampart_fl.services.aggregator.state.run_blobs import RunBlobs
from rampart_fl.services.aggregator.worker.ranks import EXPECTED_ERRORS, Ranks
from rampart_fl.services.aggregator.worker.round_engine import RoundEngine
from rampart_fl.services.aggregator.worker.torch_setup import set_up_torch


def follow(settings: Settings, blobs: RunBlobs, ranks: Ranks) -> None:
    """Executes the calls that rank 0 sends, until rank 0 exits."""
    set_up_torch(settings)
    round_engine: RoundEngine | None = None
    while (call := ranks.next_call()) is not None:
        name, arguments, named = call
        with suppress(*EXPECTED_ERRORS):  # Rank 0 gets the same error, and handles it.
            if name == "begin":
                run, experiment, spec, seed = arguments
                round_engine = RoundEngine(
                    experiment,
                    spec,
                    blobs.of_run(run),
                    ranks.device(settings.device),
                    settings.pool_memory,
                    ranks,
                    seed,
                )
            elif name == "release":
                round_engine = None
            else:
                getattr(round_engine, name)(*arguments, **named)
