"""Networks: architectures, models as vectors, and code that runs many models at once.

This package evaluates models and their derivatives. Code that changes a model's parameters belongs
in `training`.
"""
