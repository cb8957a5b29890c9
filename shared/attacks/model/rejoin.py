"""Coming back after an eviction."""

from rampart_fl.shared.attacks.model import attacks
from rampart_fl.shared.attacks.wrapping import Wrapper


@attacks.register("rejoin")
class Rejoin(Wrapper):
    """The attack inside; once evicted, the agent joins again under a new identity.

    What it uploads is the attack inside; `rejoins` tells the agent to try.

    >>> Rejoin(attack="ipm").rejoins
    True
    """

    paper = "Douceur, The Sybil attack, 2002"

    @property
    def rejoins(self) -> bool:
        return True
