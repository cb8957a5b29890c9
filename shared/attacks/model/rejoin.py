"""Joining again after an eviction."""

from rampart_fl.shared.attacks.model import attacks
from rampart_fl.shared.attacks.wrapping import Wrapper


@attacks.register("rejoin")
class Rejoin(Wrapper):
    """Runs the inner attack; an evicted attacker rejoins under a new identity.

    The inner attack crafts the uploads. Because `rejoins` is true, the agent of an evicted attacker
    tries to join again.

    >>> Rejoin(attack="ipm").rejoins
    True
    """

    paper = "Douceur, The Sybil attack, 2002"

    @property
    def rejoins(self) -> bool:
        return True
