"""Generators of reference pages: `python -m tools.catalogue`, `python -m tools.reference`.

The programs in this package write files of the repository from its code. The package is not part of
any wheel, and no other package imports it.
"""
