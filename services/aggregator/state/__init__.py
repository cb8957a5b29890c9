"""The shared state of all processes: Redis with its atomic scripts, and the blob store.

`Stores` holds one store per subject; `keys` lists what is kept in Redis. A store owns the scripts
that write its subject's keys, and its users never name a key. The modules of this package read,
parse and write state. They do not decide what to write: `api` and `worker` do, and no module of
this package imports either.
"""
