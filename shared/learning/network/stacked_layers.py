"""Layers that run K models at once.

The convolutions of all models run as one grouped convolution in channels-last format or, on a GPU,
as one batched matrix product. The linear layers of all models run as one batched matrix product.
Batch normalization uses each model's own statistics.

Legend: K models, B samples each, C channels or features of one model, H height, W width, O output
channels of one model, P weights of an output channel, N output pixels of all samples.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

import torch
from torch import Tensor, nn
from torch.nn import functional

from rampart_fl.shared.learning.network.layers import text_embedding
from rampart_fl.shared.modelspec import STATISTIC


@dataclass(eq=False)
class ForwardPass:
    """One forward pass of K models.

    Args:
        tensors: parameters and running statistics, with leading dimension K.
        k: number of models.
        inside_KB: in training, which samples are real rather than padding (bool); None at
            inference, and for models without running statistics.
        whole: True if the caller knows that no sample is padding.
        moved: running statistics after the batch, by tensor name; filled by batch normalization in
            training.
    """

    tensors: Mapping[str, Tensor]
    k: int
    inside_KB: Tensor | None = None
    whole: bool = False
    moved: dict[str, Tensor] = field(default_factory=dict)


MOST_COPIES = 1 << 30
"""A convolution runs as a matrix product only if its windows have at most this many elements."""

Layer = Callable[[Tensor, ForwardPass], Tensor]
"""Maps activations to activations; images have shape (B, K·C, H, W), vectors (K, B, C)."""


def join(name: str, part: str) -> str:
    """The full name of a part of the layer `name`; the model itself has the name ""."""
    return f"{name}.{part}" if name else part


def sequence(layers: Sequence[Layer]) -> Layer:
    """A layer that applies the given layers one after another."""

    def apply(h: Tensor, run: ForwardPass) -> Tensor:
        for layer in layers:
            h = layer(h, run)
        return h

    return apply


def residual(body: Layer, shortcut: Layer) -> Layer:
    """The sum of the outputs of two layers."""
    return lambda h, run: shortcut(h, run) + body(h, run)


def convolution(name: str, layer: nn.Conv2d) -> Layer:
    """A convolution of images, without groups, and with zeros as padding."""
    grouped = _grouped_convolution(name, layer)
    if not isinstance(layer.padding, tuple) or any(step != 1 for step in layer.dilation):
        return grouped
    multiplied = _multiplied_convolution(name, layer, layer.padding)

    def apply(h: Tensor, run: ForwardPass) -> Tensor:
        # On a GPU, cuDNN launches at least one kernel for each group of a grouped convolution, so a
        # matrix product is preferred there.
        copies = h.numel() * prod(layer.kernel_size) // prod(layer.stride)
        multiplies = h.device.type != "cpu" and copies <= MOST_COPIES
        return (multiplied if multiplies else grouped)(h, run)

    return apply


def _multiplied_convolution(name: str, layer: nn.Conv2d, padding: tuple[int, ...]) -> Layer:
    """A convolution as one matrix product per model: weights (O, P) times all windows (P, N)."""
    (high, wide), (down, right) = layer.kernel_size, layer.stride
    above, beside = padding

    def apply(h: Tensor, run: ForwardPass) -> Tensor:
        h = functional.pad(h, (beside, beside, above, above))
        # Copying the windows is fastest if the pixels of a channel are contiguous in memory.
        h = _by_model(h, run.k).permute(1, 2, 0, 3, 4).contiguous()
        windows = h.unfold(3, high, down).unfold(4, wide, right).permute(0, 1, 5, 6, 2, 3, 4)
        windows_KPN = windows.flatten(4).flatten(1, 3)
        weight_KOP = run.tensors[join(name, "weight")].flatten(2)
        if layer.bias is None:
            h_KON = torch.bmm(weight_KOP, windows_KPN)
        else:
            bias_KO1 = run.tensors[join(name, "bias")].unsqueeze(2)
            h_KON = torch.baddbmm(bias_KO1, weight_KOP, windows_KPN)
        return h_KON.view(run.k, -1, *windows.shape[4:]).permute(2, 0, 1, 3, 4).flatten(1, 2)

    return apply


def _grouped_convolution(name: str, layer: nn.Conv2d) -> Layer:
    def apply(h: Tensor, run: ForwardPass) -> Tensor:
        weight = run.tensors[join(name, "weight")].flatten(0, 1)
        bias = run.tensors[join(name, "bias")].flatten() if layer.bias is not None else None
        # Convolutions are faster on channels-last activations. Converting the weights to this
        # format saves time only if there are at most as many weights as activations.
        small = weight.numel() <= h.numel()
        form = torch.channels_last if small else torch.contiguous_format
        h = functional.conv2d(
            h.contiguous(memory_format=form),
            weight.contiguous(memory_format=form),
            bias,
            layer.stride,
            layer.padding,
            layer.dilation,
            groups=run.k,
        )
        # An input with a single channel is in both memory formats at once, and torch then returns
        # the output in the slower format. The output is therefore converted. The output for a
        # single sample stays as it is, because the conversion would change the last bits of the
        # gradient.
        return h.contiguous(memory_format=form) if small and len(h) > 1 else h

    return apply


def pooling(layer: nn.Module) -> Layer:
    """Pools each channel of each image by itself."""

    def apply(h: Tensor, run: ForwardPass) -> Tensor:
        # A convolution that runs as a matrix product stores the samples of a channel one after
        # another. In the order (B, K·C, H, W), torch would copy these activations and their
        # gradients. Therefore, the activations are pooled in the order in which they are stored.
        by_channel = h.transpose(0, 1)
        swapped = by_channel.is_contiguous() and not h.is_contiguous()
        pooled: Tensor = layer(by_channel if swapped else h)
        return pooled.transpose(0, 1) if swapped else pooled

    return apply


def linear(name: str, layer: nn.Linear) -> Layer:
    """A linear layer for vectors."""

    def apply(h: Tensor, run: ForwardPass) -> Tensor:
        # The weights are the left factor, so that the gradient has the same memory layout as the
        # weights.
        weight, h = run.tensors[join(name, "weight")], h.transpose(1, 2)
        if layer.bias is None:
            return torch.bmm(weight, h).transpose(1, 2)
        bias = run.tensors[join(name, "bias")].unsqueeze(2)
        return torch.baddbmm(bias, weight, h).transpose(1, 2)

    return apply


def batch_norm(name: str, layer: nn.BatchNorm1d | nn.BatchNorm2d) -> Layer:
    """Batch normalization: replaces the activations h by (h - mean) / sqrt(var + ε).

    In training, mean and var are computed from the batch; at inference, the running statistics are
    used.
    """
    momentum = layer.momentum
    assert momentum is not None
    mean_name = STATISTIC + join(name, "running_mean")
    var_name = STATISTIC + join(name, "running_var")

    def unpadded(h: Tensor, run: ForwardPass) -> Tensor:
        """Batch normalization in training, as one torch layer over the channels of all models.

        The batches must not be padded, and must have more than one value per channel.
        """
        weight, bias = (run.tensors.get(join(name, one)) for one in ("weight", "bias"))
        if weight is not None and bias is not None:
            weight, bias = weight.flatten(), bias.flatten()
        mean_KC, var_KC = (run.tensors[n].detach().clone() for n in (mean_name, var_name))
        run.moved[mean_name], run.moved[var_name] = mean_KC, var_KC
        g, mean, var = _side_by_side(h), mean_KC.view(-1), var_KC.view(-1)
        g = functional.batch_norm(g, mean, var, weight, bias, True, momentum, layer.eps)
        return _apart(g, h, run.k)

    def apply(h: Tensor, run: ForwardPass) -> Tensor:
        if run.whole and h.numel() > run.tensors[mean_name].numel():
            return unpadded(h, run)
        # `g` has the shape (B, K, C, H, W) or (K, B, C). The averages are over the dimensions in
        # `over`. Tensors (K, C) are viewed in the form `shape`, so that they broadcast to the shape
        # of `g`.
        images = h.ndim == 4
        g, over = (_by_model(h, run.k), (0, 3, 4)) if images else (h, (1,))
        shape = (1, run.k, -1, 1, 1) if images else (run.k, 1, -1)
        mean_KC, var_KC = run.tensors[mean_name], run.tensors[var_name]
        if run.inside_KB is None:
            g = g - mean_KC.view(shape)
        else:
            inside = run.inside_KB.to(h.dtype)
            inside = inside.T[:, :, None, None, None] if images else inside[:, :, None]
            pixels = g.shape[3] * g.shape[4] if images else 1
            n_K1 = (run.inside_KB.sum(1, keepdim=True) * pixels).clamp(min=1)
            held_mean_KC, held_var_KC = mean_KC.detach(), var_KC.detach()
            mean_KC = (g * inside).sum(over) / n_K1
            g = g - mean_KC.view(shape)
            var_KC = (g.square() * inside).sum(over) / n_K1
            unbiased_KC = var_KC.detach() * n_K1 / (n_K1 - 1).clamp(min=1)
            run.moved[mean_name] = held_mean_KC.lerp(mean_KC.detach(), momentum)
            run.moved[var_name] = held_var_KC.lerp(unbiased_KC, momentum)
        scale_KC = (var_KC + layer.eps).rsqrt()
        if not layer.affine:
            return _as(h, g * scale_KC.view(shape))
        scale_KC = scale_KC * run.tensors[join(name, "weight")]
        return _as(h, g * scale_KC.view(shape) + run.tensors[join(name, "bias")].view(shape))

    return apply


def group_norm(name: str, layer: nn.GroupNorm) -> Layer:
    """Group normalization with weights."""

    def apply(h: Tensor, run: ForwardPass) -> Tensor:
        weight = run.tensors[join(name, "weight")].flatten()
        bias = run.tensors[join(name, "bias")].flatten()
        groups = run.k * layer.num_groups
        normal = functional.group_norm(_side_by_side(h), groups, weight, bias, layer.eps)
        return _apart(normal, h, run.k)

    return apply


def _by_model(h: Tensor, k: int) -> Tensor:
    """Reshapes (B, K·C, ...) to (B, K, C, ...), without a copy."""
    return h.view(len(h), k, h.shape[1] // k, *h.shape[2:])


def _as(h: Tensor, g: Tensor) -> Tensor:
    """Returns `g` in the shape of the layer's input `h`; for images, this undoes `_by_model`."""
    return g.flatten(1, 2) if h.ndim == 4 else g


