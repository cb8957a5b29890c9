"""Assigns the slots of a starting run to the clients that accepted the run."""

from rampart_fl.services.aggregator.state.member_store import MemberStore
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.experiment.slots import draw_slots


async def assign_slots(members: MemberStore, experiment: Experiment, fence: int) -> None:
    """Draws slots for the clients that accepted the run; a client with a slot becomes a member."""
    willing, most = await members.acceptances(), experiment.data.clients
    requests = {client: slot for client, slot in willing.items() if slot is not None}
    await members.assign_slots(fence, draw_slots(experiment.seed, willing, requests, most), most)


async def count_accepted(
    members: MemberStore, experiment: Experiment, deadline: float | None
) -> int:
    """The number of clients that have accepted a run whose first round has not begun.

    If there are too few answers to start the run, the function returns the number of answers. In
    this case, it does not read the answers, because reading thousands of answers after each new
    answer would take most of the time of the joining phase.

    Args:
        members: the clients' answers.
        experiment: determines how many clients the run needs.
        deadline: Unix time from which the run can start with fewer clients; None if joining has no
            deadline.
    """
    answers = await members.answer_count()
    if answers < experiment.clients_to_start(late=deadline is not None):
        return answers
    return len(await members.acceptances())
