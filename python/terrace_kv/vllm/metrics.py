"""The metrics of TerraceTier and TerraceOffloadingSpec, published by vLLM."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics import OffloadingConnectorStats
from vllm.v1.kv_offload.base import OffloadingCounterMetadata, OffloadingGaugeMetadata

from .. import _interface
from ..store import Health

if TYPE_CHECKING:
    from ..offload import OffloadCache

_PREFIX = "vllm:kv_offload_terrace_"
_COUNTERS = {
    "read_chunks": "Number of chunks read from disk.",
    "read_bytes": "Bytes of these chunks.",
    "shared_chunks": "Number of chunks read from the shared store.",
    "written_bytes": "Bytes of the chunks written to disk.",
    "damaged": "Number of stored chunks whose content was not what had been written; each was a miss.",
    "gone": "Number of chunks that were evicted between the lookup and the load; each was a miss.",
    "load_failures": "Number of chunks that could not be read for another reason.",
    "store_failures": "Number of chunks that could not be written.",
    "dropped": "Number of chunks that were not written because too much was under way.",
    "declined": "Number of chunks that were there, and not read, because they are computed sooner.",
    "hints": "Number of requests with hints.",
    "hints_wrong": "Number of requests with hints that have no meaning, which were ignored.",
    "hints_ignored": "Number of prefixes that were not kept as asked: too many chunks are kept already, or none of these is there.",
    "errors": "Number of calls of Terrace that have failed; each was a miss, or a chunk that was not stored.",
    "evicted": "Number of chunks that were given up to make room: by the store; with TerraceOffloadingSpec, by host memory.",
}
_GAUGES = {
    "chunks": "Number of chunks on disk.",
    "capacity_chunks": "Number of chunks for which the store has room.",
    "under_way": "Number of chunks that are being read, written, or wait for it.",
    "health": "0: the disk works; 1: it fails at times; 2: it is not used.",
}


@dataclass
class Counts:
    """The counts of a tier, by the names of the counters."""

    read_chunks: int = 0
    read_bytes: int = 0
    shared_chunks: int = 0
    written_bytes: int = 0
    damaged: int = 0
    gone: int = 0
    load_failures: int = 0
    store_failures: int = 0
    dropped: int = 0
    declined: int = 0
    hints: int = 0
    hints_wrong: int = 0
    hints_ignored: int = 0
    errors: int = 0
    evicted: int = 0

    def copy(self) -> Counts:
        """A copy of the counts as they are now."""
        return replace(self)

    def count_failed_loads(self, statuses: Iterable[int]) -> None:
        """Counts each status of a load that is not OK."""
        for status in statuses:
            if status == _interface.CORRUPT:
                self.damaged += 1
            elif status == _interface.NOT_FOUND:
                self.gone += 1
            elif status != _interface.OK:
                self.load_failures += 1


def definitions() -> dict[str, Any]:
    """vLLM's descriptions of all metrics."""
    label = ("tier",)
    counters = {_PREFIX + name: OffloadingCounterMetadata(text, label) for name, text in _COUNTERS.items()}
    gauges = {_PREFIX + name: OffloadingGaugeMetadata(text, label) for name, text in _GAUGES.items()}
    return {**counters, **gauges}


def report(tier: str, counts: Counts, before: Counts | None, gauges: Mapping[str, float]) -> OffloadingConnectorStats:
    """The values for vLLM: counters as changes, gauges as they are. The first report, without one before it, has all counters, so
    that those that are 0 can be seen."""
    stats = OffloadingConnectorStats()
    for name in _COUNTERS:
        change = getattr(counts, name) - getattr(before, name, 0)
        if change or before is None:
            stats.increase_counter(_PREFIX + name, change, (tier,))
    for name, value in gauges.items():
        stats.set_gauge(_PREFIX + name, value, (tier,))
    return stats


def store_gauges(store: Mapping[str, int], health: Health) -> dict[str, float]:
    """The gauges of a Store, from its statistics."""
    return {
        "chunks": store["blocks"],
        "capacity_chunks": store["capacity_blocks"],
        "under_way": store["waiting"] + store["under_way"],
        "health": int(health),
    }


@dataclass
class ManagerMetrics:
    """The metrics of TerraceOffloadingManager: vLLM's own metrics of host memory, and Terrace's metrics."""

    tier: str
    counts: Counts = field(default_factory=Counts)
    reported: Counts | None = None
    loading: int = 0
    """Number of chunks that workers read."""
    allocations: list[int] = field(default_factory=list)
    """Chunks that each prepare_store() asked for, since the last report."""

    def report(self, cache: OffloadCache, rows: int, storing: int) -> OffloadingConnectorStats:
        """The values for vLLM. `rows`: number of rows of the region; `storing`: number of rows that workers are writing."""
        from vllm.v1.kv_offload.cpu.common import CPUOffloadingMetrics as Names

        values = cache.statistics()
        self.counts.evicted = values["evicted_host"]
        self.counts.read_chunks = values["loaded_storage"]
        self.counts.read_bytes = values["storage_read_bytes"]
        self.counts.shared_chunks = values["loaded_shared"]
        self.counts.written_bytes = values["storage_written_bytes"]
        stats = report(self.tier, self.counts, self.reported, {"under_way": values["blocks_in_flight"]})
        self.reported = self.counts.copy()
        stats.set_gauge(Names.CPU_CACHE_USAGE_PERC, (self.loading + storing) / rows)
        stats.set_gauge(Names.CPU_CACHE_WRITE_USAGE_PERC, storing / rows)
        stats.set_gauge(Names.CPU_CACHE_READ_USAGE_PERC, self.loading / rows)
        for asked in self.allocations:
            stats.observe_histogram(Names.CPU_ALLOCATION_SIZE, asked)
        self.allocations.clear()
        return stats
