"""The command line of `rampart certify`."""

import json
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rampart_fl.services.console.commands.parallel import Gpus, Jobs, Ray
from rampart_fl.services.console.commands.unused import refuse_unused
from rampart_fl.shared.runtime import durable

if TYPE_CHECKING:
    from rampart_fl.shared.simulation.certification import Certificate


def certify(
    context: typer.Context,
    experiment: Annotated[
        str, typer.Argument(help="An experiment file, or the name of a shipped experiment.")
    ],
    subsets: Annotated[
        int | None,
        typer.Option(
            min=1, help="Let this many random subsets of clients vote, instead of disjoint groups."
        ),
    ] = None,
    size: Annotated[
        int | None, typer.Option(min=1, help="Number of clients in each subset.")
    ] = None,
    error: Annotated[
        float,
        typer.Option(
            min=1e-12,
            max=0.5,
            help="With --subsets: error level E; with C classes, each bound on the votes for a "
            "class is wrong with probability at most E/C.",
        ),
    ] = 0.001,
    rounds: Annotated[int | None, typer.Option(min=1, help="Number of rounds.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Random seed.")] = None,
    device: Annotated[
        str, typer.Option(envvar="RAMPART_DEVICE", help="Device: cpu, cuda, cuda:1.")
    ] = "cpu",
    jobs: Jobs = 1,
    ray: Ray = None,
    gpus: Gpus = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the certificate and for the models of subsets.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False,
) -> None:
    """Trains groups of clients separately, and prints the certified accuracy of the models' vote.

    For each number of hostile clients, prints the fraction of test samples that the vote classifies
    correctly, no matter what the hostile clients do. By default, the experiment's flcert customizer
    defines the groups. With --subsets, the groups are random subsets of all clients. Every subset
    is a separate federation, so subsets can train in parallel or on Ray. With --out, a repeated
    command trains only the subsets whose models are not yet in OUT/models.
    """
    from rampart_fl.services.console import downloads
    from rampart_fl.services.console.display.progress import Progress
    from rampart_fl.services.console.folder_lock import locked
    from rampart_fl.services.console.studies.batch import run_all
    from rampart_fl.services.console.studies.pools import pool
    from rampart_fl.services.console.studies.subset_models import SubsetModels
    from rampart_fl.shared.experiment import Experiment
    from rampart_fl.shared.simulation.certification import Each, certify_groups, certify_subsets
    from rampart_fl.shared.validation import validate

    if (subsets is None) != (size is None):
        raise typer.BadParameter("give both --subsets and --size, or neither")
    if subsets is None:
        refuse_unused(context, "without --subsets, every certificate is exact", "error")
    where = pool(jobs, ray, gpus=gpus, device=device)
    if subsets is None and where is not None:
        raise typer.BadParameter(
            "--jobs and --ray need --subsets: without --subsets, all groups train in one federation"
        )
    options = {"rounds": rounds, "seed": seed}
    changes = {name: value for name, value in options.items() if value is not None}
    chosen = validate(Experiment.from_tables({**Experiment.load(experiment).tables(), **changes}))
    with locked(out):
        if ray is None:
            downloads.fetch_all([chosen])
        with Progress(chosen.name) as progress:
            if subsets is None or size is None:
                certificate = certify_groups(chosen, device, progress.show)
            else:
                train: Each = partial(run_all, pool=where)
                if out is not None:
                    train = SubsetModels(chosen, out / "models", where).train
                certificate = certify_subsets(
                    chosen, subsets, size, error, device, progress.show, train
                )
        tables = {
            "experiment": chosen.name,
            "experiment_digest": chosen.digest(),
            **asdict(certificate),
        }
        if out is not None:
            _write(out, tables, certificate, chosen.name)
    sys.stdout.write(json.dumps(tables) + "\n" if as_json else describe(certificate))


def describe(certificate: "Certificate") -> str:
    """Formats the certificate as Markdown."""
    sure = (
        f", each certificate holds with probability {1 - certificate.error:g}"
        if certificate.error
        else ""
    )
    lines = [
        f"{certificate.voters} models of {certificate.scheme} among {certificate.clients} clients "
        f"vote on {certificate.samples} test samples{sure}; {certificate.present} attackers took "
        "part.",
        "",
        "| hostile clients tolerated | certified accuracy |",
        "|---:|---:|",
        *(f"| {m} | {share:.1%} |" for m, share in enumerate(certificate.curve)),
    ]
    return "\n".join(lines) + "\n"


def _write(out: Path, tables: dict[str, Any], certificate: "Certificate", name: str) -> None:
    from rampart_fl.services.console.studies.plots import MatplotlibMissing, curves

    durable.replace_text(out / "certificate.json", json.dumps(tables, indent=1) + "\n")
    line = {
        f"{certificate.voters} {certificate.scheme}": [100 * share for share in certificate.curve]
    }
    try:
        curves(
            out / "certificate.png",
            f"{name}: accuracy that m hostile clients cannot change",
            "hostile clients",
            list(range(len(certificate.curve))),
            {"certified accuracy, %": line},
        )
    except MatplotlibMissing as missing:
        sys.stderr.write(f"{missing}\n")
