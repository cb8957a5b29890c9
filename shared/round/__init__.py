"""The server's part of a round: turns uploads and claims into rows, and rows into a result.

- `calibration`: the two models whose difference calibrates a client's upload.
- `pool`: uploads as rows of one block, and what the server knows about each upload.
- `rounds`: makes the rows and the context, runs the stages, and makes the models of newcomers.

The aggregator's worker and the simulator's server both run rounds through this package. The worker
and the simulator each have their own code for holding vectors, storing models and recovering from
crashes. No code in this package uses sockets, blobs or clocks. The computations of the stages
belong in `robust`.
"""
