"""Samples: data sets, their partition over clients, a client's own files, the server's samples.

This package holds the code that reads samples, splits them and turns them into arrays. Code that
computes with a model belongs in `network` or `training`.
"""
