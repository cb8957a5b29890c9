"""Replays a function on a GPU as a CUDA graph.

The host needs several microseconds to launch a kernel. If a function launches many short kernels,
these launches limit its speed. A CUDA graph contains all kernels of the function, and the host
launches the graph with a single call.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor

MOST = 64
"""Largest number of graphs of a `CudaGraphs`; the graph that was used least recently is removed."""

Function = Callable[..., Tensor]


class CudaGraph:
    """A function of tensors, recorded for inputs of fixed shapes.

    The function must compute its result only from its arguments. It must launch the same kernels
    for all inputs of these shapes, and must not make the host wait for the GPU.

    Args:
        function: maps tensors to one tensor.
        inputs: tensors on the GPU, with the shapes and types for which the function is recorded.
        pool: the memory that the graph shares with other graphs.
    """

    def __init__(self, function: Function, inputs: tuple[Tensor, ...], pool: Any) -> None:
        self._inputs = tuple(torch.empty(t.shape, dtype=t.dtype, device=t.device) for t in inputs)
        self._load(inputs)
        self._graph = torch.cuda.CUDAGraph()
        stream: torch.cuda.Stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # untyped
        now = torch.cuda.current_stream()
        stream.wait_stream(now)
        with torch.cuda.stream(stream):
            # At its first use, a library may allocate memory. No graph can record this allocation.
            function(*self._inputs)
            # With "thread_local", other threads may use the GPU while this thread records.
            self._graph.capture_begin(pool=pool, capture_error_mode="thread_local")
            try:
                self._output = function(*self._inputs)
            finally:
                self._graph.capture_end()
        now.wait_stream(stream)

    def __call__(self, *inputs: Tensor) -> Tensor:
        """The function's result for inputs of the recorded shapes."""
        self._load(inputs)
        self._graph.replay()
        return self._output.clone()

    def _load(self, inputs: tuple[Tensor, ...]) -> None:
        for held, given in zip(self._inputs, inputs, strict=True):
            held.copy_(given)


class CudaGraphs:
    """Runs functions as CUDA graphs, and records a graph for each new combination of shapes.

    The graphs share their memory, so they must all be replayed by the same thread.

    Args:
        record: records a function; tests replace it.
    """

    def __init__(
        self, record: Callable[[Function, tuple[Tensor, ...], Any], Function] = CudaGraph
    ) -> None:
        self._record = record
        self._graphs: OrderedDict[Hashable, Function] = OrderedDict()
        self._pool: Any = None

    def run(self, function: Function, variant: Hashable, inputs: tuple[Tensor, ...]) -> Tensor:
        """The function's result; `variant` identifies everything else that the result depends on.

        The result is always computed by the graph, even when the graph has just been recorded. A
        run that continues from a checkpoint therefore gives the same bits as an uninterrupted run.
        """
        shapes = tuple((tuple(t.shape), t.dtype, t.device) for t in inputs)
        graph = self._graphs.get((variant, shapes))
        if graph is None:
            if self._pool is None and inputs[0].is_cuda:
                self._pool = torch.cuda.graph_pool_handle()
            while len(self._graphs) >= MOST:
                self._graphs.popitem(last=False)
            graph = self._record(function, inputs, self._pool)
            self._graphs[variant, shapes] = graph
        self._graphs.move_to_end((variant, shapes))
        return graph(*inputs)
