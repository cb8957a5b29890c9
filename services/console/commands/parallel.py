"""The options of commands that can execute runs in parallel or on a Ray cluster."""

from typing import Annotated

import typer

Jobs = Annotated[int, typer.Option(min=1, help="Number of runs to execute at the same time.")]
Ray = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Execute the runs on the Ray cluster at HOST:PORT, on the cluster to which this "
        "machine belongs (auto), or on a new cluster on this machine (local).",
    ),
]
Gpus = Annotated[
    float | None,
    typer.Option(min=0.01, max=1, help="Share of a GPU for each run on Ray; by default, 1."),
]
