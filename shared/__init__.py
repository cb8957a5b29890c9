"""Code that all services share: mathematics, learning, attacks, protocol, experiment files.

The services that use this code are in the package `services`. Code that only one service needs
belongs in this service. No module of `shared` imports `services`.
"""
