"""Who is evicted, who is silenced, and what accuracy is left: a detector on runs held out from it.

    python -m benchmarks.detection SECTION [--detector NAME] [--seed N] [--jobs N]

A section plans runs (`benign`, `loud`, `collusion`, `table`, `claims`, `network`), `runs` runs what
the cache lacks, and the section writes its part of benchmarks/results/detection.md. `sample` draws
combinations at random, `admissible` refuses those that cannot be run, `bounds` has the intervals.
"""
