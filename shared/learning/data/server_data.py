"""Samples that the server holds: public data, a trusted root set, and a test set.

The samples can come from any data set; they are converted to the model's input shape. Grey images
are copied to all channels, colour images are converted to luminance, and images are resized by
bilinear interpolation (for example, USPS from 16x16 to 28x28). If the samples come from the
clients' data set, no client holds them.

Legend: n samples, C channels, H rows, W columns.
"""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.experiment.schema import Data
from rampart_fl.shared.learning.data import checked_samples
from rampart_fl.shared.learning.data.augmentation import luminance
from rampart_fl.shared.learning.data.client_data import partition_data
from rampart_fl.shared.learning.data.datasets import Dataset, datasets
from rampart_fl.shared.seeding import generator

SampleRole = Literal["public", "root", "test"]
"""What the server's samples are for; each role's samples are drawn with a different seed."""


@dataclass(frozen=True, eq=False)
class ServerData:
    """Samples that the server holds.

    Args:
        x: float32 (n, *shape), where shape is the shape of the clients' samples.
        y: class numbers, long (n,).
        labelled: whether the data set has as many classes as the task; if not, `y` is meaningless.
        positions: the samples' positions in their data set, long (n,), sorted.
    """

    x: Tensor
    y: Tensor
    labelled: bool
    positions: Tensor


def server_data(
    spec: "str | dict[str, Any]",
    size: int,
    data: Data,
    seed: int,
    role: SampleRole = "public",
    labels: bool = False,
    taken: Tensor | None = None,
) -> ServerData:
    """`size` samples of a data set, in the input shape of the clients' model.

    Args:
        spec: the data set, as in an experiment's `data.dataset`.
        size: number of samples.
        data: the clients' `data` table, which determines the shape, the classes, and the samples
            that clients hold.
        seed: the experiment's seed.
        role: what the samples are for; the random draw depends on the role.
        labels: whether labels of the task are needed.
        taken: positions of samples that must not be drawn, because they serve another role.
    Raises:
        ConfigurationError: the samples cannot be converted, there are too few samples, or the
            needed labels cannot be used. Labels can be used only if the data set has as many
            classes as the clients' data.

    >>> table = Data(dataset="digits", reserved=100)
    >>> held = server_data("digits", 100, table, seed=1, role="root", labels=True)
    >>> tuple(held.x.shape), held.labelled
    ((100, 1, 8, 8), True)
    """
    own, source = datasets.parse(data.dataset), require_fit(spec, size, data, labels)
    if source.name == own.name:
        if source != own:
            raise ConfigurationError(
                f"the server and the clients use the data set {source.name!r} with different "
                "parameters; the parameters must be the same"
            )
        samples, parts = partition_data(data, seed)
        held = torch.cat(parts)
        hint = f": no client may hold them; set data.reserved to {size} or more"
    else:
        samples = checked_samples.load(source)
        held, hint = torch.arange(0), ""
    free = torch.ones(len(samples.y), dtype=torch.bool)
    free[held if taken is None else torch.cat([held, taken])] = False
    pool = free.nonzero().flatten()
    if len(pool) < size:
        raise ConfigurationError(
            f"the server needs {size} samples of {source.name}, but only {len(pool)} are free{hint}"
        )
    draws = generator(seed, "server data", role)
    picks = pool[torch.randperm(len(pool), generator=draws)[:size]].sort().values
    return ServerData(
        convert_shape(samples.take(picks), own.shape),
        samples.y[picks],
        source.classes == own.classes,
        picks,
    )


def require_fit(
    spec: "str | dict[str, Any]", size: int, data: Data, labels: bool = False
) -> Dataset:
    """Returns the data set if its samples fit the clients' model; the check reads no samples.

    Raises:
        ConfigurationError: the samples cannot be converted, or the needed labels cannot be used.
            Labels can be used only if the data set has as many classes as the clients' data.
    """
    own = datasets.parse(data.dataset)
    source = datasets.parse(spec, sample=list(own.shape), size=size)
    given, wanted = source.shape, own.shape
    pictures = len(given) == 3 and len(wanted) == 3 and min(*given[1:], *wanted[1:]) > 1
    channels = given[:1] == wanted[:1] or {*given[:1], *wanted[:1]} == {1, 3}
    if given != wanted and not (pictures and channels):
        raise ConfigurationError(
            f"samples of {source.name} have shape {given}; they cannot be "
            f"converted to shape {wanted}"
        )
    if labels and source.classes != own.classes:
        raise ConfigurationError(
            f"{source.name} has {source.classes} classes, but the clients' {own.name} has "
            f"{own.classes}: the server cannot use these labels"
        )
    return source


def convert_shape(x_nCHW: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Converts samples to a shape; returns the same tensor if they already have this shape.

    >>> convert_shape(torch.ones(2, 1, 16, 16), (3, 32, 32)).shape
    torch.Size([2, 3, 32, 32])
    """
    if x_nCHW.shape[1:] == shape:
        return x_nCHW
    if x_nCHW.shape[1] > shape[0]:
        x_nCHW = luminance(x_nCHW)
    if x_nCHW.shape[2:] != shape[1:]:
        x_nCHW = functional.interpolate(
            x_nCHW, shape[1:], mode="bilinear", align_corners=False, antialias=True
        )
    return x_nCHW.expand(-1, shape[0], -1, -1).contiguous()
