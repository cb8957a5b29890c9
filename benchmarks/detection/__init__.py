"""Tests detectors on held-out runs: which clients they bar or reject, and the final accuracy.

    python -m benchmarks.detection SECTION [--detector NAME] [--seed N] [--jobs N]

A section (`benign`, `loud`, `collusion`, `table`, `claims` or `network`) plans runs. The module
`runs` executes those that the cache lacks, and the section writes its part of
benchmarks/results/detection.md. The module `sample` draws combinations at random, `admissible`
rejects those that cannot be run, and `bounds` computes the confidence intervals. The section
`level` runs no federation: it draws the results of rounds at random.

Detectors belong in `rampart_fl.shared.robust.detectors`. A check that passes or fails belongs in
`tests`.
"""
