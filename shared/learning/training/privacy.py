"""Local differential privacy: clipped, noised gradients, and the privacy budget spent.

In each step, each of a client's n samples is in the client's batch with probability q = b/n
(Poisson sampling). Here, b is the batch size. The step clips each sample's gradient to the norm C.
The step then adds Gaussian noise of standard deviation σ C to the sum of the clipped gradients,
where σ is the noise multiplier (DP-SGD). After T steps, a client's uploads satisfy
(ε, δ)-differential privacy with respect to the client's samples. Opacus' accountant computes ε.

The privacy guarantee covers only the uploaded updates. Clients report sample counts and losses
without noise, so the guarantee does not cover these numbers. Personal models are trained without
noise, because they never leave their clients. An agent draws its noise from its own secret seeds. A
simulation draws the noise from the experiment's seed. The experiment's seed is not secret, so the
noise in a simulation does not protect privacy.

Legend: K clients, B samples in a batch, E = K·B single samples, C classes, D parameters.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.experiment.schema import Privacy, Training
from rampart_fl.shared.learning.training.cohort import StepRandomness
from rampart_fl.shared.learning.training.objectives import Point
from rampart_fl.shared.learning.training.personalizers import Batch, Personalizer
from rampart_fl.shared.learning.training.task import LocalTask
from rampart_fl.shared.runtime.device import to_device

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

STEPS = "privacy_steps"
"""Name of the personal state that counts all noised steps of a client so far."""
AT_ONCE = 2**22
"""How many elements of per-sample gradients may be in memory at once, over all clients together. A
processor's cache holds about this many elements."""


BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
"""Layers that mix the samples of a batch. Their common base class is private to torch, so the
layers are listed one by one."""


def check_privacy(
    privacy: Privacy | None, module: nn.Module, personalizer: Personalizer | None = None
) -> None:
    """Refuses experiments whose privacy loss cannot be computed on this machine.

    Raises:
        ConfigurationError: Opacus is not installed, or `require_accountable` refuses the
            experiment.
    """
    require_accountable(privacy, module, personalizer)
    require_accountant(privacy)


def require_accountant(privacy: Privacy | None) -> None:
    """Refuses private training on a machine without Opacus.

    Raises:
        ConfigurationError: Opacus is not installed.
    """
    if privacy is not None and find_spec("opacus") is None:
        raise ConfigurationError(
            "[training.privacy] needs Opacus' accountant: pip install 'rampart-fl[privacy]'"
        )


def require_accountable(
    privacy: Privacy | None, module: nn.Module, personalizer: Personalizer | None = None
) -> None:
    """Refuses experiments whose privacy loss cannot be computed on any machine.

    Raises:
        ConfigurationError: the module normalizes over the batch, or samples affect the
            personalizer's uploads in other ways than through noised gradients.
    """
    if privacy is None:
        return
    # Held-out samples affect uploads through the method `start`, which adds no noise.
    if personalizer is not None and (not personalizer.accounted or personalizer.held_out):
        raise ConfigurationError(
            f"[training.privacy] cannot account for the personalizer {personalizer.name!r}: "
            "samples also affect its uploads in other ways than through noised gradients"
        )
    if any(isinstance(layer, BATCH_NORMS) for layer in module.modules()):
        raise ConfigurationError(
            "[training.privacy] clips the gradient of every sample, but batch normalization mixes "
            "samples; use GroupNorm"
        )


def sample_rate(training: Training, samples: int) -> float:
    """The probability q that a sample is in a batch.

    >>> sample_rate(Training(batch_size=10), samples=40)
    0.25
    """
    return min(1.0, training.batch_size / samples)


@lru_cache(maxsize=4096)
def epsilon(rate: float, noise_multiplier: float, steps: int, delta: float) -> float:
    """The ε that T steps of the subsampled Gaussian mechanism spend at δ (Rényi accountant).

    Args:
        rate: probability that a sample is in a batch.
        noise_multiplier: standard deviation of the noise, as a multiple of the clipping norm.
        steps: T.
        delta: δ.
    """
    from opacus.accountants.analysis.rdp import get_privacy_spent

    if not steps:
        return 0.0
    orders, each = _divergences(rate, noise_multiplier)
    with warnings.catch_warnings():
        # Opacus warns if the best Rényi order is at the edge of the range of orders. The warning is
        # ignored, because such an order gives a valid, though loose, bound on ε.
        warnings.simplefilter("ignore")
        total, _ = get_privacy_spent(orders=orders, rdp=each * steps, delta=delta)
    return float(total)


@lru_cache(maxsize=4096)
def _divergences(rate: float, noise_multiplier: float) -> tuple[list[float], "NDArray[np.float64]"]:
    """Rényi orders, and one step's divergence at each order; divergences of several steps add up.

    The divergences are cached: they are the same in every round, and computing them takes most of
    the time of `epsilon`.
    """
    from opacus.accountants import RDPAccountant
    from opacus.accountants.analysis.rdp import compute_rdp

    orders = RDPAccountant.DEFAULT_ALPHAS
    return orders, compute_rdp(q=rate, noise_multiplier=noise_multiplier, steps=1, orders=orders)


