"""The HTTP API: connections, identities, admission of uploads, waiting requests, routes.

It decides nothing about a round: it stores uploads and reads what the worker has published, both
through `state`. No module here imports torch or `worker`.
"""
