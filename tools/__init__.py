"""Generators of pages: `tools.architecture`, `.catalogue`, `.reference` and `.state_machine`.

This package contains the programs that generate pages of this repository from its code, and the
code that reads which module imports which. The package is not part of any wheel, and only tests
import it.
"""
