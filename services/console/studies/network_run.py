"""Runs one experiment over HTTP, with real processes on this machine."""

import shutil
import time
from pathlib import Path
from typing import Any

from rampart_fl.services.console.connection.operated_run import require_finished
from rampart_fl.shared.attacks.model import attacks as model_attacks
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.runtime.tokens import mint


def run_services(experiment: Experiment, folder: Path, device: str = "cpu") -> dict[str, Any]:
    """Runs an experiment with real processes on this machine; returns the results.

    If an attack asks for full knowledge, the function enables the aggregator's test tap. Through
    the test tap, the attackers read the updates of the honest clients. `device` is the aggregator's
    device.

    Raises:
        RunUnfinished: the run failed or was cancelled.
    """
    from rampart_fl.services.console.launcher.forked import ForkedProcesses
    from rampart_fl.services.console.launcher.local_federation import LocalFederation
    from rampart_fl.shared.figures.final import final_figures

    began = time.monotonic()
    knowing = any(
        group.attack is not None and model_attacks.parse(group.attack).asks_for == "full"
        for group in experiment.attackers
    )
    settings = {"RAMPART_DEVICE": device}
    if knowing:
        settings["RAMPART_TEST_TAP"] = mint()
    # A federation executes one run at a time, so parallel cells need separate federations.
    federation = LocalFederation(experiment, folder, settings=settings, processes=ForkedProcesses)
    with federation:
        federation.start_clients()
        while (status := federation.run.status()).phase != "done":
            federation.processes.check("redis", "aggregator")
            time.sleep(0.5)  # Poll the status until the run ends.
        require_finished(federation.run.info())
        records = list(federation.run.records(0, status.round, mixing=False))
    return {
        "experiment": experiment.name,
        "experiment_digest": experiment.digest(),
        "rounds": len(records),
        **final_figures(experiment, [r.metrics for r in records], status.evicted),
        "failed_rounds": sum(record.status == "failed" for record in records),
        "seconds": round(time.monotonic() - began, 3),
    }


def run_or_continue(experiment: Experiment, folder: Path, device: str = "cpu") -> dict[str, Any]:
    """Like `run_services`, but continues the run that an earlier execution left in the folder.

    The earlier run may have ended before its results were stored. In this case, a new run replaces
    it.
    """
    from rampart_fl.services.console.launcher.local_federation import RunEnded

    left = folder.exists()
    try:
        return run_services(experiment, folder, device)
    except RunEnded:
        if not left:
            raise
    shutil.rmtree(folder)
    return run_services(experiment, folder, device)
