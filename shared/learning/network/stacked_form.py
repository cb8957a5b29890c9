"""The stacked form of a module: a function that runs K models of one architecture at once.

A module has a stacked form only if this form certainly computes the same result as the module. The
module must therefore consist of supported layers with unchanged code, and no two layers may share a
tensor. For example, a subclass of `torch.nn.Linear` has no stacked form, because it may have a
`forward` of its own. A layer with a hook has no stacked form either, because the hook may change
the layer's output.
"""

from collections.abc import Collection, Iterable
from itertools import pairwise
from typing import NamedTuple

from torch import nn

from rampart_fl.shared.learning.network.layers import ResidualBlock, TextEmbedding
from rampart_fl.shared.learning.network.stacked_layers import (
    Layer,
    batch_norm,
    convolution,
    embedding,
    flatten_images,
    flatten_vectors,
    group_norm,
    join,
    linear,
    pooling,
    residual,
    sequence,
)
from rampart_fl.shared.modelspec import STATISTIC

ELEMENTWISE = (nn.ReLU, nn.Tanh, nn.Sigmoid, nn.GELU, nn.SiLU, nn.Identity)
POOLING = (nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d)
IMAGE, VECTOR = 3, 1
"""Number of dimensions of a sample: an image is (C, H, W), and a vector is (C,)."""


class _Form(NamedTuple):
    """A layer's stacked form, and the number of dimensions of a sample in the layer's output."""

    layer: Layer
    ndim: int


def stack_module(module: nn.Module, tensors: Collection[str], ndim: int) -> Layer | None:
    """The stacked form of a module that maps samples to vectors; None if there is no such form.

    Args:
        module: the module.
        tensors: the names of the tensors that a model's vector holds. If several layers share a
            tensor, the tensor is listed once, under its name in the first of these layers.
        ndim: number of dimensions of a sample.

    >>> stack_module(nn.Linear(2, 1), ["weight", "bias"], VECTOR) is None
    False
    >>> stack_module(nn.Linear(2, 1), ["weight", "bias"], IMAGE) is None
    True
    """
    form = _stack("", module, frozenset(tensors), ndim)
    return None if form is None or form.ndim != VECTOR else form.layer


def _stack(name: str, layer: nn.Module, tensors: frozenset[str], ndim: int) -> _Form | None:
    """The stacked form of one layer; `name` is the layer's name in its model."""
    if not _unhooked(layer):
        return None
    if _runs_its_parts(layer):
        return _stack_sequence(name, layer, tensors, ndim)
    kind = type(layer)
    if isinstance(layer, ResidualBlock) and kind is ResidualBlock:
        body = _stack(join(name, "body"), layer.body, tensors, ndim)
        shortcut = _stack(join(name, "shortcut"), layer.shortcut, tensors, ndim)
        if body is None or shortcut is None or body.ndim != shortcut.ndim:
            return None
        return _Form(residual(body.layer, shortcut.layer), body.ndim)
    if isinstance(layer, nn.Flatten) and kind is nn.Flatten:
        whole = layer.start_dim == 1 and layer.end_dim == -1 and ndim > 0
        return (
            _Form(flatten_images if ndim == IMAGE else flatten_vectors, VECTOR) if whole else None
        )
    if kind in ELEMENTWISE:
        return _Form(lambda h, run: layer(h), ndim)
    if kind in POOLING and ndim == IMAGE:
        return _Form(pooling(layer), ndim)
    if not tensors.issuperset(_tensors_of(name, layer)):
        return None
    made = _with_tensors(name, layer, ndim)
    return None if made is None else _Form(made, ndim)


def _unhooked(layer: nn.Module) -> bool:
    """Whether a call of the layer runs only its class's `forward`, without any hook."""
    hooks = (
        layer._forward_hooks,
        layer._forward_pre_hooks,
        layer._backward_hooks,
        layer._backward_pre_hooks,
    )
    return not any(hooks) and "forward" not in vars(layer)


def _runs_its_parts(layer: nn.Module) -> bool:
    """Whether the layer is a sequence; a subclass may change only how the sequence is built."""
    methods = ("forward", "train", "__call__", "__iter__")
    return isinstance(layer, nn.Sequential) and all(
        getattr(type(layer), method) is getattr(nn.Sequential, method) for method in methods
    )


def _stack_sequence(
    name: str, layer: nn.Module, tensors: frozenset[str], ndim: int
) -> _Form | None:
    layers = []
    # `named_children` would leave out the second use of a layer.
    every = layer.named_modules(remove_duplicate=False)
    parts = [(own, part) for own, part in every if own and "." not in own]
    for own, part in _pooled_first(parts):
        form = _stack(join(name, own), part, tensors, ndim)
        if form is None:
            return None
        layers.append(form.layer)
        ndim = form.ndim
    return _Form(sequence(layers), ndim)


def _pooled_first(named: Iterable[tuple[str, nn.Module]]) -> list[tuple[str, nn.Module]]:
    """Swaps each ReLU with the max pooling after it, which saves time and changes no result.

    In both orders of ReLU and pooling, the output is the window's largest element, or 0 if no
    element is positive. In both orders, elements that are not positive get no gradient. A ReLU that
    overwrites its input stays in its place, because other layers may read this input.
    """
    parts = list(named)
    for i, ((_, layer), (_, following)) in enumerate(pairwise(parts)):
        if type(layer) is nn.ReLU and not layer.inplace and type(following) is nn.MaxPool2d:
            parts[i], parts[i + 1] = parts[i + 1], parts[i]
    return parts


def _tensors_of(name: str, layer: nn.Module) -> list[str]:
    """The names of all tensors that the stacked form of the layer reads."""
    affine = getattr(layer, "affine", False)
    own = [n for n in ("weight", "bias") if affine or getattr(layer, n, None) is not None]
    moving = isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d)
    statistics = ["running_mean", "running_var"] if moving else []
    return [*(join(name, n) for n in own), *(STATISTIC + join(name, n) for n in statistics)]


def _with_tensors(name: str, layer: nn.Module, ndim: int) -> Layer | None:
    """The stacked form of a layer that has tensors."""
    kind, image, vector = type(layer), ndim == IMAGE, ndim == VECTOR
    if isinstance(layer, nn.Conv2d) and kind is nn.Conv2d and image:
        plain = layer.groups == 1 and layer.padding_mode == "zeros"
        return convolution(name, layer) if plain else None
    if isinstance(layer, nn.Linear) and kind is nn.Linear and vector:
        return linear(name, layer)
    if isinstance(layer, nn.BatchNorm1d) and kind is nn.BatchNorm1d and vector:
        return batch_norm(name, layer)
    if isinstance(layer, nn.BatchNorm2d) and kind is nn.BatchNorm2d and image:
        return batch_norm(name, layer)
    if isinstance(layer, nn.GroupNorm) and kind is nn.GroupNorm and layer.affine:
        return group_norm(name, layer) if image or vector else None
    if kind is TextEmbedding and vector:
        return embedding(name)
    return None
