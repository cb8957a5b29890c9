"""Collects the values that are needed to build a client's participant for one run."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rampart_fl.shared.agent.activity_log import ActivityLog
from rampart_fl.shared.agent.agent_settings import AgentSettings
from rampart_fl.shared.agent.identity import Identity
from rampart_fl.shared.agent.loop import Participant
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.learning.data.client_data import (
    ClientData,
    client_data,
    client_data_from_file,
)
from rampart_fl.shared.learning.data.datasets import datasets


@dataclass(frozen=True, eq=False)
class AgentContext:
    """Everything that is needed to build the participant for one client in one run.

    Args:
        settings: settings of the process.
        run: the run's id.
        experiment: the part of the experiment that clients know.
        identity: the client's identity.
        sample_cap: the highest number of samples that the client may claim.
        folder: where the client stores its state for this run.
        thread: the executor for the client's computations; all clients of a process share it.
        position: the client's position among the clients of the process.
        slot: number of the client's slot, which determines the client's part of the experiment's
            data.
        activity: the client's own log.
        data_file: file with the client's own samples; None if the client uses the samples of its
            slot.
    """

    settings: AgentSettings
    run: str
    experiment: Experiment
    identity: Identity
    sample_cap: int
    folder: Path
    thread: ThreadPoolExecutor
    position: int
    slot: int
    activity: ActivityLog
    data_file: Path | None = None

    @property
    def client(self) -> str:
        """The client's id."""
        assert self.identity.client_id is not None
        return self.identity.client_id

    async def data(self) -> ClientData:
        """The client's samples, from its own file or from its slot's part of the data set."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.thread, self._data)

    def _data(self) -> ClientData:
        if self.data_file is None:
            return client_data(self.experiment.data, self.slot, self.experiment.seed)
        return client_data_from_file(self.data_file, datasets.parse(self.experiment.data.dataset))


Build = Callable[[AgentContext], Awaitable[Participant]]
"""A function that builds the participant from an `AgentContext`."""


Check = Callable[[Experiment], None]
"""A function that raises an error if clients must decline an experiment."""
