"""Attacks on data.

To add one: a module here with a subclass of `DataAttack` under `@attacks.register("name")`, and a
test file of the same name under `tests/shared/attacks/data/`.
"""

from rampart_fl.shared.attacks.base import DataAttack
from rampart_fl.shared.families.registry import Registry

attacks: Registry[DataAttack] = Registry(
    DataAttack, "data attack", package=__name__, group="rampart_fl.data_attacks"
)
