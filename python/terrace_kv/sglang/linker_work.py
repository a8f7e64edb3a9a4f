"""What a TerraceLinker has under way: batches of loads, and offloads."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from .._keys import Keys, joined
from .._library import status_text
from .._offload_types import JobEvent, JobEventKind
from .device_pools import DevicePool
from .page_chains import Run


class Ready:
    """Indices of SGLang in host memory, and the events of the device after which they and the pages may be used.

    Args:
        indices: Tensors of any device. Those of a GPU are copied without a wait.
        record: Records the events; called after the copies.
    """

    def __init__(self, indices: Sequence[Any], record: Callable[[], Sequence[Any]]) -> None:
        on_cpu = all(each.device.type == "cpu" for each in indices)
        self.indices = [each if on_cpu else each.to("cpu", non_blocking=True) for each in indices]
        # On a CPU the forward pass has returned before SGLang calls a linker, so the pages are written and nothing reads them.
        self._events = () if on_cpu else record()

    def __bool__(self) -> bool:
        return all(event.query() for event in self._events)


class Order:
    """Pages of one pool that a job of the cache moves.

    Attributes:
        pool: The number of the pool.
        keys: The keys of the prefix; those from `first` on are moved.
        place: The index of the transfer in its request.
        page: The index of the first moved page in the transfer.
    """

    __slots__ = ("count", "first", "job", "keys", "page", "place", "pool")

    def __init__(self, job: int, pool: int, keys: Keys, first: int, place: int, page: int) -> None:
        self.job = job
        self.pool = pool
        self.keys = keys
        self.first = first
        self.count = keys.count - first
        self.place = place
        self.page = page

    @classmethod
    def of(cls, job: int, run: Run, place: int) -> Order:
        """The order for pages of the KV."""
        return cls(job, 0, joined(run.keys), run.before, place, run.first)

    def slots(self, slots: Sequence[list[int]]) -> list[int]:
        """Its slots, from those of all transfers."""
        return slots[self.place][self.page : self.page + self.count]


class QueuedLoad:
    """A load of one request that has not begun.

    Args:
        ready: The indices of each transfer.
        transfers: The number of the pool and of the pages, by transfer.
        orders: The jobs to be ordered. Their host copies are pinned.
    """

    def __init__(self, ready: Ready, transfers: list[tuple[int, int]], orders: list[Order]) -> None:
        self.ready = ready
        self.transfers = transfers
        self.orders = orders

    def slots(self, pools: Sequence[DevicePool]) -> list[list[int]]:
        """The slots of each transfer."""
        return [pools[pool].slots_of(indices, pages) for (pool, pages), indices in zip(self.transfers, self.ready.indices)]


class LoadBatch:
    """The loads that one forward pass waits for.

    Args:
        layers: Number of layers of the model.
        ends: The time of time.monotonic() at which it has failed.
    """

    def __init__(self, layers: int, ends: float) -> None:
        self._layers = layers
        self._ready: dict[int, int] = {}  # by job that has not ended: leading layers of the model
        self._pools: dict[int, DevicePool] = {}
        self.waiting: list[QueuedLoad] = []
        """Requests that are not ordered yet, because the device has not reached their events."""
        self.ends = ends
        self.pages = 0
        self.error: object = None
        self.cancelled = False

    def add(self, job: int, pool: DevicePool) -> None:
        """The job has begun."""
        self._pools[job] = pool
        self._ready[job] = pool.ready(0)

    @property
    def jobs(self) -> list[int]:
        """The jobs that have not ended: these may write to the device."""
        return list(self._ready)

    @property
    def layers(self) -> int:
        """Number of leading layers of the model whose pages have arrived."""
        return 0 if self.waiting else min(self._ready.values(), default=self._layers)

    @property
    def ended(self) -> bool:
        """True if nothing writes to the pages any more."""
        return not self.waiting and not self._ready

    def take(self, event: JobEvent) -> None:
        """An event of one of its jobs."""
        if event.kind is JobEventKind.LAYERS:
            self._ready[event.job] = self._pools[event.job].ready(event.layers)
        elif event.kind is JobEventKind.ENDED:
            del self._ready[event.job]
            if event.failed:
                pages = f"{event.failed} of {event.failed + event.moved} pages"
                self.fail(f"{pages} cannot be loaded: {status_text(event.status)}")

    def has(self, job: int) -> bool:
        """Whether the job has not ended."""
        return job in self._ready

    def fail(self, error: object) -> None:
        """The batch has failed. The first error is kept."""
        self.error = self.error or error

    def check_time(self) -> None:
        """Fails if its time is over."""
        if self.error is None and not self.ended and time.monotonic() >= self.ends:
            self.fail("the time of the load (load_timeout) is over")


class Offload:
    """The stores of one call of offload()."""

    def __init__(self, ready: Ready | None, transfers: list[tuple[int, list[str]]], pages: int) -> None:
        self.ready = ready
        """None: it is not waiting any more."""
        self.transfers = transfers
        """The number of the pool, and SGLang's names of the pages."""
        self.pages = pages
        self.jobs: dict[int, list[bytes]] = {}
        """The pages of the KV that each job under way stores."""
        self.error: object = None

    @property
    def ended(self) -> bool:
        """True if nothing reads the pages any more."""
        return self.ready is None and not self.jobs

    def take(self, event: JobEvent) -> None:
        """An event of one of its jobs."""
        if event.kind is JobEventKind.ENDED:
            self.jobs.pop(event.job, None)
            if event.failed:
                self.error = self.error or f"{event.failed} pages cannot be stored: {status_text(event.status)}"

    def has(self, job: int) -> bool:
        """Whether the job has not ended."""
        return job in self.jobs


class LayerCounter:
    """The object on which SGLang's pools wait for the layers of the batch that runs.

    Args:
        wait: Waits for a layer of a batch.
    """

    def __init__(self, wait: Callable[[int, int], None]) -> None:
        self.consumer_index = -1
        self._wait = wait

    def set_consumer(self, index: int) -> None:
        """The batch of the next forward pass; -1: it waits for nothing."""
        self.consumer_index = index

    def wait_until(self, layer: int) -> None:
        """Waits until the pages of this layer have arrived, or cannot arrive any more."""
        if self.consumer_index >= 0:
            self._wait(self.consumer_index, layer)
