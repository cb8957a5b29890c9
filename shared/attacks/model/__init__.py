"""Attacks on updates.

To add a model attack, write a module in this package, and a test file of the same name in
`tests/shared/attacks/model/`. The module has a subclass of `ModelAttack`, decorated with
`@attacks.register("name")`.

Attacks that change a client's samples before training belong in `attacks.data`.
"""

from rampart_fl.shared.attacks.base import ModelAttack
from rampart_fl.shared.families.registry import Registry

attacks: Registry[ModelAttack] = Registry(
    ModelAttack, "model attack", package=__name__, group="rampart_fl.model_attacks"
)
