"""k8s/restore.sh stops all writers, restores both volumes as their owners, and restarts them."""

import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest

from tests.deployment.kubernetes.conftest import Manifests, matches
from tests.deployment.kubernetes.test_isolation import restricted
from tests.deployment.kubernetes.test_schemas import RELEASES

pytestmark = pytest.mark.processes
# A fake kubectl that records its commands, keeps its input, and looks up fields of objects.
KUBECTL = """#!/usr/bin/env bash
{{ echo "$*" | tr '\\n' ' '; echo; }} >> {folder}/calls
[ -z "${{FAILING:-}}" ] || [[ "$*" != *"$FAILING"* ]] || exit 9
case "$*" in
  *" get "*) {python} {folder}/get.py "$4" "$6" ;;
  *" apply "*) cat > {folder}/pod.yaml ;;
  *" cat /backups/"*) echo "from the claim" ;;
  *" -i "*"-c redis"*) cat > {folder}/redis ;;
  *" -i "*"-c blobs"*) cat > {folder}/blobs ;;
esac
"""
GET = """
import json, pathlib, re, sys

asked, path = sys.argv[1], sys.argv[2].removeprefix("jsonpath=")
found = json.loads((pathlib.Path(__file__).parent / "objects.json").read_text()).get(asked)
if found is None:
    sys.exit(f"{asked} not found")
step = re.compile(r'[.]([\\w-]+)|\\[[?][(]@[.]name=="(\\w+)"[)]\\]')
assert step.sub("", path) == "{}", path
for key, name in step.findall(path):
    if key:
        found = (found or {}).get(key)
    else:
        found = next((one for one in found or [] if one["name"] == name), None)
print("" if found is None else found, end="")
"""


@pytest.fixture
def objects(root: Path, load: Callable[[str], list[Any]], tmp_path: Path) -> Path:
    """A file with the objects of a release with backups, by kind and name."""
    text = (root / "k8s/manifests/standard.yaml").read_text().replace("rampart", "fed")
    known = {f"{one['kind'].lower()}/{one['metadata']['name']}": one for one in load(text)}
    file = tmp_path / "objects.json"
    file.write_text(json.dumps(known))
    return file


@pytest.fixture
def restore(
    root: Path, tmp_path: Path, objects: Path
) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """Restores a backup of the release `fed` in the namespace `ours`."""
    (tmp_path / "get.py").write_text(GET)
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(KUBECTL.format(folder=tmp_path, python=sys.executable))
    kubectl.chmod(0o755)

    def run(backup: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            ["bash", root / "k8s/restore.sh", "ours", "fed", backup],
            env={**os.environ, "KUBECTL": str(kubectl), **variables},
            capture_output=True,
            text=True,
        )

    return run


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    """A folder with a backup."""
    folder = tmp_path / "backup"
    folder.mkdir()
    (folder / "redis.rdb").write_text("snapshot")
    (folder / "blobs.tar").write_text("archive")
    return folder


def test_restore_fills_both_volumes_from_the_backup(
    restore: Any, backup: Path, tmp_path: Path
) -> None:
    done = restore(str(backup))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "redis").read_text() == "snapshot"
    assert (tmp_path / "blobs").read_text() == "archive"


def test_backup_of_the_cron_job_is_read_from_its_claim(restore: Any, tmp_path: Path) -> None:
    assert restore("2026-11-22T03-00-00Z").returncode == 0
    assert (tmp_path / "redis").read_text() == "from the claim\n"
    assert "cat /backups/2026-11-22T03-00-00Z/blobs.tar" in (tmp_path / "calls").read_text()
    assert "claimName: fed-backups" in (tmp_path / "pod.yaml").read_text()


def claims(tmp_path: Path, load: Callable[[str], list[Any]]) -> dict[str, str | None]:
    """The claims of the volumes that the script's pod mounts."""
    (pod,) = load((tmp_path / "pod.yaml").read_text())
    volumes = pod["spec"]["volumes"]
    return {v["name"]: v.get("persistentVolumeClaim", {}).get("claimName") for v in volumes}


def test_restore_uses_the_claims_that_the_release_mounts(
    restore: Any, objects: Path, tmp_path: Path, load: Callable[[str], list[Any]]
) -> None:
    text = objects.read_text().replace('"claimName": "fed-blobs"', '"claimName": "our-blobs"')
    objects.write_text(text.replace('"claimName": "fed-backups"', '"claimName": "our-backups"'))
    assert restore("2026-11-22T03-00-00Z").returncode == 0
    found = claims(tmp_path, load)
    assert found == {"redis": "data-fed-redis-0", "blobs": "our-blobs", "backups": "our-backups"}


