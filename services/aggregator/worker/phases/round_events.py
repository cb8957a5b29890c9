"""Applies the events of an open round to the state of the phase machine."""

from collections.abc import Sequence
from dataclasses import replace

from rampart_fl.services.aggregator.state.redis_records import Event
from rampart_fl.services.aggregator.worker.phases import commands
from rampart_fl.services.aggregator.worker.phases.commands import Command
from rampart_fl.services.aggregator.worker.phases.state import PhaseState


def handle_events(
    state: PhaseState, events: Sequence[Event], buffered: bool, full: int | None = None
) -> tuple[PhaseState, tuple[Command, ...]]:
    """Handles events of the open round, in order.

    Args:
        state: the state of the phase machine.
        events: the events.
        buffered: whether the policy is buffered; a buffered round also includes updates for tickets
            of earlier rounds.
        full: number of arrived updates after which no further events are handled; None if there is
            no limit.

    Returns:
        The next state, and the commands that answer the events.
    """
    joined, evicted, pulls = set[str](), set(state.evicted), list(state.pulls)
    stale, position = state.stale, state.position
    answers, updates = list[Command](), dict[str, Event]()

    def arrived(client: str) -> bool:
        return client in state.arrived or client in updates

    for event in events:
        position = event.position
        match event.type:
            case "update" if buffered or event.round == state.round:
                if not arrived(event.client):
                    updates[event.client] = event
            case "probe" if buffered or event.round == state.round:
                answers.append(commands.AnswerProbe(event))
            case "pull":
                if arrived(event.client):
                    pulls.append(event.client)
                else:
                    answers.append(commands.GrantTicket(event.client))
            case "joined" if buffered:
                joined.add(event.client)
                stale = True
            case "opened":
                # A client that was evicted before the round opened has no ticket to lose.
                evicted.clear()
            case "evicted":
                stale = True
                if not buffered:
                    evicted.add(event.client)
            case "reinstated" | "confirmed" | "dismissed" | "stopping":
                stale = True
            case "customize":
                answers.append(commands.AnswerCustomize(event))
        if full is not None and len(state.arrived) + len(updates) >= full:
            break
    if updates:
        answers.append(commands.LoadUpdates(tuple(updates.values())))
    after = replace(
        state,
        # A union copies the whole set, so skip the union if there is no client to add.
        selected=state.selected | joined if joined else state.selected,
        arrived=state.arrived.union(updates) if updates else state.arrived,
        evicted=frozenset(evicted),
        pulls=tuple(pulls),
        stale=stale,
        position=position,
        read_position=position,
    )
    return after, tuple(answers)
