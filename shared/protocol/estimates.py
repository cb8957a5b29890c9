"""The message that estimates the memory, disk space and traffic of a run before its submission."""

from pydantic import Field

from rampart_fl.shared.protocol.messages import Message


class Estimate(Message):
    """The estimated memory, disk space and traffic of a run; correct within a factor of two."""

    parameters: int = Field(
        description="how many numbers the model consists of", examples=[105_354]
    )
    clients: int = Field(description="largest number of updates in a round", examples=[20])
    memory_bytes: int = Field(description="maximum memory of the worker", examples=[470_000_000])
    disk_bytes: int = Field(description="maximum total size of all blobs", examples=[10_100_000])
    record_bytes: int = Field(
        description="size of the records, which disk_bytes includes", examples=[140_000]
    )
    down_bytes: int = Field(
        description="bytes that a client downloads in a round", examples=[421_696]
    )
    up_bytes: int = Field(description="bytes that a client uploads in a round", examples=[421_952])
    client_bytes: int = Field(
        description="bytes that a client downloads and uploads in the whole run",
        examples=[26_000_000],
    )
