"""Simulates federations in one process, without services or sockets.

Simulations and services use the same packages for rounds (`round`), training (`learning`) and
attacks (`attacks`). This package contains the simulated federation, its two sides (clients and
server), and studies that simulate many federations. Code that networked federations also need
belongs elsewhere: mathematics in `robust`, training in `learning`.
"""

from rampart_fl.shared.simulation.federation import Simulation, SimulationResult, simulate

__all__ = ["Simulation", "SimulationResult", "simulate"]