def test_restore_without_a_cron_job_needs_the_claim_from_the_operator(
    restore: Any, objects: Path, tmp_path: Path, load: Callable[[str], list[Any]]
) -> None:
    known = json.loads(objects.read_text())
    del known["cronjob/fed-backup"]
    objects.write_text(json.dumps(known))
    done = restore("2026-11-22T03-00-00Z")
    assert done.returncode == 1
    assert "cronjob/fed-backup mounts no claim as backups" in done.stderr
    assert " scale " not in (tmp_path / "calls").read_text()
    assert restore("2026-11-22T03-00-00Z", BACKUPS_CLAIM="kept", BLOBS_CLAIM="b").returncode == 0
    assert claims(tmp_path, load) == {"redis": "data-fed-redis-0", "blobs": "b", "backups": "kept"}


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("volumes", "statefulset/fed-worker mounts no claim as blobs"),
        ("redis", "statefulset/fed-redis not found"),
    ],
)
def test_restore_does_not_stop_a_release_with_external_stores(
    restore: Any, backup: Path, objects: Path, tmp_path: Path, missing: str, message: str
) -> None:
    known = json.loads(objects.read_text())
    if missing == "redis":
        del known["statefulset/fed-redis"]
    else:
        known["statefulset/fed-worker"]["spec"]["template"]["spec"]["volumes"] = []
    objects.write_text(json.dumps(known))
    done = restore(str(backup))
    assert done.returncode == 1
    assert message in done.stderr
    assert " scale " not in (tmp_path / "calls").read_text()


def test_restore_stops_all_services_first_and_restarts_them_afterwards(
    restore: Any, backup: Path, tmp_path: Path
) -> None:
    assert restore(str(backup)).returncode == 0
    calls = (tmp_path / "calls").read_text().splitlines()
    assert all(line.startswith("--namespace ours ") for line in calls)
    scaled = [line.split()[3:] for line in calls if " scale " in line]
    three = ["deployment/fed-api", "statefulset/fed-worker", "statefulset/fed-redis"]
    assert scaled[:3] == [[one, "--replicas", "0"] for one in three]
    started = [three[2], three[1], three[0]]
    before = ["1", "2", "2"]
    assert scaled[3:] == [[one, "--replicas", n] for one, n in zip(started, before, strict=True)]
    first = next(n for n, line in enumerate(calls) if " exec " in line)
    gone = [n for n, line in enumerate(calls) if "--for delete" in line]
    stopped = [n for n, line in enumerate(calls) if line.endswith("--replicas 0 ")]
    assert len(gone) == 3
    assert max(stopped) < min(gone)
    assert max(gone) < first


def test_restore_pod_is_restricted_and_ends_on_sigterm(
    restore: Any, backup: Path, tmp_path: Path, load: Callable[[str], list[Any]]
) -> None:
    assert restore(str(backup)).returncode == 0
    (pod,) = load((tmp_path / "pod.yaml").read_text())
    kubernetes_validate.validate(pod, RELEASES[-1], strict=True)
    restricted(pod["spec"])
    users = {one["name"]: one["securityContext"]["runAsUser"] for one in pod["spec"]["containers"]}
    # Only their owner may read the files that Redis makes, and not every volume applies fsGroup.
    assert users == {"redis": 999, "blobs": 10001}
    for container in pod["spec"]["containers"]:
        process = subprocess.Popen(container["command"])
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.3)
        process.terminate()
        process.wait(5)


def test_restore_claims_match_the_chart(
    restore: Any, backup: Path, tmp_path: Path, root: Path, load: Callable[[str], list[Any]]
) -> None:
    assert restore(str(backup)).returncode == 0
    standard = Manifests(load((root / "k8s/manifests/standard.yaml").read_text()))
    assert claims(tmp_path, load) == {
        "redis": "data-fed-redis-0",
        "blobs": "fed-blobs",
        "backups": None,
    }
    assert standard.named("PersistentVolumeClaim", "rampart-blobs")
    redis = standard.named("StatefulSet", "rampart-redis")
    assert redis["spec"]["volumeClaimTemplates"][0]["metadata"]["name"] == "data"


def test_incomplete_backup_is_refused_before_anything_stops(
    restore: Any, backup: Path, tmp_path: Path
) -> None:
    (backup / "blobs.tar").unlink()
    done = restore(str(backup))
    assert done.returncode == 1
    assert "no blobs.tar" in done.stderr
    assert not (tmp_path / "calls").exists()


REPLICAS = {"statefulset/fed-redis": 1, "statefulset/fed-worker": 2, "deployment/fed-api": 2}
"""The services of the release, in the order in which they start."""


def last_replicas(calls: Path) -> dict[str, int]:
    """The number of replicas that the script set last for each service."""
    found = re.findall(r" scale (\S+) --replicas (\d+)", calls.read_text())
    return {name: int(count) for name, count in found}


