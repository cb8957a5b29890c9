"""Measures the certified accuracy of a majority vote by training all voting models.

The disjoint groups of FLCert-D train in one federation, with the customizer `flcert`. The random
subsets of FLCert-P overlap. If all subsets trained in one federation, a client would have to train
many models per round. FLCert-P is therefore simulated as one federation per subset.

Legend: T test samples, C classes.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from math import comb
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from rampart_fl.shared.built_experiment import build_plan
from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.figures.client_metrics import sides
from rampart_fl.shared.learning.network.votes import ballots
from rampart_fl.shared.learning.training.personalizers import personalizers
from rampart_fl.shared.robust.certificates import (
    certified_counts,
    doubt,
    radii,
    subset_radii,
    winners,
)
from rampart_fl.shared.runtime.threads import use
from rampart_fl.shared.seeding import generator
from rampart_fl.shared.simulation.federation import Simulation

LIKELY_ENOUGH = 0.001
"""Default of the parameter `error` of certificates from random subsets."""


@dataclass(frozen=True)
class Certificate:
    """Certified accuracies of a vote, for increasing numbers of hostile clients.

    The certified accuracy for m hostile clients is the fraction of samples that the vote predicts
    correctly, whatever m hostile clients do.

    Args:
        scheme: disjoint groups, or random subsets.
        voters: number of models that voted.
        clients: number of clients in the federation.
        present: number of attackers that took part in the training.
        curve: certified accuracy on the honest clients' test samples, for m = 0, 1, 2, ... hostile
            clients in addition to the `present` attackers. For values of m beyond the end of the
            curve, no sample is certified.
        error: for each sample, the certified number of hostile clients is too large with
            probability at most `error`; 0 if the certificate is exact.
        samples: number of test samples on which the accuracies are measured.
    """

    scheme: Literal["disjoint groups", "random subsets"]
    voters: int
    clients: int
    present: int
    curve: tuple[float, ...]
    error: float
    samples: int


ProgressCallback = Callable[[int, int], None]
"""A callback that reports progress. Its arguments are the number of finished rounds or subsets, and
the total number."""
Subset = tuple[str, ...]
"""The names of the clients that train together."""
Each = Callable[
    [Callable[[Subset], np.ndarray], Sequence[Subset]], Iterable[tuple[Subset, np.ndarray]]
]
"""Calls a function for every subset, in any order; yields each subset with its result."""


def _in_turn(
    run: Callable[[Subset], np.ndarray], subsets: Sequence[Subset]
) -> Iterator[tuple[Subset, np.ndarray]]:
    return ((subset, run(subset)) for subset in subsets)


def certify_groups(
    experiment: Experiment,
    device: str = "cpu",
    on_progress: ProgressCallback = lambda done, of: None,
) -> Certificate:
    """Trains a model for each disjoint group of clients, and certifies the models' vote.

    Raises:
        ConfigurationError: the experiment has no groups that train separately, does not draw every
            client for every round, or ends rounds when enough uploads have arrived. If rounds drew
            only some clients, a client that leaves could change which other clients are drawn. If
            rounds ended early, a client that uploads early could change which other updates a round
            includes.
    """
    if not build_plan(experiment).customizer.isolates:
        raise ConfigurationError(
            f"{experiment.name} has no groups that train separately: choose the customizer "
            "flcert, or let random subsets of its clients vote (--subsets and --size)"
        )
    if experiment.fraction < 1:
        raise ConfigurationError(
            f"{experiment.name} selects {experiment.fraction:.0%} of its clients for a round, "
            "so removing one client would change which of the others are selected: set fraction = 1"
        )
    if experiment.policy != "sync":
        raise ConfigurationError(
            f"{experiment.name} ends a round when enough uploads have arrived, so a fast client "
            'changes which updates the round includes: set policy = "sync"'
        )
    simulation = Simulation.of(experiment, device)
    while not simulation.ended:
        simulation.step()
        on_progress(len(simulation.records), experiment.rounds)
    voters = simulation.server.voters()
    if not voters:
        raise ConfigurationError(
            f"no group of {experiment.name} ever had enough clients for its rule"
        )
    votes_TC, y_T = _votes(simulation, voters)
    levels = certified_counts(winners(votes_TC) == y_T, radii(votes_TC), len(voters) // 2)
    return _certificate(experiment, "disjoint groups", len(voters), levels, 0.0, len(y_T))


def subsets_of(experiment: Experiment, count: int, size: int) -> list[Subset]:
    """Draws `count` random subsets of `size` clients; returns all subsets if at most `count` exist.

    Random draws can repeat a subset.

    >>> len(subsets_of(Experiment.load("digits-benign"), 1000, 2)), 20 * 19 // 2
    (190, 190)
    """
    names = experiment.client_names
    if not 1 <= size <= len(names):
        raise ConfigurationError(f"a subset cannot have {size} of {len(names)} clients")
    if count >= comb(len(names), size):
        return list(combinations(names, size))
    drawn = []
    for number in range(count):
        draws = generator(experiment.seed, "subset", size, number)
        places = torch.randperm(len(names), generator=draws)[:size].sort().values
        drawn.append(tuple(names[place] for place in places.tolist()))
    return drawn


def certify_subsets(
    experiment: Experiment,
    count: int,
    size: int,
    error: float = LIKELY_ENOUGH,
    device: str = "cpu",
    on_progress: ProgressCallback = lambda done, of: None,
    each: Each = _in_turn,
) -> Certificate:
    """Trains one model per random subset of k clients, and certifies the models' majority vote.

    Args:
        experiment: the experiment whose clients are drawn. Each subset's federation applies the
            experiment's rule to the updates of the subset's clients.
        count: number of subsets to draw. If no more than `count` subsets exist, each of them votes
            once, and the certificate is exact.
        size: number k of clients in a subset.
        error: for each of the C classes, the bound on the class's votes is wrong with probability
            at most `error` / C. For each sample, the certified number of hostile clients is too
            large with probability at most `certificates.doubt(error, C)`. `error` is not used if
            all subsets vote.
        device: the device on which the federations train.
        on_progress: called after every subset.
        each: callback that trains the subsets; by default, the subsets train one after another in
            this process.
    Raises:
        ConfigurationError: clients get models other than the global model, or not every client is
            drawn for every round, or no global model is trained.
    """
    if personalizers.parse(experiment.personalizer).simulated_only:
        raise ConfigurationError(
            f"personalizer {experiment.personalizer['name']!r} trains no global model with these "
            "parameters, so the subsets have no models that could vote"
        )
    if experiment.server.customizer["name"] != "global_model" or experiment.fraction < 1:
        raise ConfigurationError(
            "every subset votes with one global model, which all its clients train: "
            'set customizer = "global_model" and fraction = 1'
        )
    subsets = subsets_of(experiment, count, size)
    exact = len(subsets) == comb(experiment.data.clients, size)
    models_D: dict[Subset, Tensor] = {}
    distinct = list(dict.fromkeys(subsets))
    for subset, model_D in each(partial(_model_of, experiment, device=device), distinct):
        models_D[subset] = torch.tensor(model_D, device=device)
        on_progress(len(models_D), len(distinct))
    models = [models_D[subset] for subset in subsets]
    votes_TC, y_T = _votes(Simulation.of(experiment, device), models)
    sure = 0.0 if exact else error
    radii_T = subset_radii(votes_TC, experiment.data.clients, size, sure)
    right_T = (winners(votes_TC) == y_T).cpu()
    levels = certified_counts(right_T, radii_T, max(0, int(radii_T.max())))
    unsure = doubt(sure, votes_TC.shape[1])
    return _certificate(experiment, "random subsets", len(models), levels, unsure, len(y_T))


def _model_of(experiment: Experiment, subset: Subset, device: str) -> np.ndarray:
    """A subset's global model, trained by one thread so that all processes get the same bits."""
    with use(1):
        return simulate_clients(experiment, subset, device).server.global_D.cpu().numpy()


def simulate_clients(
    experiment: Experiment, clients: Collection[str], device: str = "cpu"
) -> Simulation:
    """Runs a federation of only these clients to its last round; returns the simulation."""
    simulation = Simulation.of(experiment, device)
    simulation.server.absent = frozenset(experiment.client_names) - set(clients)
    while not simulation.ended:
        simulation.step()
    return simulation


def _votes(simulation: Simulation, voters: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Votes (T, C) on all test samples of the honest clients, and the labels (T,)."""
    clients = simulation.clients
    honest = set(sides(simulation.experiment)[0])
    data = [d for name, d in zip(clients.names, clients.data, strict=True) if name in honest]
    x_T = torch.cat([d.x_test for d in data]).to(clients.device)
    y_T = torch.cat([d.y_test for d in data]).to(clients.device)
    return ballots(clients.learner, x_T, voters), y_T


def _certificate(
    experiment: Experiment,
    scheme: Literal["disjoint groups", "random subsets"],
    voters: int,
    levels: list[int],
    error: float,
    samples: int,
) -> Certificate:
    curve = tuple(level / samples for level in levels)
    present = len(sides(experiment)[1])
    return Certificate(scheme, voters, experiment.data.clients, present, curve, error, samples)
