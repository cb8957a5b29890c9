"""The message with the estimated memory, disk space and traffic of a run before it is submitted."""

from pydantic import Field

from rampart_fl.shared.protocol.messages import Message


class Estimate(Message):
    """The estimated memory, disk space and traffic of a run; correct within a factor of two."""

    parameters: int = Field(description="numbers in the model", examples=[105_354])
    clients: int = Field(description="largest number of updates in a round", examples=[20])
    memory_bytes: int = Field(description="of the worker, at most", examples=[470_000_000])
    disk_bytes: int = Field(description="of all blobs, at most", examples=[10_100_000])
    record_bytes: int = Field(description="of the records that stay", examples=[140_000])
    down_bytes: int = Field(description="to a client in a round", examples=[421_696])
    up_bytes: int = Field(description="from a client in a round", examples=[421_952])
    client_bytes: int = Field(description="to and from a client in all", examples=[26_000_000])
