"""Kubernetes knows every field of the manifests, from the oldest release to the newest."""

from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
from kubernetes_validate import utils

from tests.deployment.kubernetes.conftest import FILES

RELEASES = [f"1.{minor}" for minor in range(28, 37)]
CUSTOM = {"BackendTLSPolicy", "Certificate", "HTTPRoute", "PrometheusRule", "ServiceMonitor"}
"""Custom resources, for which Kubernetes has no schemas."""


@pytest.fixture(scope="module", autouse=True)
def schemas_are_read_once() -> Iterator[None]:
    """Otherwise, the library would read a large schema from its file for every object."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("schema_contents", "all_versions"):
            patch.setattr(utils, name, cache(getattr(utils, name)))
        yield


@pytest.mark.parametrize("release", RELEASES)
def test_manifest_fields_exist_in_every_kubernetes_release(manifests: Any, release: str) -> None:
    validated = 0
    for one in manifests.objects:
        if one["kind"] not in CUSTOM:
            kubernetes_validate.validate(one, release, strict=True)
            validated += 1
    assert validated >= 15


def test_validation_rejects_an_unknown_field(manifests: Any) -> None:
    budget = manifests.of("Deployment")[0]
    wrong = {**budget, "spec": {**budget["spec"], "replica": 2}}
    with pytest.raises(kubernetes_validate.ValidationError, match="replica"):
        kubernetes_validate.validate(wrong, RELEASES[-1], strict=True)


@pytest.mark.parametrize("name", ["namespace"])
def test_namespace_manifest_is_valid(
    root: Path, load: Callable[[str], list[Any]], name: str
) -> None:
    for one in load((root / f"k8s/{name}.yaml").read_text()):
        kubernetes_validate.validate(one, RELEASES[-1], strict=True)


def test_no_object_is_defined_twice(manifests: Any) -> None:
    known = Counter((one["kind"], one["metadata"]["name"]) for one in manifests.objects)
    assert [name for name, count in known.items() if count > 1] == []


def test_every_object_has_the_standard_labels(manifests: Any) -> None:
    for one in manifests.objects:
        labels = one["metadata"]["labels"]
        assert labels["app.kubernetes.io/name"] == "rampart"
        assert labels["app.kubernetes.io/instance"] == "rampart"
        assert labels["app.kubernetes.io/version"]
        assert one["metadata"]["name"].startswith("rampart")


def test_every_manifest_file_is_tested(root: Path) -> None:
    assert {path.stem for path in (root / "k8s/manifests").iterdir()} == {*FILES, "client"}
