"""The aggregator: an API that admits updates, and a worker that decides rounds.

The modules of this package make up one process: its command, settings, metrics, health probe and
server. The rest is in the subpackages `api` (HTTP), `worker` (rounds) and `state` (shared by the
API and the worker).
"""
