"""Terrace, the memory tier of an LLM serving stack, for Python.

Store keeps blocks of bytes on disk, by keys of any bytes, and finds them again after a restart:

    from terrace_kv import Store

    with Store("/mnt/nvme/kv", capacity="64GiB", block_bytes=65536) as store:
        store.put(b"a block", bytes(65536))
        into = bytearray(65536)
        assert store.get(b"a block", into)
"""

from __future__ import annotations

from ._keys import Keys
from ._library import (
    Busy,
    DeadlineExceeded,
    InvalidArgument,
    NotFound,
    Stopped,
    StorageError,
    TerraceError,
    cuda_built,
    lib,
)
from ._offload_types import (
    NO_SLOT,
    Change,
    ChangeKind,
    DeviceRegion,
    HostMemory,
    JobEvent,
    JobEventKind,
    Scope,
    State,
    Target,
    Urgency,
    WriteBackProgress,
    WriteBackState,
)
from .events import EventPublisher
from .offload import OffloadCache
from .store import BatchKind, Event, EventKind, Health, Region, Result, Store

# The public names, also in tracebacks.
for _error in (Busy, DeadlineExceeded, InvalidArgument, NotFound, Stopped, StorageError, TerraceError):
    _error.__module__ = __name__
__version__: str = lib.terrace_version().decode()

__all__ = [
    "NO_SLOT",
    "BatchKind",
    "Busy",
    "Change",
    "ChangeKind",
    "DeadlineExceeded",
    "DeviceRegion",
    "Event",
    "EventKind",
    "EventPublisher",
    "Health",
    "HostMemory",
    "InvalidArgument",
    "JobEvent",
    "JobEventKind",
    "Keys",
    "NotFound",
    "OffloadCache",
    "Region",
    "Result",
    "Scope",
    "State",
    "Stopped",
    "StorageError",
    "Store",
    "Target",
    "TerraceError",
    "Urgency",
    "WriteBackProgress",
    "WriteBackState",
    "__version__",
    "cuda_built",
]
