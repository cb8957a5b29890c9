"""The server's round: turns uploads and claims into rows, and rows into a decision.

- `calibration`: the two models whose difference calibrates a client's upload.
- `pool`: uploads as rows of one block, and what the server knows about each.
- `rounds`: the rows, the context, the engine's call, and the models of newcomers.

The aggregator's worker and the simulator's server both run rounds through this package. They differ
in where vectors are held, how models are stored, and what survives a crash; code for this belongs
to them. No code in this package uses networks, blobs or clocks. The computations of the stages
belong in `robust`.
"""
