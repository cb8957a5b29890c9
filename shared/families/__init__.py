"""Families of algorithms, such as rules; this package turns names in experiments into objects.

This package contains the registry of a family's members. It also contains code that finds members
in other installed packages, and code that loads objects by import path. The members themselves are
in the packages of their families, such as `robust/rules`.
"""
