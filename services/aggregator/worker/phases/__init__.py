"""The phase machine: decides in which phase a run is, without clock, Redis or waiting.

The machine's state, events, commands and decisions belong in this package. What carries out the
commands, such as `rampart_fl.services.aggregator.worker.coordinator`, does not.
"""
