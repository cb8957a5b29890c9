"""Families of named members, which turn the names in an experiment file into objects.

This package contains the registry, and code that finds members in other installed packages and
loads objects by import path. The members themselves are in the packages of their families, such as
`robust/rules`.
"""
