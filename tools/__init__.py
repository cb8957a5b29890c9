"""Generators of pages: `tools.architecture`, `.catalogue`, `.reference` and `.state_machine`.

This package holds the programs that write files of this repository from its code, and the walk over
its imports. It is not part of any wheel, and no other package imports it, except tests.
"""
