"""Where this user's files that can be made again are kept."""

import tempfile
from pathlib import Path

from platformdirs import user_cache_path


def folder() -> Path:
    """The platform's folder for caches; one for temporary files where the user has no home."""
    try:
        return user_cache_path("rampart", appauthor=False)
    except RuntimeError:
        return Path(tempfile.gettempdir()) / "rampart"
