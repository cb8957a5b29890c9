"""Reproduces the papers' tables and figures cell by cell, and compares our values with theirs.

The module `files` reads the `Definition` of a table. The module `cells` makes an experiment for
each cell of the table. The module `runs` executes these experiments. The module `report` writes a
table with the results and the paper's values.

Code that runs or tabulates other experiments belongs in `studies`.
"""
