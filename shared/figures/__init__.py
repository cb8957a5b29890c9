"""The numbers that are reported: those of each round, and the final figures of a federation.

This package computes figures from rounds and evaluations. Code that makes decisions, or that prints
or plots figures, belongs elsewhere.
"""
