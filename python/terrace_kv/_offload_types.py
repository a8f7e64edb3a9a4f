"""Types of the arguments and results of OffloadCache."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from ._keys import Names

NO_SLOT = 0xFFFF_FFFF
"""The value for "no slot of the host tier" (OffloadCache.reserve, OffloadCache.pin_slots)."""


class State(IntEnum):
    """Where a block is."""

    MISS = 0
    PENDING = 1
    """Being brought to the host tier."""
    HOST = 2
    STORAGE = 3
    SHARED = 4
    """Only as the source of a loaded block or of a Change: the shared store."""


class Urgency(IntEnum):
    """How urgent a job is."""

    REQUEST = 0
    MAKE_ROOM = 1
    STORE = 2


class JobEventKind(IntEnum):
    """The kind of a JobEvent."""

    BLOCK = 0
    """The result of one block: nothing touches its slot or memory any more."""
    LAYERS = 1
    """`layers` leading layers of all blocks have arrived."""
    ENDED = 2
    """The last event of the job."""


class ChangeKind(IntEnum):
    """The kind of a Change."""

    STORED = 0
    REMOVED = 1
    CLEARED = 2


class WriteBackState(IntEnum):
    """The state of a write-back job."""

    RUNNING = 0
    PAUSED = 1
    DONE = 2
    CANCELLED = 3
    DEADLINE_EXCEEDED = 4


class WriteBackOutcome(IntEnum):
    """What became of a block of a write-back job."""

    STORED = 0
    ALREADY_THERE = 1
    DROPPED_FULL = 2
    DROPPED_GONE = 3
    OVER_BUDGET = 4
    FAILED = 5
    CANCELLED = 6


class Scope(IntEnum):
    """The blocks that a write-back job writes."""

    PREFIX = 1
    TENANT = 2
    IDLE = 3
    ALL = 4


class Target(IntEnum):
    """Where a write-back job writes."""

    STORAGE = 0
    SHARED = 1
    """The shared store. It is not flushed."""


@dataclass(frozen=True)
class DeviceRegion:
    """One part of every block in the engine's memory: the part of block b begins at base + b * stride and has `bytes` bytes.

    `base` is an address of the device, or for emulated devices of this process. `group` is the number of the pool if the
    configuration has no groups.
    """

    base: int
    stride: int
    bytes: int
    layer: int = 0
    group: int = 0
    rank: int = 0

    @classmethod
    def of(cls, tensor: Any, *, layer: int = 0, group: int = 0, rank: int = 0) -> DeviceRegion:
        """The region of a tensor of torch, on a CPU or GPU, or of an array of numpy, whose first dimension counts blocks. It must
        live as long as the cache.

        Raises:
            ValueError: A block of it does not lie in one piece, or it is read-only.
        """
        array = getattr(tensor, "__array_interface__", None)
        shape = tuple(tensor.shape) if array is None else array["shape"]
        if array is None:
            item = tensor.element_size()
            address, strides = tensor.data_ptr(), [stride * item for stride in tensor.stride()]
        else:
            item = int(array["typestr"][2:])
            address, read_only = array["data"]
            if read_only:
                raise ValueError("the array is read-only; blocks are written to it")
            strides = array.get("strides")
        packed = [item * math.prod(shape[i + 1 :]) for i in range(len(shape))]
        strides = list(strides or packed)
        if len(shape) < 2 or any(size > 1 and a != b for size, a, b in zip(shape[1:], strides[1:], packed[1:])):
            raise ValueError(f"a tensor of shape {shape} has no blocks that each lie in one piece")
        return cls(address, strides[0], packed[0], layer, group, rank)


@dataclass(frozen=True)
class HostMemory:
    """The engine's memory for the host tier of a pool and its staging slots. Host slot n is row n."""

    buffer: Any
    """If there are several dimensions, the first one counts rows. With one dimension, the rows are adjacent. It is kept until
    close()."""
    block_bytes: int
    """The size of a block of the pool, and of a row."""
    pool: int = 0


@dataclass(frozen=True)
class JobEvent:
    """A report of a job."""

    kind: JobEventKind
    job: int
    block: int
    """For a BLOCK: the index of its key."""
    status: int
    """For a BLOCK: 0, or the error. At the end: the first error of a block."""
    source: State
    """For a loaded BLOCK: its source."""
    layers: int
    moved: int
    """At the end: number of blocks without an error."""
    failed: int
    """At the end: number of blocks with an error."""


class Order(TypedDict, total=False):
    """The arguments that OffloadCache.store() and load() have by name. Either `slots` or `memory` is needed; all others are
    optional."""

    slots: Sequence[int]
    memory: Sequence[Any]
    first: int
    pool: int
    tenant: int
    after: int
    urgency: Urgency
    timeout: float | None
    use: int


class StoreOrder(Order, total=False):
    """All arguments of OffloadCache.store() by name."""

    beside: Names | None


class LoadOrder(Order, total=False):
    """All arguments of OffloadCache.load() by name."""

    by_layer: bool
    shared: bool


@dataclass(frozen=True)
class Change:
    """A block that can, or can no longer, be served from a source. `key` has the 32 bytes of keys()."""

    kind: ChangeKind
    source: State
    key: bytes
    parent: bytes | None
    tenant: int
    depth: int
    group: int
    expires_after: float = 0.0
    """In seconds. For a copy in the shared store: the time after which it may have been removed, because no change reports the
    removal. 0: a change reports the removal, or the time is not known."""


@dataclass(frozen=True)
class WriteBackProgress:
    """Progress of a write-back job: numbers of blocks by result, and bytes."""

    state: WriteBackState
    flush_error: int
    stored: int
    already_there: int
    dropped_full: int
    dropped_gone: int
    over_budget: int
    failed: int
    cancelled: int
    under_way: int
    written_bytes: int
    durable_bytes: int


@dataclass(frozen=True)
class WriteBackResult:
    """What became of a block of a write-back job. `key` has the 32 bytes of keys()."""

    key: bytes
    outcome: WriteBackOutcome
    status: int
    """Of a block that FAILED: the error."""


@dataclass(frozen=True)
class Usage:
    """How the slots of a tier of a pool are used."""

    blocks: int
    """Without the null block."""
    free: int
    evictable: int
    """Cached, and not held by anything."""
    promised: int
    """The part of `free` and `evictable` that is promised to waiting requests."""

    @property
    def available(self) -> int:
        """Slots that a new request can get."""
        return self.free + self.evictable - self.promised

    @property
    def share_used(self) -> float:
        """Share of the slots that are held or in transit, from 0 to 1."""
        return 1 - (self.free + self.evictable) / self.blocks if self.blocks else 0.0
