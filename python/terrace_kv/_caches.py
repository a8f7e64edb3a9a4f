"""What an OffloadCache and a Cache share: how they are opened and closed, and what operators and orchestrators call."""

from __future__ import annotations

import ctypes
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from ctypes import POINTER, byref, c_char_p, c_int64, c_size_t, c_uint16, c_uint32, c_uint64, c_void_p
from typing import Any

from . import _interface, _library
from ._keys import Keys, Names
from ._library import check, error_of, lib
from ._memory import Kept, Rows
from ._offload_types import (
    Change,
    ChangeKind,
    DeviceRegion,
    HostMemory,
    Scope,
    State,
    Target,
    Usage,
    WriteBackOutcome,
    WriteBackProgress,
    WriteBackResult,
    WriteBackState,
)
from ._polling import LONGEST_WAIT, Polled, end_of, nanoseconds
from ._structures import c_text, in_range
from ._toml import document

CHANGE = struct.Struct("<32s32sQIIII")  # terrace_cache_event: key, parent, tenant, kind, source, depth, group
_NO_KEY = bytes(32)
_ALONE = 0x8000  # TERRACE_ALONE
_KEEP_STORAGE, _KEEP_SHARED, _WAIT, _RELEASE_HOST = 0x100, 0x200, 0x400, 0x1000  # flags of terrace_cache_clear
USUAL_PRIORITY, HIGHEST_PRIORITY = 7, 14
NO_LIMIT = 0xFFFF_FFFF


