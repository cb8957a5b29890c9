"""Samples: data sets, their partition among clients, a client's own files, the server's samples.

This package reads samples, splits them and converts them to arrays. Code that computes with a model
belongs in `network` or `training`.
"""
