"""Aggregation rules, which turn rows into one vector.

To add a rule, add a module here that defines a subclass of `Rule`, and registers the subclass with
`@rules.register("name")`. The rule's parameters are pydantic fields of the subclass. Add a test
file with the module's name under `tests/shared/robust/rules/`. The contract suite
(`tests/contracts/test_rules.py`) finds the rule automatically.

Code that turns rows into other rows belongs in `preaggregators`, and verdicts belong in
`detectors`.
"""

from typing import Annotated, Any

from pydantic import BeforeValidator, ValidationInfo

from rampart_fl.shared.families.registry import Registry
from rampart_fl.shared.robust.base import Rule

rules: Registry[Rule] = Registry(Rule, "rule", package=__name__, group="rampart_fl.rules")


def _build(value: Any, info: ValidationInfo) -> Rule:
    return rules.parse(value, f=info.data.get("f", 0))


WrappedRule = Annotated[Rule, BeforeValidator(_build)]
"""A rule as a parameter of another stage (the outer stage): a `Rule` object, a name, or a TOML
table. A rule given by its name, or by a table without `f`, gets the f of the outer stage."""
