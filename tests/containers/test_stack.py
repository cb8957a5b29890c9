"""The stack under compose: services, privileges, backups, upgrades, and kills in turn."""

import re
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.validation import validate
from tests.containers.conftest import PROJECT, ROOT, VERSION, Stack
from tests.manual import manual

pytestmark = [pytest.mark.containers, pytest.mark.timeout(1800)]
MODULES = {
    "worker": "rampart_fl.services.aggregator",
    "api": "rampart_fl.services.aggregator",
    "agents": "rampart_fl.services.client_agent",
    "attackers": "rampart_fl.services.attacker",
    "cohort": "rampart_fl.services.attacker cohort",
}
ONCE = {"join-tokens": "rampart_fl.services.console.join_tokens"}
"""Services whose process ends when its work is done."""
EXPERIMENT = "digits-sign-flip"
CLIENTS = ["agents", "attackers"]
KILLED = ["worker", "api", "redis", "agents"]


def wait(until: Callable[[], Any], seconds: float = 900.0) -> Any:
    """Asks until the answer is true; a killed api may not answer for a while."""
    end = time.monotonic() + seconds
    last: object = None
    while time.monotonic() < end:
        try:
            last = until()
        except AssertionError as error:
            last = error
        else:
            if last:
                return last
        time.sleep(2)  # Each question starts a process in a container.
    raise AssertionError(f"not in {seconds:g} seconds; at last: {last}")


def attackers() -> set[str]:
    """The names of the attackers."""
    experiment = validate(Experiment.load(EXPERIMENT))
    pairs = zip(experiment.client_names, experiment.roles, strict=True)
    return {name for name, role in pairs if role is not None}


def life(stack: Stack, service: str) -> tuple[str, str, int]:
    """The id of a container, when it was started, and how often the engine restarted it."""
    result = stack.container(service)
    return result["Id"], result["State"]["StartedAt"], result["RestartCount"]


def console(stack: Stack, script: str) -> str:
    """What commands print in the container of the console."""
    shell = ("run", "--rm", "-T", "--entrypoint", "sh", "console", "-ec")
    return stack.compose(*shell, script)


def status_of(stack: Stack, service: str) -> dict[str, str]:
    """/proc/PID/status of a service's process."""
    text = (stack.process(service) / "status").read_text()
    fields = (line.partition(":") for line in text.splitlines())
    return {name: value.strip() for name, _, value in fields}


@pytest.mark.parametrize("service", MODULES)
def test_each_container_runs_its_own_service(stack: Stack, service: str) -> None:
    words = (stack.process(service) / "cmdline").read_text().rstrip("\0").split("\0")
    assert words[1] == "-m"
    assert " ".join(words[2:]) == MODULES[service]


@pytest.mark.parametrize("service", ONCE)
def test_container_that_has_done_its_work_ran_its_own_service(stack: Stack, service: str) -> None:
    result = stack.container(service)
    assert result["Config"]["Cmd"] == ["python", "-m", ONCE[service]]
    assert result["HostConfig"]["ReadonlyRootfs"] is True
    assert (result["State"]["Status"], result["State"]["ExitCode"]) == ("exited", 0)


@pytest.mark.parametrize("service", [*MODULES, "redis"])
def test_containers_run_with_least_privilege(stack: Stack, service: str) -> None:
    result = status_of(stack, service)
    user = "999" if service == "redis" else "10001"
    assert result["Uid"].split() == [user] * 4
    assert result["Gid"].split() == [user] * 4
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(result[name], 16) == 0, name
    assert result["NoNewPrivs"] == "1"
    assert result["Seccomp"] == "2"
    mounts = (stack.process(service) / "mounts").read_text().splitlines()
    (root,) = [line.split()[3].split(",") for line in mounts if line.split()[1] == "/"]
    assert "ro" in root
    shell = ("exec", stack.container(service)["Id"], "sh", "-c")
    assert stack.engine.run(*shell, "touch /x 2> /dev/null || echo no") == "no\n"
    variables = (stack.process(service) / "environ").read_text()
    assert not re.search(r"(TOKEN|PASSWORD)=", variables)


def test_metrics_port_serves_metrics_and_public_port_does_not(stack: Stack) -> None:
    ask = "import urllib.request as u; print(u.urlopen('http://localhost:{}/metrics').status)"
    inside = ("exec", "-T", "api", "python", "-c")
    assert wait(lambda: stack.compose(*inside, ask.format(8441))) == "200\n"
    with pytest.raises(AssertionError, match="404"):
        stack.compose(*inside, ask.format(8440))


def back_up(stack: Stack, folder: Path, redis: str = "redis") -> list[str]:
    """Runs the scripts of the chart's CronJob; the exit codes of both containers."""
    shared = []
    for name in ("backups", "steps"):
        (folder / name).mkdir()
        (folder / name).chmod(0o777)
        shared += ["-v", f"{folder / name}:/{name}"]
    for key in ("rampart_operator_token", "rampart_redis_password"):
        shared += ["-v", f"{stack.folder}/secrets/{key}:/run/secrets/rampart/{key}:ro"]

    def start(script: str, image: str, network: str, *options: str) -> str:
        as_user = ("run", "--detach", "--user", "10001", "--network", f"{PROJECT}_{network}")
        text = (ROOT / "k8s/chart/files" / script).read_text()
        return stack.engine.run(*as_user, *shared, *options, image, "sh", "-c", text).strip()

    blobs = ("-v", f"{PROJECT}_blobs:/var/lib/rampart/blobs:ro", "-e", "KEEP=2")
    api = ("-e", "RAMPART_AGGREGATOR=http://api:8440", "-e", "RAMPART_SECRETS=/run/secrets/rampart")
    started = [
        start("backup.sh", f"rampart:{VERSION}-slim", "federation", *blobs, *api),
        start("backup-redis.sh", "redis:7.4-bookworm", "state", "-e", f"REDIS={redis}"),
    ]
    try:
        return [stack.engine.run("wait", name).strip() for name in started]
    finally:
        stack.engine.run("rm", "--force", *started)