@dataclass(frozen=True, eq=False)
class PrivateTask(LocalTask):
    """A task that clips each sample's gradient and adds noise, but only for uploaded models.

    The gradient is 1/b (N(0, σ² C² I) + Σ_k g_k min(1, C/|g_k|)), with b, C and σ as in the
    module's docstring. For sample k, g_k is the gradient of the loss plus all objective terms that
    read samples. The gradients of objective terms that read no samples are added without clipping
    or noise.
    """

    spent: list[Tensor] = field(default_factory=list)
    """The models for which this step has computed noised gradients. Each model in the list adds 1
    to the number T of noised steps."""

    def gradients(
        self, batch: Batch, *models_KD: Tensor, personal: Sequence[Tensor] = ()
    ) -> tuple[Tensor, ...]:
        """Like `LocalTask.gradients`, but gradients for honest clients' uploads contain noise."""
        noised = tuple(self._noised(batch, model_KD) for model_KD in models_KD)
        own = super().gradients(batch, personal=personal) if personal else ()
        if self.hostile_K is None:
            return noised + own
        exact, hostile = super().gradients(batch, *models_KD), self.hostile_K[:, None]
        mixed = (torch.where(hostile, e, g) for e, g in zip(exact, noised, strict=True))
        return (*mixed, *own)

    def _noised(self, batch: Batch, model_KD: Tensor) -> Tensor:
        privacy = self.training.privacy
        assert privacy is not None
        sizes = [min(self.training.batch_size, n) for n in self.cohort.train_K]
        scale = [privacy.noise_multiplier * privacy.clip / size for size in sizes]
        self.spent.append(model_KD)
        draws = self.draws.secretly(f"gradient noise {len(self.spent)}")
        noise_KD = normal(scale, draws, model_KD)
        gradient_KD = self._clipped(batch, model_KD, privacy.clip) + noise_KD
        for term in self.terms:
            if term.weight and not term.reads_samples:
                point = Point(self.network, model_KD, self.received_KD, batch, self.draws)
                gradient_KD = gradient_KD + term.checked_gradient(point)
        return gradient_KD

    def _clipped(self, batch: Batch, model_KD: Tensor, clip: float) -> Tensor:
        """Clips the samples' gradients, adds them up, and divides the sum by b; adds no noise.

        The gradients are computed for as many samples at once as `AT_ONCE` allows.
        """
        total_KD = torch.zeros_like(model_KD)
        width = max(1, AT_ONCE // model_KD.numel())
        for start in range(0, batch.x_KB.shape[1], width):
            part = slice(start, start + width)
            weight_KB = batch.weight_KB[:, part]
            single, samples = self._single(batch, part)
            model_ED = model_KD.repeat_interleave(weight_KB.shape[1], 0)
            (gradient_ED,) = single.gradients(samples, model_ED)
            length_E = torch.linalg.vector_norm(gradient_ED, dim=1)
            share_E = (clip / length_E).clamp(max=1) * weight_KB.flatten()
            scaled_ED = gradient_ED * share_E[:, None]
            total_KD += scaled_ED.view(*weight_KB.shape, -1).sum(1)
        return total_KD

    def _single(self, batch: Batch, part: slice) -> tuple[LocalTask, Batch]:
        """A task and a batch in which each sample of `part` counts as a separate client."""
        real_KB = batch.weight_KB[:, part] > 0
        count = real_KB.shape[1]
        samples = Batch(
            batch.x_KB[:, part].flatten(0, 1).unsqueeze(1),
            batch.y_KB[:, part].reshape(-1, 1),
            real_KB.reshape(-1, 1).to(batch.weight_KB),
        )
        prior_KC = self.prior_KC
        task = LocalTask(
            network=self.network,
            scoring=self.scoring,
            training=self.training,
            terms=tuple(term for term in self.terms if term.reads_samples),
            cohort=self.cohort,
            received_KD=self.received_KD.repeat_interleave(count, 0),
            draws=self.draws.singly(part.start, count),
            prior_KC=None if prior_KC is None else prior_KC.repeat_interleave(count, 0),
            rate=self.rate,
        )
        return task, samples


def normal(scale: Sequence[float], draws: Sequence[torch.Generator], like_KD: Tensor) -> Tensor:
    """Gaussian noise (K, D); row k has standard deviation scale[k]."""
    rows = [
        factor * torch.randn(like_KD.shape[1], generator=one, dtype=like_KD.dtype)
        for factor, one in zip(scale, draws, strict=True)
    ]
    return to_device(torch.stack(rows), like_KD.device)


def output_noise(deviation: float, draws: StepRandomness, update_KD: Tensor) -> Tensor:
    """The noise N(0, σ² I) that MSDFL (section VII-E) adds to each client's trained model.

    Output noise alone guarantees no ε, because the norm of the update is not bounded.
    """
    scale = [deviation] * len(update_KD)
    return normal(scale, draws.secretly("output noise"), update_KD)


def spent_epsilon(training: Training, sizes: Sequence[int], steps_K: Tensor) -> Tensor:
    """The ε (K,) that each client has spent after the given number of noised steps; float64."""
    privacy = training.privacy
    assert privacy is not None
    return torch.tensor(
        [
            epsilon(sample_rate(training, n), privacy.noise_multiplier, int(t), privacy.delta)
            for n, t in zip(sizes, steps_K.tolist(), strict=True)
        ],
        dtype=torch.float64,
    )
