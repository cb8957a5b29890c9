"""Functions that run on another thread."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from rampart_fl.shared.runtime.compute import compute_on

pytestmark = pytest.mark.anyio


async def test_function_runs_on_the_executor_with_all_arguments() -> None:
    def named(*parts: int, scale: int) -> tuple[str, int]:
        return threading.current_thread().name, sum(parts) * scale

    with ThreadPoolExecutor(1, thread_name_prefix="own") as thread:
        assert await compute_on(thread)(named, 1, 2, scale=3) == ("own_0", 9)
        with pytest.raises(ZeroDivisionError):
            await compute_on(thread)(divmod, 1, 0)
