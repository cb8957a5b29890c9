"""The aggregator: an API that accepts updates, and a worker that computes each round's result.

The modules directly in this package contain the command, settings, metrics, health probe and server
of one process. All other code of the aggregator is in the subpackages `api` (HTTP), `worker`
(rounds) and `state` (shared by the API and the worker). Code that other services also need belongs
in `rampart_fl.shared`.
"""
