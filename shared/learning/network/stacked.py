"""Runs many models of one architecture at once; model k is a vector, applied to batch k.

A module has a stacked form if it consists of sequences and residual blocks of the layers that
`rampart_fl.shared.learning.network.stacked_form` supports. If a module has no stacked form, its
models run through `torch.func.vmap`. In two cases, these models run one by one instead: the module
has running statistics, or it has a layer that vmap does not support, such as a recurrent layer.
Models never interact, so differentiating the sum of all losses gives each model's own gradient.

Legend: K models, B samples each, D coordinates, S running statistics, C classes.
"""

import copy
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from math import prod

import torch
from torch import Tensor, nn

from rampart_fl.shared.families.registry import FamilyMember
from rampart_fl.shared.learning.network.stacked_form import IMAGE, stack_module
from rampart_fl.shared.learning.network.stacked_layers import ForwardPass, Layer, to_images
from rampart_fl.shared.learning.network.vector import sources, spec_of, statistics, unflatten
from rampart_fl.shared.modelspec import STATISTIC
from rampart_fl.shared.runtime.cuda_graphs import CudaGraphs

IN_CACHE = 2**20
"""Number of elements that fit in one thread's cache; this number limits how many models run in one
pass."""


class Stacked:
    """The forward pass of K models at once.

    >>> network = Stacked(nn.Sequential(nn.Linear(2, 1)))
    >>> network.logits(torch.tensor([[1.0, 1.0, 0.0], [2.0, 0.0, 1.0]]), torch.ones(2, 1, 2))
    tensor([[[2.]],
    <BLANKLINE>
            [[3.]]])
    """

    def __init__(self, module: nn.Module, member: FamilyMember | None = None) -> None:
        """`member` is the model that built the module; errors in the member's code name it."""
        self.module = module
        self._own_errors = nullcontext if member is None else member.own_errors
        self.spec = spec_of(module)
        self._forms: dict[int, Layer | None] = {}
        self._sources = sources(module)
        self._widths: dict[tuple[int, ...], int] = {}
        self._vmaps = True
        self.graphs = CudaGraphs()
        """The CUDA graphs of functions that run this network; see `can_record`."""

    def can_record(self, x_KB: Tensor) -> bool:
        """Whether a CUDA graph can record the network's passes on samples of this shape.

        Only Rampart's own layers are known to launch the same kernels in every pass.
        """
        return x_KB.is_cuda and self._form(x_KB) is not None

    def at_once(self, x_KB: Tensor) -> int:
        """The number of models per pass that gives the highest speed for batches of this shape.

        On a CPU, a pass is fastest if the largest activations of all its models fit in cache
        together (measured with `benchmarks/training.py`). On other devices, or without a stacked
        form, the number of models is unlimited.
        """
        if self._form(x_KB) is None or x_KB.device.type != "cpu":
            return sys.maxsize
        shape = tuple(x_KB.shape[1:])
        if shape not in self._widths:
            self._widths[shape] = widest(self.module, shape)
        return max(1, IN_CACHE * torch.get_num_threads() // max(1, self._widths[shape]))

    def trained_at_once(self, x_KB: Tensor) -> int:
        """Like `at_once`, but for passes that train the models.

        On a CPU, the parameters of all models in a pass must also fit in cache together, so the
        number may be smaller than `at_once`.
        """
        if x_KB.device.type != "cpu":
            return sys.maxsize
        of_size = IN_CACHE * torch.get_num_threads() // max(1, self.spec.dim)
        return max(1, min(self.at_once(x_KB), of_size))

    def logits(self, models_KD: Tensor, x_KB: Tensor) -> Tensor:
        """Logits (K, B, C) of each model k on its own batch x_KB[k], in inference mode."""
        return self._run(unflatten(models_KD, self.spec), x_KB, None, training=False)[0]

    def train(
        self,
        tensors: Mapping[str, Tensor],
        x_KB: Tensor,
        inside_KB: Tensor,
        whole: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Logits (K, B, C) in training mode, and every model's running statistics after the batch.

        Args:
            tensors: the models' tensors by name, with leading dimension K; see `unflatten`.
            x_KB: samples.
            inside_KB: which samples are real rather than padding (bool); a batch's statistics
                ignore padding.
            whole: True if the caller knows that no sample is padding.
        Returns:
            The logits, and the statistics (K, S) or None if the model has no statistics.
        """
        if not self.spec.statistics:
            return self._run(tensors, x_KB, None, training=True)[0], None
        logits, moved = self._run(tensors, x_KB, inside_KB, training=True, whole=whole)
        parts = [moved[name].flatten(1) for name, _, _ in self.spec.statistics]
        return logits, torch.cat(parts, 1).detach()

    def _form(self, x_KB: Tensor) -> Layer | None:
        """The module's stacked form for samples of this shape."""
        ndim = x_KB.ndim - 2
        if ndim not in self._forms:
            names = [tensor.name for tensor in self.spec.tensors]
            self._forms[ndim] = stack_module(self.module, names, ndim)
        return self._forms[ndim]

    def _run(
        self,
        tensors: Mapping[str, Tensor],
        x_KB: Tensor,
        inside_KB: Tensor | None,
        training: bool,
        whole: bool = False,
    ) -> tuple[Tensor, Mapping[str, Tensor]]:
        form = self._form(x_KB)
        if form is None:
            with self._own_errors():
                self.module.train(training)
                if self.spec.statistics:
                    return self._one_by_one(tensors, x_KB, inside_KB)
                return self._vmapped(tensors, x_KB), {}
        run = ForwardPass(tensors, len(x_KB), inside_KB, whole)
        return form(to_images(x_KB) if x_KB.ndim - 2 == IMAGE else x_KB, run), run.moved

    def _vmapped(self, parameters: Mapping[str, Tensor], x_KB: Tensor) -> Tensor:
        def one(own: Mapping[str, Tensor], x_B: Tensor) -> Tensor:
            return self._call(own, x_B)

        if len(x_KB) > 1 and self._vmaps:
            try:
                logits: Tensor = torch.func.vmap(one)(dict(parameters), x_KB)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError:  # vmap cannot run this module.
                self._vmaps = False
            else:
                return logits
        each = [{name: t[k] for name, t in parameters.items()} for k in range(len(x_KB))]
        return torch.stack([one(own, x_B) for own, x_B in zip(each, x_KB, strict=True)])

    def _call(self, own: Mapping[str, Tensor], x_B: Tensor) -> Tensor:
        """The logits of the model whose tensors are in `own`, named as in `state_dict`."""
        tensors = {name: own[source] for name, source in self._sources.items()}
        # With `tie_weights`, torch would not restore the tensors of a layer that is used twice.
        logits: Tensor = torch.func.functional_call(self.module, tensors, (x_B,), tie_weights=False)
        return logits

    def _one_by_one(
        self, tensors: Mapping[str, Tensor], x_KB: Tensor, inside_KB: Tensor | None
    ) -> tuple[Tensor, Mapping[str, Tensor]]:
        """Runs models one by one, for modules that have running statistics but no stacked form."""
        outputs: list[Tensor | None] = []
        moved = {name: tensors[name].detach().clone() for name in statistics(self.module)}
        for k, x_B in enumerate(x_KB):
            # In training mode, the module updates its running statistics in place.
            # The statistics in `own` are views of `moved`, so the module updates `moved`.
            own = {name.removeprefix(STATISTIC): t[k] for name, t in {**tensors, **moved}.items()}
            if inside_KB is None:
                outputs.append(self._call(own, x_B))
                continue
            if not bool(inside_KB[k].any()):
                outputs.append(None)
                continue
            real_B = x_B[inside_KB[k]]
            logits = self._call(own, self._normalizable(own, real_B))[: len(real_B)]
            padded = logits.new_zeros(len(x_B), *logits.shape[1:])
            outputs.append(padded.index_put((inside_KB[k].nonzero().squeeze(1),), logits))
        like = next(one for one in outputs if one is not None)
        return torch.stack(
            [torch.zeros_like(like) if one is None else one for one in outputs]
        ), moved

    def _normalizable(self, own: Mapping[str, Tensor], x_B: Tensor) -> Tensor:
        """The batch; twice the same sample if it is the only one and the module needs a second.

        torch refuses to normalize a single value per channel. The mean of two equal values is this
        value, and their variance is 0, as in Rampart's own batch normalization of one sample.
        """
        if len(x_B) > 1:
            return x_B
        # The trial must not change the running statistics in `own`.
        trial = {name: tensor.detach().clone() for name, tensor in own.items()}
        try:
            with torch.no_grad():
                self._call(trial, x_B)
        except ValueError:
            return torch.cat([x_B, x_B])
        return x_B


def widest(module: nn.Module, shape: tuple[int, ...]) -> int:
    """Number of elements in a module's largest activation for a batch.

    >>> widest(nn.Sequential(nn.Linear(3, 7), nn.Linear(7, 2)), (5, 3))
    35
    """
    batch, *sample = shape
    sizes = [prod(sample)]
    # Running the module is safe, because its code is registered or trusted and never comes from an
    # upload.
    probe = copy.deepcopy(module).float().eval()
    for layer in probe.modules():
        layer.register_forward_hook(lambda _, inputs, output: sizes.append(output.numel()))
    # A pass with one sample is enough to measure the sizes of all activations. A pass on the meta
    # device would compute nothing, but it would make torch import its whole compiler.
    with torch.no_grad():
        probe(torch.zeros(1, *sample))
    return batch * max(sizes)
