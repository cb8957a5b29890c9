"""BadNets: one square trigger, the same for every attacker."""

from pydantic import Field

from rampart_fl.shared.attacks.data import attacks
from rampart_fl.shared.attacks.triggers import Backdoor, Pixels


@attacks.register("badnets")
class BadNets(Backdoor):
    """A square of `size` x `size` pixels in the top left corner is the trigger for class `target`.

    The attack in PAwBRoFL's code has `size` 5, `value` 0, `target` 0 and `poison_rate` 1.

    >>> import torch
    >>> x, y = torch.zeros(1, 1, 3, 3), torch.tensor([4])
    >>> stamped, labels = BadNets(size=2, poison_rate=1).apply(x, y, 10, torch.Generator())
    >>> stamped[0, 0].tolist(), labels.tolist()
    ([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]], [0])
    """

    paper = "Gu et al., BadNets, 2017"
    target: int = Field(default=0, ge=0)
    poison_rate: float = Field(default=0.5, ge=0, le=1)
    size: int = Field(default=3, ge=1)
    """Side of the square, in pixels."""

    def part(self, attacker: int) -> Pixels:
        return self.whole()

    def whole(self) -> Pixels:
        return tuple((row, column) for row in range(self.size) for column in range(self.size))
