"""Describes in words what is wrong with a field of a request."""

from collections.abc import Mapping
from typing import Any

from rampart_fl.shared.experiment.membership import LABEL
from rampart_fl.shared.experiment.start import RUN_ID
from rampart_fl.shared.protocol.messages import CLIENT_ID, DIGEST
from rampart_fl.shared.protocol.operators import OPERATOR_NAME
from rampart_fl.shared.protocol.reasons import PRINTABLE
from rampart_fl.shared.protocol.runs import RUN_NAME

NAME = "has 1 to 64 letters (A-Z, a-z), digits, dots, hyphens and underscores"
ALLOWED = {
    CLIENT_ID: f"a client id {NAME}; it begins with a letter or a digit",
    OPERATOR_NAME: (
        "an operator's name has 1 to 64 lower-case letters (a-z), digits, dots, hyphens, "
        "underscores and @ signs; it begins with a letter or a digit"
    ),
    RUN_NAME: (
        "the name of a run has 1 to 48 lower-case letters (a-z), digits and hyphens; it begins "
        "with a letter or a digit"
    ),
    RUN_ID: "the id of a run is the run's name, a hyphen and a number, as in digits-1",
    DIGEST: "a SHA-256 digest has 64 hexadecimal digits in lower case",
    PRINTABLE: "control characters, such as line breaks, are not allowed",
}
"""What each regular expression allows, in words."""
ALLOWED_LABEL = f"the key or the value of a label {NAME}; it begins with a letter or a digit"
# Labels and ids have the same pattern, so `describe` uses an error's location to tell them apart.
assert LABEL == CLIENT_ID


def describe(issue: Mapping[str, Any]) -> str:
    """Describes one of pydantic's errors: where it is, and what is wrong.

    >>> describe({"loc": ("body", "count"), "type": "x", "msg": "Input should be a number"})
    'body.count: Input should be a number'
    """
    message = str(issue["msg"])
    if issue["type"] == "string_pattern_mismatch":
        label = "labels" in issue["loc"]
        message = ALLOWED_LABEL if label else ALLOWED.get(issue["ctx"]["pattern"], message)
    return f"{'.'.join(map(str, issue['loc']))[:200]}: {message[:200]}"
