"""Forked processes are like all others: own output, variables, session and exit code."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rampart_fl.services.console.launcher.forked import ForkedProcesses
from rampart_fl.services.console.launcher.processes import ChildFailed
from tests.services.console.studies.test_batch import alive, until

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


OWNER = """
import signal, sys, time
from pathlib import Path
from rampart_fl.services.console.launcher.forked import ForkedProcesses

processes = ForkedProcesses(Path(sys.argv[1]))
for name in ("first", "second"):
    processes.python(name, "told_to_run", "wait")
print(processes["first"].pid, processes["second"].pid, flush=True)
time.sleep(600)  # The test kills this process.
"""


@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGTERM, marks=pytest.mark.long), signal.SIGKILL]
)
def test_forked_processes_and_their_server_end_when_their_owner_is_killed(
    processes: ForkedProcesses, number: signal.Signals
) -> None:
    command = [sys.executable, "-c", OWNER, str(processes.logs)]
    logs = [processes.logs / f"{name}.log" for name in ("first", "second")]
    watched: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        try:
            assert owner.stdout is not None
            watched += owner.stdout.readline().split()
            until(lambda: all(log.exists() and log.read_text().count("\n") == 2 for log in logs))
            status = Path(f"/proc/{watched[0]}/stat").read_text()
            watched.append(status.rpartition(")")[2].split()[1])  # The server is their parent.
            assert len(watched) == 3 and all(map(alive, watched))
            owner.send_signal(number)
            owner.wait(30)
            until(lambda: not any(map(alive, watched)), 15)
        finally:
            owner.kill()
            for process in filter(alive, watched):
                os.kill(int(process), signal.SIGKILL)
