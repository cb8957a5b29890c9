"""Fine-tuned personalization exactly as in the paper, which is possible only in a simulation.

There is no common model: a round changes every client's own model. The federation's global model
therefore stays the initial model, and all metrics measure the personalized models.

Legend: N clients.
"""

import torch
from torch import Tensor

from rampart_fl.shared.errors import PreconditionError
from rampart_fl.shared.learning.training.cohort import Batches, Cohort
from rampart_fl.shared.learning.training.evaluation import evaluate_many
from rampart_fl.shared.learning.training.personalizers import Batch
from rampart_fl.shared.protocol.messages import RoundRecord
from rampart_fl.shared.robust.pipeline import join_states, split_state
from rampart_fl.shared.simulation.clients import SimulatedClients
from rampart_fl.shared.simulation.collaboration import estimate
from rampart_fl.shared.simulation.exact_round import ExactRound
from rampart_fl.shared.simulation.mean_optimum import bound, optimum
from rampart_fl.shared.simulation.server import SimulatedServer


def run_round(clients: SimulatedClients, server: SimulatedServer, round_: int) -> RoundRecord:
    """Runs a round, which updates the state of clients and server; returns the round's record.

    The number of steps in the round is the largest number of batches of any client.
    """
    exact, names = ExactRound(clients, server, round_), clients.names
    cohort = clients.cohort(round_)
    training, seed = clients.learner.training, clients.experiment.seed
    batches = Batches.draw(cohort.train_K, names, training, seed, round_)
    model_ND = clients.personal["model"]
    known = split_state(server.state)
    first = server.rounds.plan.pipeline.init(model_ND.shape[1])
    states = {name: known.get(name, first) for name in names}
    try:
        if bool(clients.personal["lambda"].isnan().any()):
            clients.personal["lambda"] = _shares(exact, cohort)
        for step in range(batches.steps):
            batch = _batch(cohort, batches, step, model_ND)
            model_ND, states = exact.step(model_ND, batch, states)
    except PreconditionError as error:
        return RoundRecord(round=round_, status="failed", reason=error.detail, participants=names)
    clients.personal["model"] = model_ND
    server.state = join_states(states)
    return RoundRecord(
        round=round_, status="published", participants=names, metrics=_measure(clients, cohort)
    )


def _shares(exact: ExactRound, cohort: Cohort) -> Tensor:
    """Every client's degree of collaboration λ (N,), by the paper's formula for the task."""
    clients, share_N = exact.clients, exact.clients.personal["lambda"]
    f = clients.experiment.server.f or 0
    if clients.learner.scoring.counted == "correct":
        return estimate(exact).shares(f)
    own = [cohort.x_train_KN[i, : cohort.train_K[i]].flatten(1) for i in clients.honest]
    kappa = bound(exact.server.rounds.plan.pipeline, len(clients.names), f)
    return torch.full_like(share_N, optimum(own, kappa))


def _measure(clients: SimulatedClients, cohort: Cohort) -> dict[str, dict[str, float]]:
    """The scores of the honest clients' models, and the λ of each client."""
    learner, personal = clients.learner, clients.personal
    picked = cohort.pick(clients.honest)
    own = {key: tensor[clients.honest] for key, tensor in personal.items()}
    evaluated = evaluate_many(learner, picked, own["model"], own)
    kept = {key: column for key, column in evaluated.items() if not key.endswith("customized")}
    columns = {key: column.tolist() for key, column in kept.items()}
    columns["lambda"] = own["lambda"].tolist()
    names = [clients.names[i] for i in clients.honest]
    return {
        name: {key: column[k] for key, column in columns.items()} for k, name in enumerate(names)
    }


def _batch(cohort: Cohort, batches: Batches, step: int, like: Tensor) -> Batch:
    """Every client's mini-batch; a client that has used up its batches starts over."""
    clients = torch.arange(len(like))
    steps = [step % own for own in batches.steps_K]
    weight_KB = batches.weight_KSB[clients, steps]
    # Each batch is padded at its end, so the columns beyond the largest batch contain only padding.
    width = int((weight_KB > 0).sum(1).max())
    at_KB = batches.index_KSB[clients, steps, :width].to(like.device)
    clients = clients.to(like.device)[:, None]
    return Batch(
        cohort.x_train_KN[clients, at_KB],
        cohort.y_train_KN[clients, at_KB],
        weight_KB[:, :width].to(like),
    )
