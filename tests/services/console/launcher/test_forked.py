"""Forked processes are like all others: own output, variables, session and exit code."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from rampart_fl.services.console.launcher.forked import ForkedProcesses
from rampart_fl.services.console.launcher.processes import ChildFailed

pytestmark = pytest.mark.processes
MODULE = """
import json, os, sys, time

assert __name__ == "__main__"
report = {"arguments": sys.argv[1:], "given": os.environ.get("GIVEN"), "pid": os.getpid()}
report |= {"session": os.getsid(0), "imported": "torch" in sys.modules}
print(json.dumps(report), flush=True)
print("on standard error", file=sys.stderr, flush=True)
assert sys.stdin.read() == ""
if "wait" in sys.argv:
    time.sleep(60)
sys.exit(3)
"""


@pytest.fixture
def processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ForkedProcesses:
    """Processes that can import the module, from a folder that this process does not search."""
    (tmp_path / "told_to_run.py").write_text(MODULE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    return ForkedProcesses(tmp_path / "logs")


def test_forked_module_has_its_own_output_variables_and_session(
    processes: ForkedProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GIVEN", raising=False)
    processes.python("first", "told_to_run", "a", "b", GIVEN="here")
    processes.python("second", "told_to_run")
    assert [processes[name].wait(60) for name in processes.names] == [3, 3]
    reports = []
    for name in processes.names:
        first, second = (processes.logs / f"{name}.log").read_text().splitlines()
        assert second == "on standard error"
        reports.append(json.loads(first))
    assert [one["arguments"] for one in reports] == [["a", "b"], []]
    assert [one["given"] for one in reports] == ["here", None]
    for name, one in zip(processes.names, reports, strict=True):
        assert one["pid"] == one["session"] == processes[name].pid != os.getpid()
        assert one["imported"]
    with pytest.raises(ChildFailed, match="first exited with code 3"):
        processes.check()


def test_forked_process_can_be_killed_and_stopped(processes: ForkedProcesses) -> None:
    for name in ("killed", "stopped"):
        processes.python(name, "told_to_run", "wait")
    killed, stopped = processes["killed"], processes["stopped"]
    with pytest.raises(subprocess.TimeoutExpired):
        killed.wait(0.1)
    assert killed.poll() is None
    processes.kill("killed")
    assert killed.poll() == -signal.SIGKILL
    processes.stop_all()
    assert stopped.poll() == -signal.SIGTERM
