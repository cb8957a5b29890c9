"""The head of a model: the coordinates of the model's vector that clients may keep local.

Legend: D parameters.
"""

from functools import lru_cache

import torch
from torch import Tensor, nn

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.modelspec import STATISTIC, ModelSpec
from rampart_fl.shared.runtime.device import to_device


def last_linear(module: nn.Module) -> str:
    """Name of the last `torch.nn.Linear` of a module, in the order of `named_modules`.

    Raises:
        ConfigurationError: the module has no linear layer.

    >>> last_linear(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)))
    '2'
    """
    layers = module.named_modules()
    names: list[str] = [name for name, layer in layers if isinstance(layer, nn.Linear)]
    if not names:
        raise ConfigurationError(
            "the model has no linear layer as its head: set `head` to the name of a layer"
        )
    return names[-1]


def last_layer(module: nn.Module) -> str:
    """Name of a module's last linear layer; if it has none, of its last layer with parameters.

    >>> last_layer(nn.Sequential(nn.Conv1d(1, 1, 1), nn.ReLU()))
    '0'
    """
    if any(isinstance(layer, nn.Linear) for layer in module.modules()):
        return last_linear(module)
    *_, last = (name for name, _ in module.named_parameters())
    return last.rpartition(".")[0]


def head_of(
    module: nn.Module,
    spec: ModelSpec,
    head: str | None = None,
    device: torch.device | str = "cpu",
) -> Tensor:
    """A bool mask (D,) of the head's coordinates; all other coordinates belong to the body.

    Args:
        module: the model.
        spec: the model's tensors.
        head: name of a layer (by default, the last linear layer); this layer and all its sublayers
            are the head.
        device: device of the result. The result is cached and must not be modified.
    Raises:
        ConfigurationError: no tensor belongs to a layer of this name.

    >>> module = nn.Sequential(nn.Linear(2, 1), nn.Linear(1, 1))
    >>> head_of(module, ModelSpec.of((name, p.shape) for name, p in module.named_parameters()))
    tensor([False, False, False,  True,  True])
    """
    return _mask(spec, last_linear(module) if head is None else head, str(device))


@lru_cache(maxsize=16)
def _mask(spec: ModelSpec, layer: str, device: str) -> Tensor:
    mask_D = torch.zeros(spec.dim, dtype=torch.bool)
    for name, start, stop in spec.layout:
        own = name.removeprefix(STATISTIC)
        if layer == "" or own == layer or own.startswith(f"{layer}."):
            mask_D[start:stop] = True
    if not bool(mask_D.any()):
        names = ", ".join(tensor.name for tensor in spec.tensors)
        raise ConfigurationError(f"the model has no layer {layer!r} with tensors; it has {names}")
    return to_device(mask_D, device)


def check_body(module: nn.Module, spec: ModelSpec, head: str | None = None) -> None:
    """Refuses a model without a body, because clients that keep the head local would share nothing.

    Raises:
        ConfigurationError: the model has no layer of this name, or all its parameters belong to the
            head.
    """
    if bool(head_of(module, spec, head).all()):
        raise ConfigurationError("all parameters belong to the head, so there is no body to share")


def check_output(module: nn.Module, head: str | None = None) -> None:
    """Refuses a head that is not a single linear layer, or that does not output the logits.

    The function checks the output only in a `torch.nn.Sequential`, because the order of the layers
    of other modules is unknown.

    Raises:
        ConfigurationError: the head does not exist or has an unsupported type, or another layer
            follows the head.
    """
    name = last_linear(module) if head is None else head
    # Keep duplicates: a layer that the module uses twice may follow the head.
    layers = dict(module.named_modules(remove_duplicate=False))
    if type(layers.get(name)) is not nn.Linear:  # A subclass may be non-linear.
        kind = type(layers[name]).__name__ if name in layers else "not there"
        raise ConfigurationError(f"the head must be one linear layer; {name!r} is {kind}")
    last = list(layers)[-1]
    if isinstance(module, nn.Sequential) and name != last:
        raise ConfigurationError(f"the head must output the logits, but {last!r} follows {name!r}")
