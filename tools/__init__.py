"""Generators of reference pages: `python -m tools.catalogue`, `python -m tools.reference`.

This package holds the programs that write files of this repository from its code. It is not part of
any wheel, and no other package imports it.
"""
