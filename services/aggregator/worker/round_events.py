"""What the events of an open round mean for it."""

from collections.abc import Sequence
from dataclasses import replace

from rampart_fl.services.aggregator.state.redis_records import Event
from rampart_fl.services.aggregator.worker import phase_commands as commands
from rampart_fl.services.aggregator.worker.phase_commands import Command
from rampart_fl.services.aggregator.worker.phase_state import State


def handle_events(
    state: State, events: Sequence[Event], buffered: bool, full: int | None = None
) -> tuple[State, tuple[Command, ...]]:
    """Handles events of the open round, in order.

    Args:
        state: where the federation stands.
        events: the events.
        buffered: whether the policy is buffered: an update of any round counts.
        full: number of arrivals after which no further event is handled, if any.

    Returns:
        The next state, and the commands that answer the events.
    """
    selected, arrived, evicted = set(state.selected), set(state.arrived), set(state.evicted)
    pulls, stale, position = list(state.pulls), state.stale, state.position
    answers, updates = list[Command](), list[Event]()
    for event in events:
        position = event.position
        match event.type:
            case "update" if buffered or event.round == state.round:
                if event.client not in arrived:
                    arrived.add(event.client)
                    updates.append(event)
            case "probe" if buffered or event.round == state.round:
                answers.append(commands.AnswerProbe(event))
            case "pull":
                if event.client in arrived:
                    pulls.append(event.client)
                else:
                    answers.append(commands.GrantTicket(event.client))
            case "joined" if buffered:
                selected.add(event.client)
                stale = True
            case "opened":  # Only evictions since then took a ticket of this round.
                evicted.clear()
            case "evicted":
                stale = True
                if not buffered:
                    evicted.add(event.client)
            case "reinstated" | "confirmed" | "dismissed" | "stopping":
                stale = True
            case "customize":
                answers.append(commands.AnswerCustomize(event))
        if full is not None and len(arrived) >= full:
            break
    if updates:
        answers.append(commands.LoadUpdates(tuple(updates)))
    after = replace(
        state,
        selected=frozenset(selected),
        arrived=frozenset(arrived),
        evicted=frozenset(evicted),
        pulls=tuple(pulls),
        stale=stale,
        position=position,
        heard=position,
    )
    return after, tuple(answers)
