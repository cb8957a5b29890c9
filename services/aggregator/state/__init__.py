"""The shared state of all processes: Redis with its atomic scripts, and the blob store.

`Stores` holds one store per subject, such as clients or rounds; `keys` lists what is kept in Redis.
Each store has the scripts that write its subject's keys, so code that uses a store never names a
key. The modules of this package read, parse and write state. The packages `api` and `worker` decide
what to write; no module of this package imports them.
"""