def test_cron_job_scripts_make_a_complete_backup(stack: Stack, tmp_path: Path) -> None:
    assert back_up(stack, tmp_path) == ["0", "0"]
    (made,) = (tmp_path / "backups").iterdir()
    assert (made / "redis.rdb").read_bytes().startswith(b"REDIS")
    with tarfile.open(made / "blobs.tar") as archive:
        assert any(len(Path(member.name).name) == 64 for member in archive)
    assert stack.console("status")["status"] == "running"


def test_failed_cron_job_leaves_the_federation_running(stack: Stack, tmp_path: Path) -> None:
    assert back_up(stack, tmp_path, redis="nowhere") == ["1", "1"]
    assert all(one.name.endswith(".part") for one in (tmp_path / "backups").iterdir())
    assert stack.console("status")["status"] == "running"


def test_exactly_the_attackers_are_evicted_although_services_are_killed(stack: Stack) -> None:
    experiment, hostile = validate(Experiment.load(EXPERIMENT)), attackers()
    for number, service in enumerate(KILLED, start=1):
        wait(lambda number=number: stack.console("status")["round"] >= 2 * number)
        stack.kill(service)
    wait(lambda: len(stack.console("rounds", "--last", "100")) == experiment.rounds)
    assert set(stack.console("status")["evicted"]) == hostile
    records = stack.console("rounds", "--last", "100")
    assert [record["round"] for record in records] == list(range(experiment.rounds))
    assert {record["status"] for record in records} == {"published"}


def test_helm_test_script_sees_three_published_rounds(stack: Stack) -> None:
    script = (ROOT / "k8s/chart/files/three-rounds.sh").read_text()
    assert "published" in console(stack, script)


def test_operator_and_audit_commands_of_the_manual_succeed(stack: Stack) -> None:
    console(stack, manual("rampart operators add ada"))
    audit = manual("rampart audit --head")
    output = console(
        stack, re.sub("--head [0-9a-f]{64}", '--head "$(rampart audit --head)"', audit)
    )
    assert "none altered or missing" in output
    assert "ada" in console(stack, "rampart audit")


def test_client_containers_join_the_next_run_without_a_restart(stack: Stack) -> None:
    # The first run has ended, and has evicted the attackers.
    before = {service: life(stack, service) for service in CLIENTS}
    run = stack.console("run", EXPERIMENT, "--name", "again", "--set", "rounds=3")["run"]
    wait(lambda: stack.console("status", "--run", run)["phase"] == "done")
    result = stack.console("clients", "--run", run)
    members = {one["client_id"] for one in result if one["slot"] is not None}
    assert members == set(validate(Experiment.load(EXPERIMENT)).client_names)
    assert {service: life(stack, service) for service in CLIENTS} == before
    assert [count for _, _, count in before.values()] == [0, 0]
    assert all(stack.container(service)["State"]["Running"] for service in CLIENTS)


def test_backup_and_restore_of_the_manual_preserve_and_resume_a_paused_run(stack: Stack) -> None:
    run = stack.console("run", EXPERIMENT, "--name", "kept", "--set", "rounds=200")["run"]
    wait(lambda: stack.console("status", "--run", run)["round"] >= 3)
    stack.console("pause", run, "--reason", "backup")
    wait(lambda: stack.console("status", "--run", run)["phase"] == "published")
    before = stack.console("rounds", "--run", run, "--last", "100")
    assert len(before) >= 3
    stack.manual(manual("mkdir -p backup\ndocker"))
    stack.manual(manual("docker volume rm"))
    wait(lambda: stack.console("status", "--run", run)["round"] > before[-1]["round"] + 1)
    after = stack.console("rounds", "--run", run, "--last", "100")
    assert after[: len(before)] == before
    stack.console("stop", run)
    wait(lambda: stack.console("status", "--run", run)["phase"] == "done")


def test_container_whose_clients_are_all_barred_exits_without_a_restart(stack: Stack) -> None:
    before = {service: life(stack, service) for service in CLIENTS}
    for name in sorted(attackers()):
        stack.console("evict", name, "--everywhere", "--reason", "it attacked")
    wait(lambda: stack.container("attackers")["State"]["Status"] == "exited")
    assert stack.container("attackers")["State"]["ExitCode"] == 0
    assert {service: life(stack, service) for service in CLIENTS} == before
    assert stack.container("agents")["State"]["Running"]


def test_upgrade_procedure_of_the_manual_loses_no_record(stack: Stack) -> None:
    before = stack.console("rounds", "--last", "100")
    stack.manual(manual("docker compose stop api worker"))
    wait(lambda: stack.console("status"))
    assert stack.console("rounds", "--last", "100") == before


def test_sigterm_ends_every_service_with_exit_code_zero(stack: Stack) -> None:
    # The last test: the stack is gone afterwards.
    services = ["agents", "attackers", "cohort", "api", "worker", "redis"]
    stack.compose("stop", *services)
    codes = {service: stack.container(service)["State"]["ExitCode"] for service in services}
    assert codes == dict.fromkeys(services, 0)
