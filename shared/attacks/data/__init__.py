"""Attacks on data.

To add a data attack, write a module in this package, and a test file of the same name in
`tests/shared/attacks/data/`. The module has a subclass of `DataAttack`, decorated with
`@attacks.register("name")`.

Attacks that change an update after training belong in `attacks.model`.
"""

from rampart_fl.shared.attacks.base import DataAttack
from rampart_fl.shared.families.registry import Registry

attacks: Registry[DataAttack] = Registry(
    DataAttack, "data attack", package=__name__, group="rampart_fl.data_attacks"
)
