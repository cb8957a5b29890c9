"""The manifests of a client at another site: valid, restricted, with settings that exist."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest

from tests.deployment.conftest import image_of
from tests.deployment.kubernetes.conftest import Manifests
from tests.deployment.kubernetes.test_isolation import restricted
from tests.deployment.kubernetes.test_schemas import RELEASES


@pytest.fixture(scope="module")
def site(root: Path, load: Callable[[str], list[Any]]) -> Manifests:
    """The objects of the chart with its example."""
    return Manifests(load((root / "k8s/manifests/client.yaml").read_text()))


@pytest.mark.parametrize("release", RELEASES)
def test_every_field_exists(site: Manifests, release: str) -> None:
    assert {one["kind"] for one in site.objects} == {"NetworkPolicy", "Service", "StatefulSet"}
    for one in site.objects:
        kubernetes_validate.validate(one, release, strict=True)


def test_the_client_may_do_little_and_is_reached_by_nobody(site: Manifests) -> None:
    (pod,) = site.pods
    restricted(pod.spec)
    assert pod.spec["automountServiceAccountToken"] is False
    (policy,) = site.of("NetworkPolicy")
    assert policy["spec"]["podSelector"]["matchLabels"].items() <= pod.labels.items()
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert policy["spec"]["ingress"] == []


def test_its_settings_exist(site: Manifests, settings_of: Any) -> None:
    (pod,) = site.pods
    variables = site.variables(pod)
    values = settings_of(pod.container["command"], variables, set())
    assert values.hosted == [3]
    assert values.upload_dtype == "F16"
    assert pod.container["image"].endswith(f"-{image_of(pod.container['command'], variables)}")
    mounts = {mount["mountPath"]: mount for mount in pod.container["volumeMounts"]}
    assert not mounts[str(values.state)].get("readOnly")
    for path in (values.join_tokens, values.ca_certificate, values.data_file):
        assert mounts[str(path.parent)]["readOnly"] is True
    (claim,) = pod.owner["spec"]["volumeClaimTemplates"]
    volumes = {volume["name"] for volume in pod.spec["volumes"]} | {claim["metadata"]["name"]}
    assert {mount["name"] for mount in mounts.values()} == volumes
