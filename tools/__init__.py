"""Generators of reference pages: `python -m tools.catalogue`, `python -m tools.reference`.

Here belongs what writes files of this repository from its code. Tools are in no wheel, and no other
package imports them.
"""
