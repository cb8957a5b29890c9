"""The papers' tables and figures: defines and runs their cells, and compares the results.

The module `files` reads the `definition` of a table. The module `cells` makes an experiment for
each cell of the table. The module `runs` executes these experiments, and the module `report` writes
the table next to the paper's values.

Code that runs or tabulates other experiments belongs in `studies`.
"""
