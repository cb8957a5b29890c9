"""The commands of docs/operations.md, for the tests that run them."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs/operations.md"


def blocks() -> list[str]:
    """Every block of shell commands of the page."""
    matches = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return [str(block) for block in matches]


def manual(words: str) -> str:
    """The one block of commands that contains these words."""
    (block,) = [block for block in blocks() if words in block]
    return block
