"""Simulates federations in one process, with the services' code but without sockets.

The simulation runs the same modules for rounds, training and attacks as the services. This package
holds the simulated federation, its two sides (clients and server), and studies that simulate many
federations. Code that networked federations also need belongs elsewhere: mathematics in `robust`,
training in `learning`.
"""

from rampart_fl.shared.simulation.federation import Simulation, SimulationResult, simulate

__all__ = ["Simulation", "SimulationResult", "simulate"]
