"""The file `console.json` in a federation's folder, with the federation's address and a token.

The token is the operator token of the federation's owner. The launcher writes the file when the
federation is ready, and removes it when the federation stops. A launcher that was killed leaves the
file behind.
"""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from rampart_fl.shared.runtime import durable

NAME = "console.json"


class SavedFederation(NamedTuple):
    """The address of a federation on this machine, and the owner's token."""

    url: str
    token: str


def save(folder: Path, federation: SavedFederation) -> None:
    """Writes the file of a federation; only the federation's owner can read the file."""
    durable.replace(folder / NAME, [json.dumps(federation._asdict()).encode()], mode=0o600)


def load_all(folders: Iterable[Path]) -> list[SavedFederation]:
    """The federations saved in these folders, newest first.

    Prints a warning for each file that cannot be read, so that one such file does not disable the
    console.
    """
    found = list[tuple[float, SavedFederation]]()
    for path in (folder / NAME for folder in folders):
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            federation = SavedFederation(str(content["url"]), str(content["token"]))
            _ = urlsplit(federation.url).port  # Raises ValueError if the URL is malformed.
            found.append((path.stat().st_mtime, federation))
        except FileNotFoundError:
            continue  # The federation has just stopped.
        except OSError as error:
            _warn(path, str(error.strerror))
        except (ValueError, KeyError, TypeError):
            _warn(path, "it does not contain a URL and a token")
    return [federation for _, federation in sorted(found, key=lambda one: one[0], reverse=True)]


def _warn(path: Path, why: str) -> None:
    sys.stderr.write(f"warning: ignored {path}: {why}\n")
