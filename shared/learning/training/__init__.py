"""Local training: objectives, personalizers, learning-rate schedules, privacy, batches, steps.

This package trains a client's model and measures the result. Code that talks to an aggregator
belongs in `rampart_fl.shared.agent`.
"""
