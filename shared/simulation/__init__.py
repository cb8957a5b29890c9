"""Simulates federations in one process, with the services' code but without sockets.

The simulation uses the services' modules for rounds, training and attacks. This package contains
the simulated federation, its two sides (clients and server), and studies that simulate many
federations. Code that networked federations also need belongs elsewhere: mathematics in `robust`,
training in `learning`.
"""

from rampart_fl.shared.simulation.federation import Simulation, SimulationResult, simulate

__all__ = ["Simulation", "SimulationResult", "simulate"]
