"""The aggregator: an API that admits updates, and a worker that decides.

The modules here make up one process: its command, settings, metrics, health probe and server.
Everything else stands in `api` (HTTP), `worker` (rounds) or `state` (what both share).
"""
