"""Federations in one process: the same engine, learning and attacks, without sockets.

Here belong the simulated federation, its two sides, and studies that simulate many of them. What a
networked federation needs too belongs elsewhere: mathematics in `robust`, training in `learning`.
"""

from rampart_fl.shared.simulation.federation import Simulation, SimulationResult, simulate

__all__ = ["Simulation", "SimulationResult", "simulate"]
