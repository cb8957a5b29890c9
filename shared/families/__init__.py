"""Families of named members: how a name in an experiment file becomes an object.

This package holds the registry, the code that finds members in other installed packages, and the
code that loads objects by import path. The members themselves are in the packages of their
families, such as `robust/rules`.
"""