def _side_by_side(h: Tensor) -> Tensor:
    """Returns the activations `h` in the shape (B, K·C, ...)."""
    return h if h.ndim == 4 else h.transpose(0, 1).flatten(1, 2)


def _apart(g: Tensor, h: Tensor, k: int) -> Tensor:
    """The inverse of `_side_by_side`: reshapes `g` (B, K·C, ...) to the shape of `h`."""
    return g if h.ndim == 4 else g.view(len(g), k, -1).transpose(0, 1)


def embedding(name: str) -> Layer:
    """The stacked form of `TextEmbedding`."""

    def apply(h: Tensor, run: ForwardPass) -> Tensor:
        weight, ids = run.tensors[join(name, "weight")], h.long()
        first = torch.arange(run.k, device=ids.device) * weight.shape[1]
        return text_embedding(ids, ids + first.view(-1, 1, 1), weight.flatten(0, 1))

    return apply


def to_images(x_KB: Tensor) -> Tensor:
    """Reshapes images (K, B, C, H, W) to (B, K·C, H, W), in channels-last format."""
    return x_KB.transpose(0, 1).flatten(1, 2).contiguous(memory_format=torch.channels_last)


def flatten_images(h: Tensor, run: ForwardPass) -> Tensor:
    """Reshapes images (B, K·C, H, W) to vectors (K, B, C·H·W)."""
    return h.reshape(len(h), run.k, -1).transpose(0, 1)


def flatten_vectors(h: Tensor, run: ForwardPass) -> Tensor:
    """Reshapes samples (K, B, ...) that are not images to vectors (K, B, C)."""
    return h.flatten(2)
