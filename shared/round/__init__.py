"""The server's round, written once: uploads and claims become rows, rows become a decision.

- `calibration`: the two models whose difference calibrates a client's upload.
- `pool`: uploads as rows of one block, and what the server knows about each.
- `rounds`: the rows, the context, the engine's call, and the models of newcomers.

The aggregator's worker and the simulator's server drive it. What differs between the two stays with
them: where vectors are held, how models are stored, and what survives a crash. Nothing here knows
of networks, blobs or times; what one stage does to the rows belongs in `robust`.
"""
