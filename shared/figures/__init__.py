"""The numbers that are reported: those of each round, and the final figures of a federation.

This package holds the code that turns rounds and evaluations into figures that people compare. Code
that makes decisions belongs elsewhere, and so does code that prints or plots figures.
"""
