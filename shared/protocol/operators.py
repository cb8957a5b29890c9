"""The messages about operators: their names, their roles, and their tokens."""

from typing import Annotated, Literal

from pydantic import Field

from rampart_fl.shared.protocol.messages import Message, RequestKey
from rampart_fl.shared.protocol.reasons import NO_REASON, Reason

Role = Literal["viewer", "operator"]
"""A viewer may read everything that an operator may read, but may change nothing."""
OPERATOR_NAME = r"^[a-z0-9][a-z0-9._@-]{0,63}$"
OperatorName = Annotated[str, Field(pattern=OPERATOR_NAME, examples=["ada"])]


class WhoAmI(Message):
    """The operator that a token belongs to."""

    name: OperatorName
    role: Role = Field(examples=["viewer"])


class OperatorRequest(Message):
    """A request to add an operator and issue its token."""

    name: OperatorName
    role: Role = Field(examples=["viewer"])
    lifetime_seconds: float | None = Field(
        default=None, gt=0, le=31_536_000, description="None: until revoked", examples=[2_592_000]
    )
    reason: Reason = Field(default=NO_REASON, examples=["on call in March"])
    key: RequestKey | None = Field(default=None, examples=[None])


class OperatorInfo(WhoAmI):
    """An operator: when and by whom the operator was added, and how long the token is valid."""

    created_at: float = Field(description="Unix time", examples=[1_772_357_400.0])
    created_by: str = Field(examples=["owner"])
    expires_at: float | None = Field(default=None, examples=[1_774_949_400.0])
    revoked_at: float | None = Field(default=None, examples=[None])


class OperatorToken(OperatorInfo):
    """A new operator with its token, which is shown once."""

    token: str = Field(examples=["Jt0mOrAQvMpyP0pPHjyzyzb7gYMBZbWyNCRBTDAx7Xo"])
