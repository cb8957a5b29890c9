"""DBA, the distributed backdoor attack: each attacker trains with a part of the trigger."""

from pydantic import Field

from rampart_fl.shared.attacks.data import attacks
from rampart_fl.shared.attacks.triggers import Backdoor, Pixels

PARTS = 4
"""Number of bars of the trigger."""


@attacks.register("dba")
class DBA(Backdoor):
    """A trigger of four bars: attacker j stamps bar j mod 4, and test images show all four bars.

    The bars are arranged in two rows and two columns. The defaults are the paper's values for
    MNIST: bars of 1x4 pixels, two pixels apart, target 2, and the trigger in 20 of 64 samples. The
    paper's bars for CIFAR-10 have 1x6 pixels and are three pixels apart. The factor `scale`
    multiplies the update: set it to 100 for an attack in a single round, and to 1 for an attack in
    many rounds.

    >>> DBA().part(1)
    ((0, 6), (0, 7), (0, 8), (0, 9))
    >>> len(DBA().whole())
    16
    """

    paper = "Xie et al., DBA: distributed backdoor attacks, 2020; PAwBRoFL, section 5.1"
    target: int = Field(default=2, ge=0)
    poison_rate: float = Field(default=20 / 64, ge=0, le=1)
    width: int = Field(default=4, ge=1)
    """Length of a bar, in pixels."""
    gap: int = Field(default=2, ge=0)
    """Number of pixels between bars, horizontally and vertically."""
    shift: int = Field(default=0, ge=0)
    """Distance of the trigger from the top and from the left edge, in pixels."""

    def part(self, attacker: int) -> Pixels:
        down, across = divmod(attacker % PARTS, 2)
        row = self.shift + down * (1 + self.gap)
        left = self.shift + across * (self.width + self.gap)
        return tuple((row, left + step) for step in range(self.width))

    def whole(self) -> Pixels:
        return tuple(pixel for part in range(PARTS) for pixel in self.part(part))
