"""The reported metrics: the metrics of each round, and the final metrics of a federation.

This package computes metrics from rounds and evaluations. Code that makes decisions, or that prints
or plots metrics, belongs elsewhere.
"""
