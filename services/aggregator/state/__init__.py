"""The shared state of all processes: Redis with its atomic scripts, and the blob store.

`Stores` has one store per subject, such as clients or rounds; `keys` documents all keys in Redis.
Each store contains the scripts that write its keys, so code that uses a store never names a key.
The modules of this package read, parse and write state. Code that decides what to write belongs in
`api` or `worker`; this package does not import them.
"""
