"""The papers' tables and figures: defines and runs their cells, and compares the results.

`files` reads a table's `definition`, and `cells` makes an experiment for each of the table's cells.
`runs` runs the cells, and `report` writes the table next to the paper's values.

Code that runs or tabulates other experiments belongs in `studies`.
"""
