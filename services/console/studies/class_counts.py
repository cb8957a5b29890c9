"""The number of samples per client and class, as tables and plots."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.box import SIMPLE
from rich.table import Table
from rich.text import Text

from rampart_fl.services.console.studies import plots
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.rounding import ceil_div

SHADES = "·░▒▓█"
"""Characters for counts. The first character stands for the count 0. Each of the other four
characters stands for a quarter of the range from 0 to the largest count."""
IN_FIGURES = 12
"""With at most this number of classes, a table shows counts; with more, it shows characters from
`SHADES`."""


@dataclass(frozen=True)
class ClientSampleCounts:
    """One client's samples.

    Args:
        client: name of the client.
        train, test: numbers of the client's training samples and test samples.
        classes: number of the client's samples per class, including training and test samples.
    """

    client: str
    train: int
    test: int
    classes: list[int]

    @property
    def class_count(self) -> int:
        """Number of classes of which the client has samples."""
        return sum(count > 0 for count in self.classes)


def count_classes(experiment: Experiment) -> list[ClientSampleCounts]:
    """Counts the samples of every client, in the order of the slots.

    Raises:
        ConfigurationError: the data set is missing, or the partition cannot divide it.
    """
    import torch

    from rampart_fl.shared.families import plugins
    from rampart_fl.shared.learning.data.client_data import client_data

    clients = []
    with plugins.record_lookups(experiment.packages):
        for slot, name in enumerate(experiment.client_names):
            own = client_data(experiment.data, slot, experiment.seed)
            y = torch.cat([own.y_train, own.y_test])
            counts = y.bincount(minlength=own.classes).tolist()
            clients.append(ClientSampleCounts(name, len(own.y_train), len(own.y_test), counts))
    return clients


def tables(experiment: Experiment, clients: list[ClientSampleCounts]) -> dict[str, Any]:
    """The class counts of all clients and the settings of the partition, as JSON values."""
    return {
        "experiment": experiment.name,
        "dataset": experiment.data.dataset,
        "partition": experiment.data.partition,
        "seed": experiment.seed,
        "clients": [
            {
                "client": own.client,
                "train": own.train,
                "test": own.test,
                "held": own.class_count,
                "classes": own.classes,
            }
            for own in clients
        ],
    }


def table(experiment: Experiment, clients: list[ClientSampleCounts]) -> Table:
    """A table of the samples per class, with one row per client.

    If there are more than `IN_FIGURES` classes, the table shows one character per class instead of
    the count. The colour of a count shows its size relative to the largest count.
    """
    classes = len(clients[0].classes)
    top = max(max(own.classes) for own in clients)
    shown = Table(title=title(experiment), box=SIMPLE, pad_edge=False, padding=(0, 0, 0, 1))
    shown.add_column("client", no_wrap=True)
    for name in ("train", "test", "held"):
        shown.add_column(name, justify="right", no_wrap=True)
    if classes <= IN_FIGURES:
        for label in range(classes):
            shown.add_column(str(label), justify="right", no_wrap=True)
    else:
        shown.add_column(f"classes 0 to {classes - 1}", overflow="fold")
    for own in clients:
        row: list[str | Text] = [own.client, str(own.train), str(own.test), str(own.class_count)]
        if classes <= IN_FIGURES:
            row += [_cell(count, top) for count in own.classes]
        else:
            row.append("".join(shade(count, top) for count in own.classes))
        shown.add_row(*row)
    return shown


def shade(count: int, top: int) -> str:
    """A character for a count; larger counts have darker characters.

    >>> [shade(count, 100) for count in (0, 1, 26, 51, 100)]
    ['·', '░', '▒', '▓', '█']
    """
    return SHADES[ceil_div(count * (len(SHADES) - 1), max(top, 1))]


def _cell(count: int, top: int) -> Text:
    if not count:
        return Text("·", "dim")
    level = round(40 + 150 * count / top)
    return Text(str(count), f"white on rgb(20,{level // 2},{level})")


def title(experiment: Experiment) -> str:
    """The title of a table or plot: experiment, data set, partition and seed."""
    data = experiment.data

    def as_text(spec: dict[str, Any]) -> str:
        rest = ", ".join(f"{key} {value}" for key, value in spec.items() if key != "name")
        return f"{spec['name']} ({rest})" if rest else str(spec["name"])

    members = f"{as_text(data.dataset)}, {as_text(data.partition)}"
    return f"{experiment.name}: {members}, seed {experiment.seed}"


def picture(experiment: Experiment, clients: list[ClientSampleCounts], path: Path) -> None:
    """Draws the counts as a heat map with one row per client.

    Raises:
        MatplotlibMissing: matplotlib is not installed.
    """
    grid = [own.classes for own in clients]
    classes = len(grid[0])
    drawn = plots.figure(min(3 + 0.3 * classes, 24), min(1.6 + 0.22 * len(grid), 24), "heat map")
    drawn.suptitle(title(experiment), fontsize=9)
    axis = drawn.subplots()
    image = axis.imshow(grid, cmap="Blues", vmin=0, aspect="auto", interpolation="nearest")
    axis.set_xlabel("class")
    if len(grid) <= 60:
        axis.set_yticks(range(len(grid)), [own.client for own in clients], fontsize=7)
    if classes <= 60:
        axis.set_xticks(range(classes), map(str, range(classes)), fontsize=7)
    drawn.colorbar(image, label="samples")
    drawn.savefig(path, dpi=90)
