"""The HTTP API: connections, identities, admission of uploads, waiting requests, routes.

The API makes no decisions about a round. Through `state`, the API stores uploads and reads what the
worker has published. No module of this package imports torch or `worker`.

Code that decides about rounds or computes with updates belongs in `worker`. Redis keys and scripts
belong in `state`.
"""
