"""How many clients an attacker without full knowledge counts in a round."""

from rampart_fl.services.attacker.hostile import count_participants
from rampart_fl.shared.experiment import Experiment

PARTIAL = Experiment.load("digits-partial")
NAMES = PARTIAL.client_names
DRAWN = PARTIAL.draw(3, NAMES)
OTHERS = sorted({*NAMES} - {*DRAWN})


def test_colluders_that_were_not_drawn_are_counted_in_addition() -> None:
    assert count_participants(PARTIAL, 3, (), ()) == len(DRAWN) == 10
    assert count_participants(PARTIAL, 3, (), [DRAWN[0], *OTHERS[:2]]) == 12


def test_attackers_that_have_left_are_not_drawn() -> None:
    left = [*DRAWN[:2], *OTHERS[:2]]
    assert count_participants(PARTIAL, 3, left, ()) == 8


def test_ids_that_are_no_slots_names_change_only_the_number() -> None:
    """An attacker that chose no id has a random one, and so has one that joined again."""
    assert count_participants(PARTIAL, 3, (), ["client-9f1c2d", "client-77aa01"]) == 10
    assert count_participants(PARTIAL, 3, ["client-9f1c2d", "client-77aa01"], ()) == 9
