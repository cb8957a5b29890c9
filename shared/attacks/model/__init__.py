"""Attacks on updates.

To add a model attack, write a module in this package with a subclass of `ModelAttack` that is
decorated with `@attacks.register("name")`, and a test file of the same name in
`tests/shared/attacks/model/`.

Attacks that change a client's samples before training belong in `attacks.data`.
"""

from rampart_fl.shared.attacks.base import ModelAttack
from rampart_fl.shared.families.registry import Registry

attacks: Registry[ModelAttack] = Registry(
    ModelAttack, "model attack", package=__name__, group="rampart_fl.model_attacks"
)
