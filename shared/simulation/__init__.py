"""Federations in one process: the same engine, learning and attacks, without sockets.

This package holds the simulated federation, its two sides (clients and server), and studies that
simulate many federations. Code that a networked federation also needs belongs elsewhere:
mathematics in `robust`, training in `learning`.
"""

from rampart_fl.shared.simulation.federation import Simulation, SimulationResult, simulate

__all__ = ["Simulation", "SimulationResult", "simulate"]
