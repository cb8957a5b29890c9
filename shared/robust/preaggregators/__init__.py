"""Pre-aggregators: rows in, rows out, before a rule.

To add one: a module here with a subclass of `PreAggregator` under
`@preaggregators.register("name")`, and a test file of the same name.
"""

from rampart_fl.shared.families.registry import Registry
from rampart_fl.shared.robust.base import PreAggregator

preaggregators: Registry[PreAggregator] = Registry(
    PreAggregator, "pre-aggregator", package=__name__, group="rampart_fl.preaggregators"
)