class AnyCache(Polled):
    """A handle of terrace_cache, of either kind."""

    _what = "cache"
    _prefix = "terrace_cache"

    def __init__(
        self,
        opening: Any,
        config: str | Mapping[str, Any],
        regions: Sequence[DeviceRegion],
        host_memory: Sequence[HostMemory],
        namespace: bytes,
        log: Callable[[int, str], None] | None,
        used: object,
    ) -> None:
        """`opening` is the function of the library. `used` is kept as long as the library may use its memory."""
        super().__init__(namespace, log)
        text, name = (config, "config") if isinstance(config, str) else (document(config), _library.GENERATED)
        given = self._options(text, name)
        made = regions_of(regions)
        if regions:
            given.regions = made
            given.region_count = len(regions)
        self._host_rows: list[Rows] = []
        handle = c_void_p()
        try:
            self._host_rows += (Rows(each.buffer, each.block_bytes) for each in host_memory)
            if any(rows.readonly for rows in self._host_rows):
                raise ValueError("host_memory has a buffer that is read-only; blocks are written to it")
            rows = (_interface.HostRows * len(host_memory))(
                *(
                    _interface.HostRows(address=r.address, stride=r.stride, rows=r.count, pool=m.pool)
                    for r, m in zip(self._host_rows, host_memory)
                )
            )
            if host_memory:
                given.host_rows = rows
                given.host_rows_count = len(host_memory)
            check(opening(byref(given), byref(handle)))
            # If a device or disk does not answer at the end, the memory that it may still use is kept after this object.
            self._kept = Kept(used, self._host_rows, self._log)
            self._handle = handle
        except BaseException:
            self._handle = None
            lib.terrace_cache_destroy(handle, _library.NEVER)
            release_all(self._host_rows)
            raise

    def _wake_waiters(self) -> None:
        """Wakes the tasks of event loops. The lock is held."""
        raise NotImplementedError

    @staticmethod
    def _source_of(number: int) -> Any:
        """The source of a change. One that this package does not know is treated as slower than all others."""
        return State(min(number, State.SHARED))

    def block_bytes(self, pool: int = 0) -> int:
        """The size of a block of the pool."""
        with self._lock:
            return int(lib.terrace_cache_block_bytes(self._open(), pool_number(pool)))

    # ---- the cache as a whole

    def clear(
        self, *, keep_storage: bool = False, keep_shared: bool = False, wait: bool = False, release_host: bool = False
    ) -> None:
        """Drops all cached blocks, removes all stored blocks, and ends the use of a shared store until resume_shared().

        It does not wait for the disk: if the process is killed while statistics()["erasing"] is 1, removed blocks may be there
        again.

        Args:
            keep_storage: True if the names of stored blocks still have the same meaning. Then the stored blocks stay, and can be
                hits.
            keep_shared: The same for the shared store. Then it is still used.
            wait: Nothing is served until resume(). Live requests keep their blocks until they are released; the clear is complete
                when statistics()["cleared"] is 2.
            release_host: Includes `wait`. When the clear is complete, host memory goes back to the system until resume(), except
                up to 1 GiB a pool.
        """
        self._clear(0, keep_storage, keep_shared, wait, release_host)

    def _clear(self, flags: int, *chosen: bool) -> None:
        for flag, is_set in zip((_KEEP_STORAGE, _KEEP_SHARED, _WAIT, _RELEASE_HOST), chosen, strict=True):
            flags |= flag if is_set else 0
        with self._lock:
            check(lib.terrace_cache_clear(self._open(), flags))

    def resume(self) -> None:
        """Serves again after a clear that waits.

        Raises:
            TerraceError: Some of the cleared blocks are still on the device or in host memory.
        """
        with self._lock:
            check(lib.terrace_cache_resume(self._open()))

    def make_room(self, blocks: int, tier: str = "device", pool: int = 0) -> None:
        """Evicts blocks that nobody holds until so many slots of a tier, "device" or "host", are free, or nothing more can be
        evicted. Does not wait. A request needs no such call; it is for an engine that knows of a burst."""
        number = tier_number(tier)
        with self._lock:
            check(lib.terrace_cache_make_room(self._open(), number, in_range("blocks", blocks, c_uint32), pool_number(pool)))

    def resize_host(self, blocks: int, pool: int = 0) -> None:
        """Makes the host tier larger or smaller. Does not wait."""
        with self._lock:
            check(lib.terrace_cache_resize(self._open(), 1, in_range("blocks", blocks, c_uint32), pool_number(pool)))

    def resize_storage(self, blocks: int, pool: int = 0) -> None:
        """Makes storage larger or smaller. Does not wait."""
        with self._lock:
            check(lib.terrace_cache_resize(self._open(), 2, in_range("blocks", blocks, c_uint32), pool_number(pool)))

    # ---- what is cached

    def usage(self, tier: str, pool: int = 0) -> Usage:
        """How the slots of a tier, "device" or "host", are used. Those of the device are the engine's in an OffloadCache."""
        return Usage(**self._read(lib.terrace_cache_read_usage, _interface.Usage(), tier_number(tier), pool_number(pool)))

    def tree_counts(self, pool: int = 0) -> dict[str, int]:
        """What the tree of a pool has now, by the names of terrace_tree_counts in terrace.h. Visits every node of the tree."""
        return self._read(lib.terrace_cache_read_tree, _interface.TreeCounts(), pool_number(pool))

    def describe_tree(self, lines_max: int = 100) -> str:
        """The trees as text for people: which tiers have which blocks, a line for each node, at most `lines_max` for each
        pool."""
        text = c_char_p()
        with self._lock:
            check(lib.terrace_cache_describe_tree(self._open(), in_range("lines_max", lines_max, c_uint64), byref(text)))
            return (text.value or b"").decode()

    def measure_misses(self) -> None:
        """Starts to record why blocks are missed. A cache with an admin endpoint does so from the start. Takes up to 3 MiB."""
        with self._lock:
            check(lib.terrace_cache_measure_misses(self._open()))

    def misses(self) -> dict[str, int]:
        """Blocks that had to be computed, by the reasons of terrace_misses in terrace.h, estimated from a share of the keys."""
        return self._read(lib.terrace_cache_read_misses, _interface.Misses())

    def record_changes(self) -> None:
        """Records changes of the cached blocks from now on. Call changes() regularly, because all changes are kept until then."""
        with self._lock:
            check(lib.terrace_cache_record_events(self._open()))

    def changes(self) -> list[Change]:
        """Returns the changes since the last call."""
        expiries = POINTER(c_int64)()
        count = c_size_t()
        with self._lock:
            changes = list(self._raw_changes(CHANGE))
            check(lib.terrace_cache_event_expiries(self._open(), byref(expiries), byref(count)))
            ends = [expiries[i] / 1e9 for i in range(count.value)]
        return [
            Change(ChangeKind(kind), self._source_of(source), key, None if parent == _NO_KEY else parent, tenant, depth, group, end)
            for (key, parent, tenant, kind, source, depth, group), end in zip(changes, ends, strict=True)
        ]

    # ---- hints, pins, quotas

    def pin_prefix(self, keys: Names, seconds: float | None = None) -> int:
        """Keeps the cached part of the prefix from eviction, for so long or until unpin_prefix(). Returns a number for that.

        Raises:
            NotFound: No block of it is cached.
            Busy: Pins would keep too many blocks.
        """
        made = self._keys(keys)
        pin = c_uint64()
        with self._lock:
            check(lib.terrace_cache_pin(self._open(), made._array, made.count, nanoseconds(seconds, "seconds"), byref(pin)))
        return pin.value

    def unpin_prefix(self, pin: int) -> None:
        """Ends a pin of pin_prefix()."""
        with self._lock:
            check(lib.terrace_cache_unpin(self._open(), in_range("pin", pin, c_uint64)))

    def retain(self, keys: Names, priority: int, seconds: float | None = None) -> int:
        """Gives the cached part of the prefix a priority from 0 to HIGHEST_PRIORITY, for so long or until end_retention(). Blocks
        of a lower priority are evicted first; others have USUAL_PRIORITY. Returns a number for end_retention().

        Raises:
            NotFound: No block of it is cached.
        """
        made = self._keys(keys)
        retention = c_uint64()
        with self._lock:
            check(
                lib.terrace_cache_retain(
                    self._open(),
                    made._array,
                    made.count,
                    in_range("priority", priority, c_uint32),
                    nanoseconds(seconds, "seconds"),
                    byref(retention),
                )
            )
        return retention.value

    def end_retention(self, retention: int) -> None:
        """Ends a retention."""
        with self._lock:
            check(lib.terrace_cache_end_retention(self._open(), in_range("retention", retention, c_uint64)))

    def set_quota(self, tenant: int, *, device_blocks: int = NO_LIMIT, host_blocks: int = NO_LIMIT, pool: int = 0) -> None:
        """Limits how many blocks a tenant may keep cached in a pool. Blocks beyond it are evicted first."""
        device, host = in_range("device_blocks", device_blocks, c_uint32), in_range("host_blocks", host_blocks, c_uint32)
        with self._lock:
            check(lib.terrace_cache_set_quota(self._open(), tenant_number(tenant), device, host, pool_number(pool)))

    def remove_quota(self, tenant: int, pool: int = 0) -> None:
        """The tenant has no limit any more."""
        with self._lock:
            check(lib.terrace_cache_remove_quota(self._open(), tenant_number(tenant), pool_number(pool)))

    def tenant_blocks(self, tenant: int, tier: str = "host", pool: int = 0) -> int:
        """Number of copies that a tenant with a quota has in a tier, "device" or "host"."""
        number = tier_number(tier)
        blocks = c_uint64()
        with self._lock:
            check(
                lib.terrace_cache_tenant_blocks(
                    self._open(), tenant_number(tenant), number, pool_number(pool), byref(blocks)
                )
            )
        return blocks.value

    # ---- settings

    def set(self, option: str, value: str | int | float | bool) -> None:
        """Changes an option that can change while a cache serves, as `terrace set` does: set("policy", "lru").

        Raises:
            InvalidArgument: There is no such option, it cannot change now, or the value is wrong.
        """
        word = ("on" if value else "off") if isinstance(value, bool) else str(value)
        with self._lock:
            check(lib.terrace_cache_set(self._open(), c_text("option", option), c_text("value", word)))

    def pause_transfers(self) -> None:
        """No copy, read or write starts until resume_transfers()."""
        with self._lock:
            check(lib.terrace_cache_pause_transfers(self._open()))

    def resume_transfers(self) -> None:
        """Ends pause_transfers()."""
        with self._lock:
            check(lib.terrace_cache_resume_transfers(self._open()))

    # ---- write-back jobs

    def start_write_back(
        self,
        scope: Scope = Scope.ALL,
        *,
        target: Target = Target.STORAGE,
        keys: Names | None = None,
        tenant: int = 0,
        unused_for: float = 0,
        timeout: float | None = None,
        budget: int = 0,
        durable: bool = True,
    ) -> int:
        """Starts a job that writes cached blocks to storage, or to the shared store, now. Returns its number.

        Args:
            target: Where it writes.
            keys: For Scope.PREFIX.
            unused_for: For Scope.IDLE, in seconds.
            timeout: In seconds; blocks that are not stored by then are dropped from the job.
            budget: The most bytes to write; 0: no limit.
            durable: The job also flushes storage before it ends.

        Raises:
            InvalidArgument: There is no such target, among others.
        """
        made = self._keys(keys) if keys is not None else None
        order = _interface.WriteBack(
            scope=int(scope),
            target=int(target),
            not_durable=int(not durable),
            tenant=tenant,
            unused_for=nanoseconds(unused_for, "unused_for"),
            deadline=0 if timeout is None else max(1, nanoseconds(timeout)),
            budget=budget,
        )
        if made is not None:
            order.keys = ctypes.addressof(made._array)
            order.count = made.count
        job = c_uint64()
        with self._lock:
            check(lib.terrace_write_back_start(self._open(), byref(order), byref(job)))
        return job.value

    def pause_write_back(self, job: int) -> None:
        """The job starts no more writes until it is resumed."""
        with self._lock:
            check(lib.terrace_write_back_pause(self._open(), job_number(job)))

    def resume_write_back(self, job: int) -> None:
        """Continues a paused job."""
        with self._lock:
            check(lib.terrace_write_back_resume(self._open(), job_number(job)))

    def cancel_write_back(self, job: int) -> None:
        """Ends the job at once."""
        with self._lock:
            check(lib.terrace_write_back_cancel(self._open(), job_number(job)))

    def write_back(self, job: int) -> WriteBackProgress:
        """The progress of a job.

        Raises:
            NotFound: There is no such job, or it ended long ago.
        """
        counts = self._read(lib.terrace_write_back_read, _interface.WriteBackProgress(), job_number(job))
        return WriteBackProgress(state=WriteBackState(counts.pop("state")), **counts)

    def write_back_results(self, job: int) -> list[WriteBackResult]:
        """The results of the job's blocks since the last call.

        Raises:
            NotFound: There is no such job, or it ended long ago.
        """
        results = POINTER(_interface.WriteBackResult)()
        count = c_size_t()
        with self._lock:
            check(lib.terrace_write_back_results(self._open(), job_number(job), byref(results), byref(count)))
            return [
                WriteBackResult(bytes(each.key.bytes), WriteBackOutcome(each.outcome), each.status)
                for each in results[: count.value]
            ]

    def checkpoint(self, longest: float = 60.0) -> int:
        """Writes everything that is cached to storage and flushes it, within so many seconds: for the end of a process. Returns
        the number of blocks that would survive a power failure now."""
        durable = c_uint64()
        with self._lock:
            check(lib.terrace_cache_checkpoint(self._open(), nanoseconds(longest, "longest"), byref(durable)))
        return durable.value

    def pause_idle_service(self, longest: float) -> None:
        """Stops the idle service, which works while no call is made, for this number of seconds, or until a call with 0. During
        this time the contents of the cache change only in calls."""
        with self._lock:
            check(lib.terrace_cache_pause_idle_service(self._open(), nanoseconds(longest, "longest")))

    def drain(self, timeout: float | None = LONGEST_WAIT) -> None:
        """Waits until no work is under way; requests are not waited for. Paused transfers are resumed. The next poll() returns the events.

        Raises:
            DeadlineExceeded: The time is over, in seconds; None: it never is.
        """
        end = end_of(timeout)
        while True:
            with self._lock:
                # Waits in short pieces, so that other threads, and exceptions such as KeyboardInterrupt, are not blocked.
                left = 0.05 if end is None else min(0.05, max(0.0, end - time.monotonic()))
                status = lib.terrace_cache_drain(self._open(), nanoseconds(left))
                sentence = _library.last_error()
                self._poll()
            if status == _interface.OK:
                return
            if status != _interface.DEADLINE_EXCEEDED or (end is not None and time.monotonic() >= end):
                raise error_of(status, sentence)

    def signal(self, stream: int = 0, rank: int = 0) -> int:
        """Marks all work that is on the stream (an address, as torch's stream.cuda_stream) now, for `after`."""
        point = c_uint64()
        with self._lock:
            check(lib.terrace_cache_signal(self._open(), stream_address(stream), rank_number(rank), byref(point)))
        return point.value

    # ---- the end

    def close(self, timeout: float | None = LONGEST_WAIT) -> None:
        """Ends all work, and releases all buffers. A second call does nothing.

        Raises:
            DeadlineExceeded: A disk or device has not answered within `timeout` seconds. The cache is closed nevertheless; the
                engine's memory must stay valid for the rest of the process.
        """
        longest = nanoseconds(timeout)
        with self._lock:
            if self._handle is None:
                return
            self._stop_serving()
            handle, self._handle = self._handle, None
            try:
                ended = lib.terrace_cache_destroy(handle, longest) == 1
            finally:
                self._wake_waiters()
                self._wake_threads()
            if ended:
                self._let_go()
                self._kept.end()
        if not ended:
            raise error_of(_interface.DEADLINE_EXCEEDED, "close: a disk or device has not answered in time")

    # ---- inside

    def _raw_changes(self, fields: struct.Struct) -> Iterator[tuple[Any, ...]]:
        """The changes since the last call, unpacked."""
        raw = POINTER(_interface.CacheEvent)()
        count = c_size_t()
        with self._lock:
            check(lib.terrace_cache_events(self._open(), byref(raw), byref(count)))
            return fields.iter_unpack(ctypes.string_at(raw, count.value * fields.size) if count.value else b"")


def job_number(job: int) -> int:
    return in_range("job", job, c_uint64)


def pool_number(pool: int, keys: Keys | None = None) -> int:
    number = in_range("pool", pool, c_uint16)
    return number | _ALONE if keys is not None and keys.alone else number


def rank_number(rank: int) -> int:
    return in_range("rank", rank, c_uint32)


def stream_address(stream: int) -> int | None:
    return in_range("stream", stream, c_uint64) or None


def release_all(owners: Iterable[Rows]) -> None:
    for owner in owners:
        owner.release()


def tier_number(tier: str) -> int:
    if tier not in ("device", "host"):
        raise ValueError(f'tier is {tier!r}, must be "device" or "host"')
    return int(tier == "host")


def tenant_number(tenant: int) -> int:
    return in_range("tenant", tenant, c_uint64)


def regions_of(regions: Sequence[DeviceRegion]) -> ctypes.Array[_interface.DeviceRegion]:
    return (_interface.DeviceRegion * len(regions))(
        *(
            _interface.DeviceRegion(rank=r.rank, group=r.group, base=r.base, stride=r.stride, bytes=r.bytes, layer=r.layer)
            for r in regions
        )
    )