@pytest.mark.parametrize("failing", ["wait --for delete", "apply -f", "wait --for condition=Ready"])
def test_failed_restore_that_changed_nothing_starts_the_services_again(
    restore: Any, backup: Path, tmp_path: Path, failing: str
) -> None:
    done = restore(str(backup), FAILING=failing)
    assert done.returncode == 9
    assert "the restore failed; the volumes are unchanged" in done.stderr
    calls = tmp_path / "calls"
    assert last_replicas(calls) == REPLICAS
    lines = calls.read_text().splitlines()
    deleted = next(n for n, line in enumerate(lines) if " delete pod/fed-restore" in line)
    started = next(n for n, line in enumerate(lines) if "fed-redis --replicas 1" in line)
    assert deleted < started
    for one in REPLICAS:
        assert any(line.rstrip().endswith(f"annotate {one} stopped-replicas-") for line in lines)


@pytest.mark.parametrize("failing", ["-c redis -- sh", "-mindepth 1 -delete", "tar -C /blobs"])
def test_services_stay_stopped_with_half_a_backup_and_the_next_restore_starts_all_of_them(
    restore: Any, backup: Path, tmp_path: Path, objects: Path, failing: str
) -> None:
    done = restore(str(backup), FAILING=failing)
    assert done.returncode != 0
    assert "until you run this script again" in done.stderr
    calls = tmp_path / "calls"
    assert " delete pod/fed-restore" in calls.read_text()
    assert last_replicas(calls) == dict.fromkeys(REPLICAS, 0)
    kept = dict(
        re.findall(r" annotate --overwrite (\S+) (stopped-replicas=\d+)", calls.read_text())
    )
    assert kept.keys() == REPLICAS.keys()
    known = json.loads(objects.read_text())
    for name, annotation in kept.items():
        key, _, value = annotation.partition("=")
        known[name]["metadata"]["annotations"] = {key: value}
        known[name]["spec"]["replicas"] = 0
    objects.write_text(json.dumps(known))
    # Even if the next attempt fails before it changes a volume, no service starts.
    assert restore(str(backup), FAILING="apply -f").returncode == 9
    assert last_replicas(calls) == dict.fromkeys(REPLICAS, 0)
    assert restore(str(backup)).returncode == 0
    assert last_replicas(calls) == REPLICAS


@pytest.mark.parametrize("files", [[], [".hidden", "ab/cd"]])
def test_blobs_are_restored_into_a_folder_that_belongs_to_root(
    restore: Any, backup: Path, tmp_path: Path, files: list[str]
) -> None:
    if os.geteuid() != 0:
        pytest.skip("NOT CHECKED: only root can make a folder that the blobs' user does not own")
    source = tmp_path / "source"
    source.mkdir()
    for name in files:
        (source / name).parent.mkdir(exist_ok=True)
        (source / name).write_text(name)
    with tarfile.open(tmp_path / "archive.tar", "w") as archive:
        archive.add(source, ".")
    assert restore(str(backup)).returncode == 0
    (line,) = [one for one in (tmp_path / "calls").read_text().splitlines() if " -- tar " in one]
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / "blobs"
        folder.mkdir()
        Path(made).chmod(0o755)
        # As Kubernetes prepares a volume for the group that fsGroup names.
        os.chown(folder, 0, 10001)
        folder.chmod(0o2775)
        command = line.partition(" -- ")[2].split()
        assert command[1:3] == ["-C", "/blobs"]
        command[2] = str(folder)
        with (tmp_path / "archive.tar").open("rb") as archive_file:
            done = subprocess.run(
                command,
                stdin=archive_file,
                user=10001,
                group=10001,
                extra_groups=[],
                capture_output=True,
                text=True,
            )
        assert done.returncode == 0, done.stderr
        assert {str(f.relative_to(folder)) for f in folder.rglob("*") if f.is_file()} == {*files}
        assert folder.stat().st_mode & 0o7777 == 0o2775


def test_network_policy_cuts_the_restore_pod_off(
    restore: Any, backup: Path, tmp_path: Path, root: Path, load: Callable[[str], list[Any]]
) -> None:
    assert restore(str(backup)).returncode == 0
    (pod,) = load((tmp_path / "pod.yaml").read_text())
    text = (root / "k8s/manifests/standard.yaml").read_text().replace("rampart", "fed")
    labels = {
        name.replace("fed", "rampart"): value for name, value in pod["metadata"]["labels"].items()
    }
    labels["app.kubernetes.io/name"] = "fed"
    (policy,) = [
        one["spec"]
        for one in Manifests(load(text)).of("NetworkPolicy")
        if matches(one["spec"]["podSelector"], labels)
    ]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert policy["ingress"] == policy["egress"] == []
