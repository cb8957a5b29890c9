"""Serves the operators' page: one HTML file at `/`, and its scripts and styles below `/assets/`.

Anybody may load the page. The page shows no data until an operator signs in. After the sign-in, the
page calls the API with the operator's token.
"""

from functools import cache
from pathlib import Path

from fastapi import APIRouter, Response

from rampart_fl.shared.protocol.refusals import NotFound

router = APIRouter(include_in_schema=False)
FOLDER = Path(__file__).parents[2] / "page"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
"""The media types of the page's files; files of other types are not served."""
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; script-src 'self'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
}


@cache
def assets() -> dict[str, Path]:
    """The files below `/assets/`, by name."""
    folder = FOLDER / "assets"
    paths = (path for path in folder.rglob("*") if path.suffix in TYPES)
    return {path.relative_to(folder).as_posix(): path for path in paths}


@router.get("/")
async def index() -> Response:
    """The page."""
    return file_response(FOLDER / "index.html")


@router.get("/assets/{name:path}")
async def asset(name: str) -> Response:
    """Sends a script, a style sheet or an icon of the page."""
    path = assets().get(name)
    if path is None:
        raise NotFound(f"the page has no file {name[:80]}")
    return file_response(path)


def file_response(path: Path) -> Response:
    """Sends a file with headers that keep the page from loading content of other hosts."""
    return Response(path.read_bytes(), media_type=TYPES[path.suffix], headers=HEADERS)
