"""Models as vectors (parameters, then running statistics), and a federation's initial model.

Legend: D elements of a vector, K models.
"""

import torch
from torch import Tensor, nn

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.learning.data.datasets import datasets
from rampart_fl.shared.learning.network.models import models
from rampart_fl.shared.learning.network.starting_model import read_start
from rampart_fl.shared.modelspec import STATISTIC, ModelSpec
from rampart_fl.shared.seeding import derive

BATCH_NORM = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def spec_of(module: nn.Module) -> ModelSpec:
    """The tensors that a federation shares: a module's parameters and running statistics.

    Buffers that are not saved with a module (persistent=False) are treated as constants.

    Raises:
        ConfigurationError: the module saves buffers that are not running statistics, or its batch
            normalization has no running statistics or no momentum.

    >>> spec_of(nn.Linear(3, 2)).layout
    (('bias', 0, 2), ('weight', 2, 8))
    """
    tensors = {**dict(module.named_parameters()), **statistics(module)}
    return ModelSpec.of((name, tensor.shape) for name, tensor in tensors.items())


def statistics(module: nn.Module) -> dict[str, Tensor]:
    """The running means and variances of a module's batch normalization, keyed by tensor name.

    If the module uses a layer several times, the layer's tensors are listed once, under the layer's
    first name. `named_parameters` does the same with parameters.
    """
    tensors: dict[str, Tensor] = {}
    known = {name for name, _ in module.named_parameters(remove_duplicate=False)}
    seen: set[nn.Module] = set()
    for name, layer in module.named_modules(remove_duplicate=False):
        if not isinstance(layer, BATCH_NORM):
            continue
        prefix = f"{name}." if name else ""
        if layer.running_mean is None or layer.running_var is None or layer.momentum is None:
            raise ConfigurationError(
                f"batch normalization {name!r} needs track_running_stats and a momentum"
            )
        known |= {prefix + own for own in ("running_mean", "running_var", "num_batches_tracked")}
        if layer not in seen:
            tensors[f"{STATISTIC}{prefix}running_mean"] = layer.running_mean
            tensors[f"{STATISTIC}{prefix}running_var"] = layer.running_var
        seen.add(layer)
    unknown = [name for name in module.state_dict() if name not in known]
    if unknown:
        raise ConfigurationError(
            f"the buffers {', '.join(unknown)} are not statistics of batch normalization, so "
            "clients cannot share them; register constants with persistent=False"
        )
    return tensors


def sources(module: nn.Module) -> dict[str, str]:
    """Maps the name of each tensor of each layer to the tensor's name in `spec_of`.

    Running statistics are named without their first character `~`. If several layers share a
    tensor, `spec_of` uses the name that the tensor has in the first of these layers. A layer that
    the module uses several times is listed once.

    >>> first, second = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
    >>> second.weight = first.weight
    >>> sources(nn.Sequential(first, second, first))
    {'0.weight': '0.weight', '1.weight': '0.weight'}
    """
    first: dict[nn.Parameter, str] = {}
    names = {}
    for layer_name, layer in module.named_modules():
        for own, parameter in layer.named_parameters(recurse=False, remove_duplicate=False):
            name = f"{layer_name}.{own}" if layer_name else own
            names[name] = first.setdefault(parameter, name)
    moving = (name.removeprefix(STATISTIC) for name in statistics(module))
    return names | {name: name for name in moving}


def flatten(module: nn.Module) -> Tensor:
    """The module's tensors copied into one vector (D,), in the order of `spec_of`."""
    tensors = {**dict(module.named_parameters()), **statistics(module)}
    return torch.cat([tensors[one.name].detach().flatten() for one in spec_of(module).tensors])


def unflatten(models_KD: Tensor, spec: ModelSpec) -> dict[str, Tensor]:
    """Splits vectors into views of the model's tensors; each view keeps the leading dimensions.

    >>> spec = ModelSpec.of([("weight", (2, 3)), ("bias", (2,))])
    >>> {name: tuple(t.shape) for name, t in unflatten(torch.zeros(5, 8), spec).items()}
    {'bias': (5, 2), 'weight': (5, 2, 3)}
    """
    if models_KD.shape[-1] != spec.dim:
        raise ValueError(
            f"the vectors have {models_KD.shape[-1]} numbers, but the model has {spec.dim}"
        )
    # Split the vectors once, so that the backward pass needs only one concatenation.
    parts = torch.split(models_KD, [tensor.size for tensor in spec.tensors], dim=-1)
    return {
        tensor.name: part.reshape((*models_KD.shape[:-1], *tensor.shape))
        for tensor, part in zip(spec.tensors, parts, strict=True)
    }


def load(module: nn.Module, model_D: Tensor) -> nn.Module:
    """Writes a vector (D,) into a module, and returns the module."""
    tensors = unflatten(model_D, spec_of(module))
    # `strict=False` allows `num_batches_tracked` to be missing; no result depends on this counter.
    # All other tensors are present, because the names come from the module's own spec.
    module.load_state_dict({n.removeprefix(STATISTIC): t for n, t in tensors.items()}, strict=False)
    return module


def build_module(experiment: Experiment) -> nn.Module:
    """The experiment's model, sized for its data set, with parameters drawn from its seed."""
    data = datasets.parse(experiment.data.dataset)
    member = models.parse(experiment.network)
    if member.task != data.task:
        raise ConfigurationError(
            f"model {member.name!r} is for {member.task}, but data set {data.name!r} is for "
            f"{data.task}"
        )
    with torch.random.fork_rng(devices=[]):
        # Unlike `torch.manual_seed`, seeding `default_generator` leaves the generators of other
        # devices unchanged.
        torch.default_generator.manual_seed(derive(experiment.seed, "initial model"))
        return member.checked_build(data.shape, data.classes)


def outline(experiment: Experiment) -> nn.Module:
    """The experiment's model; if it is one of Rampart's own models, its tensors have no values.

    Tensors without values need no memory, even if the model is large. A user's model is built with
    values, because its code may need them.
    """
    member = models.parse(experiment.network)
    if member.package or member.name == "module":
        return build_module(experiment)
    with torch.device("meta"):
        return build_module(experiment)


def initial_model(experiment: Experiment) -> tuple[ModelSpec, Tensor]:
    """The model's spec and the first global model (D,) in float32, the same in every process.

    The model is drawn from the seed, or read from the file that `model.start` names. The function
    reads no samples.

    >>> spec, model_D = initial_model(Experiment.load("digits-benign"))
    >>> model_D.shape == (spec.dim,)
    True
    """
    module = build_module(experiment)
    spec = spec_of(module)
    return spec, flatten(module) if experiment.start is None else read_start(experiment.start, spec)
