"""Families of named members: how a name in an experiment file becomes an object.

Here belong the registry, members from other packages, and objects by import path. The members
themselves stand in the packages of their families, such as `robust/rules`.
"""
