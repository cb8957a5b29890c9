"""Aggregation rules: rows in, one vector out.

To add one: a module here with a subclass of `Rule` under `@rules.register("name")`, its parameters
as pydantic fields, and a test file of the same name under `tests/shared/robust/rules/`. The
contract suite (`tests/contracts/test_rules.py`) finds it by itself.
"""

from typing import Annotated, Any

from pydantic import BeforeValidator, ValidationInfo

from rampart_fl.shared.families.registry import Registry
from rampart_fl.shared.robust.base import Rule

rules: Registry[Rule] = Registry(Rule, "rule", package=__name__, group="rampart_fl.rules")


def _built(value: Any, info: ValidationInfo) -> Rule:
    return rules.parse(value, f=info.data.get("f", 0))


WrappedRule = Annotated[Rule, BeforeValidator(_built)]
"""A rule as another stage's parameter: by name, as a table or built. It gets that stage's f."""
