"""The manifests of a client at another site: valid, restricted, with settings that exist."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest

from rampart_fl.shared.agent.acceptance import Policy
from tests.deployment.conftest import image_of
from tests.deployment.kubernetes.conftest import Manifests
from tests.deployment.kubernetes.test_isolation import restricted
from tests.deployment.kubernetes.test_schemas import RELEASES


@pytest.fixture(scope="module")
def site(root: Path, load: Callable[[str], list[Any]]) -> Manifests:
    """The objects of the chart with its example."""
    return Manifests(load((root / "k8s/manifests/client.yaml").read_text()))


@pytest.fixture
def render(helm: str, root: Path, load: Callable[[str], list[Any]]) -> Callable[..., Manifests]:
    """The objects of the chart with some options of helm."""

    def objects(*options: str) -> Manifests:
        command = [helm, "template", "site", "k8s/client-chart", "--set", "aggregator=http://a"]
        done = subprocess.run([*command, *options], cwd=root, capture_output=True, text=True)
        if done.returncode:
            raise ValueError(done.stderr)
        return Manifests(load(done.stdout))

    return objects


def policy_of(site: Manifests, folder: Path) -> Policy:
    """The conditions of the client, read from a folder with the files that the pod mounts."""
    (text,) = site.data("site-accept").values()
    (folder / "accept.toml").write_text(text.replace('"/data/', f'"{folder}/'))
    return Policy.load(folder / "accept.toml")


@pytest.mark.parametrize("release", RELEASES)
def test_manifest_fields_exist_in_every_kubernetes_release(site: Manifests, release: str) -> None:
    kinds = {"ConfigMap", "NetworkPolicy", "Service", "StatefulSet"}
    assert {one["kind"] for one in site.objects} == kinds
    for one in site.objects:
        kubernetes_validate.validate(one, release, strict=True)


def test_client_pod_is_restricted_and_accepts_no_connections(site: Manifests) -> None:
    (pod,) = site.pods
    restricted(pod.spec)
    assert pod.spec["automountServiceAccountToken"] is False
    (policy,) = site.of("NetworkPolicy")
    assert policy["spec"]["podSelector"]["matchLabels"].items() <= pod.labels.items()
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert policy["spec"]["ingress"] == []


def test_client_settings_exist_and_match_image_and_mounts(
    site: Manifests, settings_of: Any
) -> None:
    (pod,) = site.pods
    variables = site.variables(pod)
    values = settings_of(pod.container["command"], variables, set())
    assert values.hosted == [3]
    assert values.upload_dtype == "F16"
    assert values.stay_when_barred
    assert pod.container["image"].endswith(f"-{image_of(pod.container['command'], variables)}")
    mounts = {mount["mountPath"]: mount for mount in pod.container["volumeMounts"]}
    assert not mounts[str(values.state)].get("readOnly")
    for path in (values.join_tokens, values.ca_certificate, values.data_file, values.accept):
        assert mounts[str(path.parent)]["readOnly"] is True
    (claim,) = pod.owner["spec"]["volumeClaimTemplates"]
    volumes = {volume["name"] for volume in pod.spec["volumes"]} | {claim["metadata"]["name"]}
    assert {mount["name"] for mount in mounts.values()} == volumes


def test_client_pod_mounts_the_conditions_of_the_example(site: Manifests, tmp_path: Path) -> None:
    (pod,) = site.pods
    path = Path(site.variables(pod)["RAMPART_ACCEPT"])
    (mount,) = [m for m in pod.container["volumeMounts"] if m["mountPath"] == str(path.parent)]
    (volume,) = [v for v in pod.spec["volumes"] if v["name"] == mount["name"]]
    assert path.name in site.data(volume["configMap"]["name"])
    (tmp_path / "ours.npz").touch()
    policy = policy_of(site, tmp_path)
    assert policy.most_epochs == 10
    assert policy.data == {"mnist": str(tmp_path / "ours.npz")}


@pytest.mark.processes
def test_conditions_from_a_file_reach_the_client_unchanged(
    render: Callable[..., Manifests], root: Path, tmp_path: Path
) -> None:
    file = tmp_path / "accept.toml"
    shutil.copy(root / "docs/accept.toml", file)
    (tmp_path / "my-images.npz").touch()
    expected = Policy.load(file)
    site = render("--set-file", f"accept={file}")
    assert site.data("site-accept") == {"accept.toml": file.read_text()}
    assert policy_of(site, tmp_path) == expected


@pytest.mark.processes
def test_chart_without_conditions_renders_no_config_map(render: Callable[..., Manifests]) -> None:
    site = render()
    assert not site.of("ConfigMap")
    (pod,) = site.pods
    assert "RAMPART_ACCEPT" not in site.variables(pod)
    assert "accept" not in json.dumps(pod.owner)


@pytest.mark.processes
def test_changed_conditions_restart_the_client(render: Callable[..., Manifests]) -> None:
    values = ["", "accept=most_epochs = 1", "accept=most_epochs = 2", "accept=most_epochs = 1"]
    none, first, second, again = (
        render("--set", value).pods[0].owner["spec"]["template"] for value in values
    )
    assert first == again
    assert first != second
    assert none != first


@pytest.mark.processes
def test_existing_claim_needs_a_file_name_unless_conditions_name_files(
    render: Callable[..., Manifests],
) -> None:
    claim = ("--set", "data.existingClaim=scans")
    with pytest.raises(ValueError, match="is a file in data"):
        render(*claim)
    (pod,) = render(*claim, "--set", 'accept=data.mnist = "/data/ours.npz"').pods
    assert "/data" in {mount["mountPath"] for mount in pod.container["volumeMounts"]}


def test_client_reaches_the_port_in_the_aggregators_url(render: Callable[..., Manifests]) -> None:
    for url, ports in {
        "https://a.example": {443, 8440},
        "https://a.example:9443/fed": {443, 8440, 9443},
        "http://[fd00::1]:8441": {443, 8440, 8441},
    }.items():
        (policy,) = render("--set", f"aggregator={url}").of("NetworkPolicy")
        reached = {one["port"] for one in policy["spec"]["egress"][0]["ports"]}
        assert reached == ports, url
