"""Families of named members: turns a name in an experiment file into an object.

This package contains the registry, and code that finds members in other installed packages and
loads objects by import path. The members themselves are in the packages of their families, such as
`robust/rules`.
"""
