"""Generators of pages: `tools.architecture`, `.catalogue`, `.reference` and `.state_machine`.

The package contains the programs that generate pages of this repository from its code, and code
that analyses the imports of modules. The package is not part of the wheel, and only tests import
it.
"""
