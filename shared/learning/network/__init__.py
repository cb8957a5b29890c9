"""Networks: architectures, models as vectors, and many models that run as one.

This package holds the code that evaluates a model or its derivatives. Code that changes a model's
parameters belongs in `training`.
"""
