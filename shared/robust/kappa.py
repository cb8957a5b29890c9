"""Measures a pipeline's robustness on given rows: the coefficient κ of (f, κ)-robustness.

Legend: N rows, D coordinates, S rows of a subset, B subsets of a batch.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from math import comb, inf, isinf, sqrt

import torch
from torch import Tensor

from rampart_fl.shared.errors import PreconditionError
from rampart_fl.shared.robust import linalg
from rampart_fl.shared.robust.base import Context, Rows
from rampart_fl.shared.robust.pipeline import Pipeline, Spec
from rampart_fl.shared.robust.rows import Updates

EXACT = 200_000
"""All subsets of n - f rows are tried if the number of these subsets is at most this bound."""
BATCH = 4096


@dataclass(frozen=True)
class Robustness:
    """A measured coefficient κ, and known bounds on κ.

    The function `kappa` defines F, S, x_i and mean_S.

    Args:
        kappa: the largest ratio found over the subsets S. The ratio is ‖F - mean_S‖², divided by
            the mean of ‖x_i - mean_S‖² over the rows x_i in S.
        exact: whether every subset was tried; if not, `kappa` is a lower bound on the largest
            ratio.
        subsets: number of subsets tried.
        worst: ids of the rows in the subset with the ratio `kappa`.
        lower_bound: f / (n - 2f); for every rule, some input requires at least this κ.
        upper_bound: the proven κ of this pipeline; None if this module knows no proven κ.
    """

    kappa: float
    exact: bool
    subsets: int
    worst: tuple[str, ...]
    lower_bound: float
    upper_bound: float | None


def kappa(
    updates_ND: Updates,
    stages: Spec | Sequence[Spec],
    *,
    f: int,
    ids: Sequence[str] | None = None,
    metadata: Mapping[str, Sequence[float] | Tensor] | None = None,
    context: Context | None = None,
    samples: int = 20_000,
    exact: int = EXACT,
) -> Robustness:
    """The smallest κ for which the bound of (f, κ)-robustness holds on the given rows.

    The bound is ‖F(x) - mean_S‖² <= κ/|S| Σ_S ‖x_i - mean_S‖² for every set S of n - f rows.

    F(x) is the result of the pipeline for the rows x, and mean_S is the mean of the rows in S. A
    rule is (f, κ)-robust if the bound holds with the same κ for every input x. This function
    returns the κ that these particular rows require.

    Args:
        updates_ND: one update per row, all finite.
        stages: as for `aggregate`; every stage that has a parameter f gets the value `f` given
            here.
        f: bound on hostile rows; each subset S leaves out f rows.
        ids: distinct client ids.
        metadata: numbers that clients claim, one per row and keyed by name, for rules that use
            them.
        context: server data, and the seed, which also determines the sampled subsets.
        samples: number of subsets that are sampled if there are more than `exact` subsets. In the
            sampled subset with the largest ratio, rows are then swapped for other rows as long as
            this increases the ratio.
        exact: all subsets are tried if there are at most this many subsets.
    Raises:
        PreconditionError: a row is not finite, or f is not below n / 2.

    >>> rows = torch.tensor([[0.0], [1.0], [2.0]])
    >>> round(kappa(rows, "weighted_mean", f=1).kappa, 6)
    1.0
    """
    rows = Rows.of(updates_ND, ids=ids, metadata=metadata)
    n = len(rows)
    if rows.dropped or 2 * f >= n:
        raise PreconditionError(
            f"kappa needs finite rows and n > 2f: n={n}, f={f}, not finite={len(rows.dropped)}"
        )
    context = context or Context()
    pipeline = Pipeline.of(stages, f=f)
    aggregate_D = pipeline.apply(rows, pipeline.init(rows.dim), context)[0]
    gram_NN = _products(rows, aggregate_D)
    noise_N = linalg.norms(rows).square() * (4 * torch.finfo(aggregate_D.dtype).eps) ** 2

    every = comb(n, f) <= exact
    best, worst_S, tried = -1.0, torch.arange(n - f), 0
    for subsets_BS in _all(n, f) if every else _random_subsets(n, f, samples, context):
        ratios_B = _ratios(gram_NN, noise_N, subsets_BS)
        tried += len(subsets_BS)
        at = int(ratios_B.argmax())
        if float(ratios_B[at]) > best:
            best, worst_S = float(ratios_B[at]), subsets_BS[at]
    if not every:
        best, worst_S, more = _climb(gram_NN, noise_N, best, worst_S)
        tried += more
    return Robustness(
        kappa=best,
        exact=every,
        subsets=tried,
        worst=tuple(rows.ids[i] for i in worst_S.tolist()),
        lower_bound=f / (n - 2 * f),
        upper_bound=proven(pipeline, n, f),
    )


def proven(pipeline: Pipeline, n: int, f: int) -> float | None:
    """The proven κ of a pipeline; None if no κ is known, or if a stage's parameter f is not `f`.

    A κ is known only for rules whose parameters have their default values; the parameter `b` may
    also be f.

    Allouah et al. ("Fixing by mixing", 2023) prove κ = 6f/(n-2f)·(1 + f/(n-2f)) for the trimmed
    mean with b = f, and 4(1 + f/(n-2f))² for the median and the geometric median. If NNM precedes a
    rule with coefficient κ, the pipeline has the coefficient 8f/(n-f)·(κ + 1). The bound of Allouah
    et al. for Krum does not apply to the rule `krum`; see `_krum`.

    The bound of the geometric median holds for the exact geometric median. The rule
    `geometric_median` comes close to this exact point only if the distances between rows are far
    above the rule's ν.

    >>> round(proven(Pipeline.of(["nnm", "trimmed_mean"], f=3), 20, 3), 3)
    3.616
    """
    if 2 * f >= n:
        return None
    share = f / (n - 2 * f)
    rule, before = pipeline.rule, [stage.name for stage in pipeline.preaggregators]
    fields = type(rule).model_fields.items()
    changed = {key for key, field in fields if getattr(rule, key) != field.default} - {"f"}
    if changed and (changed != {"b"} or getattr(rule, "b", None) != f):
        return None
    if any(stage.f != f for stage in (*pipeline.preaggregators, rule)):
        return None
    bounds = {
        "trimmed_mean": 6 * share * (1 + share),
        "krum": _krum(n, f),
        "median": 4 * (1 + share) ** 2,
        "geometric_median": 4 * (1 + share) ** 2,
    }
    bound = bounds.get(rule.name)
    if bound is None or before not in ([], ["nnm"]):
        return None
    return 8 * f / (n - f) * (bound + 1) if before else bound


def _krum(n: int, f: int) -> float | None:
    """κ = (n-f)/(n-2f-1)·(1 + √(2(n-f-2)/(n-f-1)))² of Krum; None if Krum needs more rows.

    Allouah et al. prove a bound for a variant of Krum that adds the distances to n - f - 1 other
    rows. The rule `krum` adds q = n - f - 2 distances, as Blanchard et al. do. Let S have h = n - f
    rows with the mean μ, let V be the mean of ‖x_i - μ‖² over S, and let x be the row that Krum
    chooses.

    - For x_i in S, consider the squared distances to the other h - 1 rows in S. The mean of the q
      smallest of these distances is at most the mean of all h - 1 distances. The score of x_i is
      therefore at most q/(h-1)·Σ_S ‖x_i - x_j‖². The mean of this bound over S is A = 2hV·q/(h-1).
      The score of x is at most A, because no score is lower.
    - At most f rows are not in S. Among x and its q nearest rows, at least c = n - 2f - 1 rows are
      in S. For c of these rows, the sum of ‖x - x_j‖² is at most A, and the sum of ‖x_j - μ‖² is at
      most hV.
    - ‖x - μ‖ <= ‖x - x_j‖ + ‖x_j - μ‖ for each of these rows. By the triangle inequality of root
      mean squares, ‖x - μ‖ <= √(A/c) + √(hV/c), so ‖x - μ‖² <= κV.
    """
    if n < 2 * f + 3:
        return None
    h = n - f
    return h / (n - 2 * f - 1) * (1 + sqrt(2 * (h - 2) / (h - 1))) ** 2


def _products(rows: Rows, centre_D: Tensor) -> Tensor:
    """Inner products <x_i - c, x_j - c> (N, N) for c = `centre_D`.

    The products are in float64, so that a small ‖c - mean_S‖² is not lost in rounding errors.
    """
    gram_NN = torch.zeros(len(rows), len(rows), dtype=torch.float64, device=rows.device)
    for start, stop, chunk_NC in rows.chunks():
        chunk_NC = chunk_NC.double() - centre_D[start:stop]
        gram_NN += chunk_NC @ chunk_NC.T
    # If rows are so far apart that a product overflows, the product is clamped to a very large
    # number.
    return gram_NN.nan_to_num(nan=0.0).clamp(-1e280, 1e280).cpu()


def _ratios(gram_NN: Tensor, noise_N: Tensor, subsets_BS: Tensor) -> Tensor:
    """For each subset S (B,): ‖F - mean_S‖², divided by the mean of ‖x_i - mean_S‖² over i in S.

    `gram_NN` holds the inner products <x_i - F, x_j - F> for the aggregate F. `noise_N` holds the
    squared rounding errors of the rows. A numerator or a denominator is set to 0 if it does not
    exceed the mean of `noise_N` over the subset. The ratio 0/0 is defined as 0.
    """
    size = subsets_BS.shape[1]
    member_BN = torch.zeros(len(subsets_BS), len(gram_NN), dtype=torch.float64)
    member_BN.scatter_(1, subsets_BS, 1 / size)
    bias_B = ((member_BN @ gram_NN) * member_BN).sum(dim=1).clamp(min=0)
    moment_B = member_BN @ gram_NN.diagonal()
    spread_B = (moment_B - bias_B).clamp(min=0)
    noise_B = member_BN @ noise_N
    ratios_B = torch.where(spread_B > noise_B, bias_B / spread_B, inf)
    return torch.where(bias_B > noise_B, ratios_B, 0.0)


def _all(n: int, f: int) -> Iterator[Tensor]:
    """Every subset of n - f rows, in batches (B, S)."""
    subsets = combinations(range(n), n - f)
    while batch := list(islice(subsets, BATCH)):
        yield torch.tensor(batch)


def _random_subsets(n: int, f: int, samples: int, context: Context) -> Iterator[Tensor]:
    """Random subsets of n - f rows, in batches (B, S)."""
    draws = context.generator("kappa")
    for start in range(0, samples, BATCH):
        keys_BN = torch.rand(min(BATCH, samples - start), n, generator=draws)
        yield keys_BN.argsort(dim=1)[:, : n - f].sort(dim=1).values


def _climb(
    gram_NN: Tensor, noise_N: Tensor, best: float, subset_S: Tensor
) -> tuple[float, Tensor, int]:
    """Swaps rows of the subset for rows outside it as long as the ratio increases."""
    n, tried = len(gram_NN), 0
    while not isinf(best):
        outside = [i for i in range(n) if i not in set(subset_S.tolist())]
        swaps_BS = torch.stack(
            [
                torch.cat([subset_S[:at], torch.tensor([new]), subset_S[at + 1 :]])
                for at in range(len(subset_S))
                for new in outside
            ]
        )
        ratios_B = _ratios(gram_NN, noise_N, swaps_BS)
        tried += len(swaps_BS)
        at = int(ratios_B.argmax())
        if float(ratios_B[at]) <= best * (1 + 1e-12):
            break
        best, subset_S = float(ratios_B[at]), swaps_BS[at].sort().values
    return best, subset_S, tried
