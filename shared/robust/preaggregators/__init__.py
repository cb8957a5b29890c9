"""Pre-aggregators, which turn rows into other rows before a rule aggregates them.

To add a pre-aggregator, add a module here that defines a subclass of `PreAggregator` and registers
it with `@preaggregators.register("name")`. Add a test file of the same name.

Code that turns rows into one vector belongs in `rules`.
"""

from rampart_fl.shared.families.registry import Registry
from rampart_fl.shared.robust.base import PreAggregator

preaggregators: Registry[PreAggregator] = Registry(
    PreAggregator, "pre-aggregator", package=__name__, group="rampart_fl.preaggregators"
)
