"""Simulates federations in one process, with the code of the services but without sockets.

The engine, the learning and the attacks are the modules that the services run, too. This package
holds the simulated federation, its two sides (clients and server), and studies that
simulate many federations. Code that a networked federation also needs belongs elsewhere:
mathematics in `robust`, training in `learning`.
"""

from rampart_fl.shared.simulation.federation import Simulation, SimulationResult, simulate

__all__ = ["Simulation", "SimulationResult", "simulate"]
