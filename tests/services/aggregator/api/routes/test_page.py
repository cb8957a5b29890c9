"""Tests of the operators' page as it is served: its files, its headers, and its libraries."""

import hashlib
import json
import re
from pathlib import Path

import httpx
import pytest

from rampart_fl.services.aggregator.api.routes.page import FOLDER, assets
from tests.services.aggregator.api.conftest import Api, slug

pytestmark = pytest.mark.anyio
VENDOR = {
    "preact.js": "72284e8e9079c87817145df1110f74e8a2aa040b2fc384922e18dfcb46fc1fd7",
    "uplot.js": "5dd9b3281aa64b461b42d9945f6adb2649d346502b12281a9ae0d46599a80eba",
    "uplot.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    "htm-license.txt": "740725f7252e750af735d0028cc534970772f513331e9f68150fede8fb3ce00f",
    "preact-license.txt": "1fe6958409c8c257a70c587a18b6f7f412b179b456630790d30b2ec9a8e4b7d4",
    "uplot-license.txt": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
}
"""SHA-256 of the files that `make page-vendor` copies from npm."""
ROOT = Path(__file__).parents[5]
OWN = [path for name, path in assets().items() if not name.startswith("vendor/")]


async def get(api: Api, path: str) -> httpx.Response:
    """The answer to a request without a token."""
    transport = httpx.ASGITransport(api.app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        return await client.get(path)


async def test_page_files_are_served_with_security_headers(api: Api) -> None:
    assert len(assets()) > 30
    for path in ("/", *(f"/assets/{name}" for name in assets())):
        answer = await get(api, path)
        assert answer.status_code == 200, path
        assert answer.headers["content-security-policy"] == (
            "default-src 'self'; script-src 'self'; frame-ancestors 'none'; "
            "require-trusted-types-for 'script'"
        )
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["cross-origin-opener-policy"] == "same-origin"
    kinds = {"app.js": "text/javascript", "style.css": "text/css", "icon.svg": "image/svg+xml"}
    for name, kind in kinds.items():
        assert (await get(api, f"/assets/{name}")).headers["content-type"].startswith(kind)


@pytest.mark.parametrize(
    "name", ["none.js", "vendor/preact.d.ts", "../index.html", "..%2findex.html", "", "views"]
)
async def test_other_files_are_not_served(api: Api, name: str) -> None:
    answer = await get(api, f"/assets/{name}")
    assert (answer.status_code, slug(answer)) == (404, "not-found")


def test_vendored_libraries_match_their_reviewed_hashes() -> None:
    folder = FOLDER / "assets/vendor"
    files = (path for path in folder.iterdir() if path.suffix != ".ts")
    assert {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files} == VENDOR


def test_package_lock_names_no_registry_and_pins_every_package() -> None:
    text = (ROOT / "tools/page/package-lock.json").read_text()
    assert "://" not in re.sub(r'"url": "[^"]*"', "", text)
    packages = {name: one for name, one in json.loads(text)["packages"].items() if name}
    assert packages
    assert all(one["integrity"].startswith("sha512-") for one in packages.values())


def test_page_files_name_no_other_host_and_satisfy_the_csp() -> None:
    for path in (FOLDER / "index.html", *OWN):
        text = path.read_text()
        assert not re.findall(r"https?://(?!www\.w3\.org/2000/svg)", text), path
        writes = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\("
        assert not re.search(writes, text), path
        assert "dangerouslySetInnerHTML" not in text, path
        assert not re.search(r"\bstyle=\"|<style|\bon\w+=\"", text), path
        assert not re.search(r"localStorage|sessionStorage|document\.cookie|indexedDB", text), path


def test_every_imported_module_exists() -> None:
    for path in OWN:
        for name in re.findall(r"(?:from |import\(|import )\"(\.[^\"]+)\"", path.read_text()):
            assert (path.parent / name).resolve().is_file(), f"{path.name} imports {name}"
