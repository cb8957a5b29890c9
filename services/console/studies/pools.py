"""Pools for parallel runs: processes or threads of this machine, or a Ray cluster.

A pool opens an executor, which has the interface of `concurrent.futures.Executor`. If an error or
an interrupt ends the executor's context, no further run starts. In this case, runs in processes and
in Ray tasks are stopped, but runs in threads continue until they end.
"""

import os
import signal
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing import active_children, get_context, parent_process
from threading import Thread
from types import TracebackType

from rampart_fl.services.console.studies.ray_cluster import RayCluster
from rampart_fl.shared.errors import ConfigurationError

Pool = Callable[[], Executor]
"""Opens an executor. If there is no pool (None), this process executes one run after another."""


def pool(
    jobs: int = 1,
    ray: str | None = None,
    *,
    threads: bool = False,
    cores: int = 1,
    gpus: float | None = None,
    device: str = "cpu",
) -> Pool | None:
    """The pool that the command-line options select.

    Args:
        jobs: maximum number of runs at the same time on this machine.
        ray: address of a Ray cluster, or `local`; None to run without Ray.
        threads: True if the runs start processes themselves; the pool then needs only threads.
        cores: number of processor cores that each run on Ray gets.
        gpus: share of a GPU for each run on Ray. By default, a run gets a whole GPU, or no GPU if
            `device` is cpu.
        device: device of the models and data.
    Raises:
        ConfigurationError: the options contradict each other.

    >>> pool(jobs=1) is None
    True
    """
    if ray is None:
        if gpus is not None:
            raise ConfigurationError("--gpus sets a run's share of a GPU on Ray; add --ray")
        if jobs == 1:
            return None
        return partial(ThreadPool if threads else ProcessPool, jobs)
    if jobs > 1:
        raise ConfigurationError(
            f"give either --jobs {jobs} or --ray: with --ray, the cluster's size limits the "
            "number of runs at a time"
        )
    if device == "cpu" and gpus is not None:
        raise ConfigurationError("--gpus needs runs on a GPU: give --device cuda")
    if ":" in device:
        raise ConfigurationError(f"--device {device}: Ray chooses the GPU; give --device cuda")
    share = 1.0 if gpus is None else gpus
    return partial(RayCluster, ray, cores, 0.0 if device == "cpu" else share)


class ProcessPool(ProcessPoolExecutor):
    """Processes of this machine; these processes exit when the current process exits.

    Args:
        jobs: maximum number of processes.
    """

    def __init__(self, jobs: int) -> None:
        super().__init__(jobs, get_context("spawn"), _begin)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.shutdown(wait=kind is None, cancel_futures=True)
        if kind is not None:
            for process in active_children():
                process.terminate()


class ThreadPool(ThreadPoolExecutor):
    """Threads of this process, for runs that start processes themselves.

    Args:
        jobs: maximum number of threads.
    """

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.shutdown(wait=True, cancel_futures=True)


def _begin() -> None:
    """Sets up a process of the pool: it ignores Ctrl-C, and exits when its parent exits."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
