"""Types of the results of Store."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class BatchKind(IntEnum):
    """The kind of a batch."""

    PUT = 0
    GET = 1
    FLUSH = 2
    PROBE = 3


class EventKind(IntEnum):
    """The kind of an Event."""

    STORED = 0
    EVICTED = 1
    REMOVED = 2
    MEMORY_FREE = 3
    """A job with `memory_in_use` in its Result does not use its memory any more. Its number may be used again."""


class Health(IntEnum):
    """The state of the disk."""

    WELL = 0
    DEGRADED = 1
    DOWN = 2


@dataclass(frozen=True)
class Result:
    """The result of a job."""

    job: int
    kind: BatchKind
    statuses: tuple[int, ...]
    """By key: 0 if the block is stored, or if its row has its bytes; otherwise the error. After an error of a get, the content of
    the row is undefined."""
    succeeded: int
    """Number of blocks without an error. For a probe: number of leading keys whose blocks are all there."""
    bytes: int
    """Bytes of the blocks that succeeded."""
    seconds: float
    """Time since the job was submitted."""
    memory_in_use: bool = False
    """True only after the job's time-out: the disk still uses some of the rows. Do not change or read them until the event
    MEMORY_FREE of this job. The store keeps the buffer until then."""

    @property
    def ok(self) -> bool:
        """True if no block has failed."""
        return self.succeeded == len(self.statuses)


@dataclass(frozen=True)
class Event:
    """A block that has become readable, or was given up, or a job that uses no memory any more."""

    kind: EventKind
    key: bytes
    """The 32 bytes of Store.keys(). MEMORY_FREE: all zero."""
    job: int = 0
    """Only for MEMORY_FREE."""
