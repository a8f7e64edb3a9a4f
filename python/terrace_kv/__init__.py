"""Terrace, the memory tier of an LLM serving stack, for Python.

Store keeps blocks of bytes on disk, by keys of any bytes, and finds them again after a restart:

    from terrace_kv import Store

    with Store("/mnt/nvme/kv", capacity="64GiB", block_bytes=65536) as store:
        store.put(b"a block", bytes(65536))
        into = bytearray(65536)
        assert store.get(b"a block", into)
"""

from __future__ import annotations

from ._caches import HIGHEST_PRIORITY, NO_LIMIT, USUAL_PRIORITY
from ._keys import Keys
from ._library import (
    Busy,
    DeadlineExceeded,
    InvalidArgument,
    NotFound,
    Paused,
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
    Usage,
    WriteBackOutcome,
    WriteBackProgress,
    WriteBackResult,
    WriteBackState,
)
from .cache import Cache, Found, Place, Request, RequestEvent, RequestInfo, RequestState, Source, Step
from .chain import Chain, Item, ItemKind, Root
from .events import EventPublisher
from .offload import OffloadCache
from .plan import Attention, GroupPlan, KvType, LayerShape, Scales, plan_groups
from .store import BatchKind, Event, EventKind, Health, Region, Result, Store

# The public names, also in tracebacks.
for _error in (Busy, DeadlineExceeded, InvalidArgument, NotFound, Paused, Stopped, StorageError, TerraceError):
    _error.__module__ = __name__
__version__: str = lib.terrace_version().decode()

__all__ = [
    "HIGHEST_PRIORITY",
    "NO_LIMIT",
    "NO_SLOT",
    "USUAL_PRIORITY",
    "Attention",
    "BatchKind",
    "Busy",
    "Cache",
    "Chain",
    "Change",
    "ChangeKind",
    "DeadlineExceeded",
    "DeviceRegion",
    "Event",
    "EventKind",
    "EventPublisher",
    "Found",
    "GroupPlan",
    "Health",
    "HostMemory",
    "InvalidArgument",
    "Item",
    "ItemKind",
    "JobEvent",
    "JobEventKind",
    "Keys",
    "KvType",
    "LayerShape",
    "NotFound",
    "OffloadCache",
    "Paused",
    "Place",
    "Region",
    "Request",
    "RequestEvent",
    "RequestInfo",
    "RequestState",
    "Result",
    "Root",
    "Scales",
    "Scope",
    "Source",
    "State",
    "Step",
    "Stopped",
    "StorageError",
    "Store",
    "Target",
    "TerraceError",
    "Urgency",
    "Usage",
    "WriteBackOutcome",
    "WriteBackProgress",
    "WriteBackResult",
    "WriteBackState",
    "__version__",
    "cuda_built",
    "plan_groups",
]
