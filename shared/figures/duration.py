"""The duration of a round."""

from rampart_fl.shared.protocol.messages import RoundFacts


def seconds_of(record: RoundFacts) -> float:
    """The duration of a round in seconds, in a federation from its opening to its end.

    The steps in `timings` do not add up to this duration: while a federation collects updates, it
    already loads those that have arrived. A simulated round has no times, but its steps follow one
    another.

    >>> seconds_of(RoundFacts(round=0, status="published", opened_at=5.0, closed_at=9.0))
    4.0
    >>> steps = {"train": 2.0, "aggregate": 1.0}
    >>> seconds_of(RoundFacts(round=0, status="published", timings=steps))
    3.0
    """
    if record.opened_at:
        return max(0.0, record.closed_at - record.opened_at)
    return sum(record.timings.values())
