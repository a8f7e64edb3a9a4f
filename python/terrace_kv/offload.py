"""A cache in host memory and storage, below an engine that owns the blocks of its devices."""

from __future__ import annotations

import asyncio
import ctypes
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from ctypes import POINTER, byref, c_int32, c_int64, c_size_t, c_uint16, c_uint32, c_uint64, c_void_p
from types import TracebackType
from typing import TYPE_CHECKING, Any

from . import _library
from ._keys import Keys, keys_of_names, keys_of_prefix, keys_of_tokens
from ._library import TerraceError, check, error_of, in_range, lib, row_numbers
from ._memory import Kept, Rows
from ._offload_types import (
    Change,
    ChangeKind,
    NO_SLOT,
    DeviceRegion,
    HostMemory,
    JobEvent,
    JobEventKind,
    LoadOrder,
    Order,
    Scope,
    State,
    Target,
    Urgency,
    WriteBackProgress,
    WriteBackState,
)
from ._polling import Polled, Returned, Waiter, end_of, nanoseconds
from ._toml import document
from .store import Names, _log_function

if TYPE_CHECKING:
    from typing_extensions import Unpack

_CHANGE = struct.Struct("<32s32sQIIII")  # terrace_cache_event: key, parent, tenant, kind, source, depth, group
_NO_KEY = bytes(32)
_ALONE = 0x8000  # TERRACE_ALONE
_KEEP_STORAGE, _KEEP_SHARED = 0x100, 0x200  # of terrace_offload_clear


class OffloadCache(Polled):
    """Keeps blocks in host memory and in storage, for an engine that allocates the blocks of its devices itself.

    The engine asks what is there (look_up, leading), and orders jobs: store the blocks in these slots, load these blocks into
    those slots. poll() returns an event for each block and one at the end of each job. Instead of slots a job may name buffers of
    host memory of one block each.

    Methods take keys from token_keys() or prefix_keys(), or from keys() with key-order = "flat". Names in place of keys stand for
    keys(names).

    Args:
        config: The configuration (docs/configuration.md), as TOML, or as a mapping of the same shape:
            {"write-policy": "none", "storage": {"where": "file:/mnt/kv"}, "pool": [{"host-blocks": 64}]}.
        regions: The engine's memory. If there is none, devices allocate the blocks.
        host_memory: Memory for the host tiers. A pool without any takes memory of its own.
        namespace: Says what the names of blocks mean: model, weights, layout, rank.
        log: Called with a level (0 info, 1 warning, 2 error) and a sentence, on a thread of the library.

    Raises:
        InvalidArgument: An option is wrong; the sentence says which, and what would be right.
        TerraceError: A part cannot be made, for example because there is no GPU.

    Threads: any. In a child process made by os.fork() the cache is closed, and raises Stopped; the parent's goes on.
    """

    _what = "cache"
    _prefix = "terrace_offload"

    def __init__(
        self,
        config: str | Mapping[str, Any],
        *,
        regions: Sequence[DeviceRegion] = (),
        host_memory: Sequence[HostMemory] = (),
        namespace: bytes = b"",
        log: Callable[[int, str], None] | None = None,
    ) -> None:
        super().__init__()
        self.namespace = bytes(namespace)
        self._log = _log_function(log)
        self._jobs: dict[int, list[Rows]] = {}  # live ones, and the buffers that they use
        self._events: dict[int, list[JobEvent]] = {}  # for poll(), by the call that returned them
        self._returned = Returned(lib.terrace_offload_poll, _library.OffloadEvent)
        self._waiters: dict[int, _End] = {}
        text, name = (config, "config") if isinstance(config, str) else (document(config), _library.GENERATED)
        given = _library.OpenOptions(config=text.encode(), config_name=name.encode())
        if self._log is not None:
            given.log = self._log
        made = (_library.DeviceRegion * len(regions))(
            *(
                _library.DeviceRegion(
                    rank=r.rank, group=r.group, base=r.base, stride=r.stride, bytes=r.bytes, layer=r.layer
                )
                for r in regions
            )
        )
        if regions:
            given.regions = made
            given.region_count = len(regions)
        self._host_rows: list[Rows] = []
        handle = c_void_p()
        try:
            self._host_rows += (Rows(each.buffer, each.block_bytes) for each in host_memory)
            rows = (_library.HostRows * len(host_memory))(
                *(
                    _library.HostRows(address=r.address, stride=r.stride, rows=r.count, pool=m.pool)
                    for r, m in zip(self._host_rows, host_memory)
                )
            )
            if host_memory:
                given.host_rows = rows
                given.host_rows_count = len(host_memory)
            check(lib.terrace_offload_open(byref(given), byref(handle)))
            # If a device or disk does not answer at the end, memory that it may still use outlives this object.
            self._kept = Kept(self._jobs, self._host_rows, self._log)
            self._handle = handle
        except BaseException:
            self._handle = None
            lib.terrace_offload_destroy(handle, _library.NEVER)
            _release_all(self._host_rows)
            raise

    # ---- keys

    def keys(self, names: Sequence[bytes]) -> Keys:
        """Keys of blocks that stand alone (key-order = "flat"), or of a prefix whose names are chained hashes: each name stands
        for those before it, too (key-order = "prefix")."""
        return keys_of_names(self.namespace, names)

    def lone_keys(self, names: Sequence[bytes]) -> Keys:
        """Keys of blocks of which each stands alone, with any key-order: blocks of a window or a state, which are of use without
        those before them. A block stands in one way, and every call that names it says so."""
        return keys_of_names(self.namespace, names, alone=True)

    def prefix_keys(self, names: Sequence[bytes]) -> Keys:
        """Keys of a prefix (key-order = "prefix"): each stands for all names before it, too."""
        return keys_of_prefix(self.namespace, names)

    def token_keys(self, tokens: Sequence[int], block_tokens: int) -> Keys:
        """Keys of the full blocks of a prompt (key-order = "prefix"), of `block_tokens` tokens each. Each stands for all tokens
        before its block, too. There are len(tokens) // block_tokens keys.

        Raises:
            ValueError: A token is not from 0 to 2**32 - 1, or block_tokens is less than 1.
        """
        return keys_of_tokens(self.namespace, tokens, block_tokens)

    def block_bytes(self, pool: int = 0) -> int:
        """The size of a block of the pool."""
        with self._lock:
            return int(lib.terrace_offload_block_bytes(self._open(), _pool(pool)))

    # ---- what is there

    def look_up(self, keys: Names, pool: int = 0) -> list[State]:
        """Where each block is. Has no side effect."""
        return [State(state) for state in self._states(self._keys(keys), pool)]

    def leading(self, keys: Names, pool: int = 0) -> int:
        """How many of the first keys have a copy without a gap. Has no side effect."""
        made = self._keys(keys)
        leading = c_size_t()
        with self._lock:
            check(lib.terrace_offload_leading(self._open(), _pool(pool, made), made._array, made.count, byref(leading)))
        return leading.value

    def find(self, keys: Names, pool: int = 0) -> tuple[int, bool]:
        """How many of the first keys have a copy without a gap, here or in the shared store; and whether the shared store was
        asked and has not answered. Then call poll(), and ask again with the same keys, until the option `probe-deadline` at the
        latest. load() with `shared` gets what it has counted."""
        made = self._keys(keys)
        leading = c_size_t()
        looking = c_int32()
        with self._lock:
            check(lib.terrace_offload_find(self._open(), _pool(pool, made), made._array, made.count, byref(leading), byref(looking)))
        return leading.value, bool(looking.value)

    # ---- jobs

    def load(self, job: int, keys: Names, **order: Unpack[LoadOrder]) -> None:
        """Loads blocks into slots or memory. Does not wait. The other arguments are those of store(), and:

        Args:
            by_layer: Report leading layers.
            shared: Read blocks that are neither here nor in storage from the shared store. One that is not there any more, is
                damaged, or is late, fails.
        """
        self._order(lib.terrace_offload_load, job, keys, writes=True, **order)

    def store(self, job: int, keys: Names, **order: Unpack[Order]) -> None:
        """Stores blocks: copies them to the host tier, and from there to storage as the write policy says. Does not wait.

        Args:
            job: A number of the caller's, that no other living job has.
            slots: Device slots, one for each moved block.
            memory: Instead of slots: buffers of one block each. They are kept until the end of the job.
            first: With prefix keys: the blocks from this index on are moved.
            pool, tenant: Numbers.
            after: A point of signal() that the device must have reached before.
            urgency: An Urgency.
            timeout: In seconds.

        Raises:
            Busy: A bound is reached, or another job uses a slot.
        """
        self._order(lib.terrace_offload_store, job, keys, writes=False, **order)

    def cancel(self, job: int) -> None:
        """Ends the blocks of the job that have not begun to cross the link."""
        with self._lock:
            check(lib.terrace_offload_cancel(self._open(), _job(job)))

    def fetch(
        self,
        job: int,
        keys: Names,
        *,
        first: int = 0,
        pool: int = 0,
        tenant: int = 0,
        timeout: float | None = None,
        shared: bool = False,
    ) -> None:
        """Brings blocks from storage, and if `shared` from the shared store, to the host tier. Does not wait; a job as load()."""
        self._order(
            lib.terrace_offload_load,
            job,
            keys,
            writes=False,
            anywhere=True,
            first=first,
            pool=pool,
            tenant=tenant,
            timeout=timeout,
            shared=shared,
        )

    def pin(self, job: int, keys: Names, pool: int = 0) -> int:
        """Keeps host copies until unpin(), or the end of the job of this number. Returns how many blocks that are."""
        made = self._keys(keys)
        pinned = c_uint32()
        with self._lock:
            check(lib.terrace_offload_pin(self._open(), _job(job), _pool(pool, made), made._array, made.count, byref(pinned)))
        return pinned.value

    def touch(self, keys: Names, pool: int = 0) -> None:
        """The blocks were used elsewhere, so they are evicted later, the first of the keys last. Keys that are not there are
        ignored."""
        made = self._keys(keys)
        with self._lock:
            check(lib.terrace_offload_touch(self._open(), _pool(pool, made), made._array, made.count))

    # ---- blocks that the engine moves itself

    def pin_slots(self, job: int, keys: Names, *, first: int = 0, pool: int = 0) -> list[int]:
        """As pin(), and a use of the blocks. Returns the slot of the host tier that holds each block from index `first` on, or
        NO_SLOT. The engine may read these slots until it calls unpin()."""
        _kept, order, slots = self._host_slots(job, keys, first, pool, 0)
        with self._lock:
            check(lib.terrace_offload_pin_slots(self._open(), byref(order), slots))
        return slots[:]

    def reserve(self, job: int, keys: Names, *, first: int = 0, pool: int = 0, tenant: int = 0) -> list[int]:
        """Takes slots of the host tier, which the engine fills itself, and then calls publish(). Returns the slot of each block
        from index `first` on, or NO_SLOT: the block is there already or on its way, or there is no room. If all are NO_SLOT,
        there is nothing to publish.

        Raises:
            Busy: Too much is reserved.
        """
        _kept, order, slots = self._host_slots(job, keys, first, pool, tenant)
        reserved = c_uint32()
        with self._lock:
            check(lib.terrace_offload_reserve(self._open(), byref(order), slots, byref(reserved)))
        return slots[:]

    def publish(self, job: int, filled: bool = True) -> None:
        """Ends a reservation. The slots have their blocks; if not `filled`, they are free again.

        Raises:
            NotFound: There is no such reservation.
        """
        with self._lock:
            check(lib.terrace_offload_publish(self._open(), _job(job), int(filled)))

    def unpin(self, job: int) -> None:
        """Ends a pin."""
        with self._lock:
            check(lib.terrace_offload_unpin(self._open(), _job(job)))

    def poll(self) -> list[JobEvent]:
        """Collects ended work, starts new work, and returns the events since the last call, but those of jobs for which ended()
        waits."""
        with self._lock:
            self._poll()
            events, self._events = self._events, {}
        return [event for number in sorted(events) for event in events[number]]

    async def ended(self, job: int) -> list[JobEvent]:
        """Waits on the running event loop for the end of a job under way, and returns its events since the last poll(). The last
        one is the end. While it waits, nobody needs to call poll(). One loop at a time serves a cache. If the caller is
        cancelled, the job goes on: cancel() ends it.

        Raises:
            NotFound: There is no such job, or poll() has returned its end.
            Stopped: The cache was closed before.
        """
        loop = asyncio.get_running_loop()
        end = _End(loop)
        try:
            with self._lock:
                self._open()
                told = any(event.job == job for each in self._events.values() for event in each)
                if (job not in self._jobs and not told) or job in self._waiters:
                    why = "somebody waits for it" if job in self._waiters else f"there is no job {job}"
                    raise error_of(_library.NOT_FOUND, f"ended: {why}")
                self._waiters[job] = end
                self._serve_on(loop)
                for number, events in sorted(self._events.items()):
                    end.take(number, [event for event in events if event.job == job])
                    self._put_back(number, [event for event in events if event.job != job])
            self._serve()
            await end.until(lambda: end.ended or self.closed)
            if not end.ended:
                self._open()
            return end.all()
        except BaseException:
            with self._lock:  # its events are for poll()
                for number, events in end.events.items():
                    self._put_back(number, self._events.get(number, []) + events)
            raise
        finally:
            with self._lock:
                if self._waiters.get(job) is end:
                    del self._waiters[job]

    def pause_idle_service(self, longest: float) -> None:
        """The thread that works while no call is made does not, for so many seconds, or until a call with 0. What the cache has does
        not change between two calls then, unless one of them changes it."""
        with self._lock:
            check(lib.terrace_offload_pause_idle_service(self._open(), nanoseconds(longest)))

    def drain(self, timeout: float | None = None) -> None:
        """Waits until no job is under way. If transfers are paused, they go on. The events come with the next poll().

        Raises:
            DeadlineExceeded: The time is over, in seconds.
        """
        end = end_of(timeout)
        while True:
            with self._lock:
                # Short pieces: another thread, or an exception such as KeyboardInterrupt, has its turn in between.
                left = 0.05 if end is None else min(0.05, max(0.0, end - time.monotonic()))
                status = lib.terrace_offload_drain(self._open(), nanoseconds(left))
                sentence = _library.last_error()
                self._poll()
            if status == _library.OK:
                return
            if status != _library.DEADLINE_EXCEEDED or (end is not None and time.monotonic() >= end):
                raise error_of(status, sentence)

    # ---- streams of the engine

    def signal(self, stream: int = 0, rank: int = 0) -> int:
        """Marks all work that is on the stream (an address, as torch's stream.cuda_stream) now, for `after`."""
        point = c_uint64()
        with self._lock:
            check(lib.terrace_offload_signal(self._open(), _stream(stream), _rank(rank), byref(point)))
        return point.value

    def await_stream(self, job: int, stream: int = 0, layers: int = 0xFFFF_FFFF, rank: int = 0) -> None:
        """Makes the stream wait, on the device, until the leading layers of the job's blocks have been copied.

        Raises:
            Busy: Some of the copies are not on the device yet. Try again after the next poll().
        """
        with self._lock:
            leading = in_range("layers", layers, c_uint32)
            check(lib.terrace_offload_await(self._open(), _job(job), leading, _stream(stream), _rank(rank)))

    # ---- the cache as a whole

    def clear(self, *, keep_storage: bool = False, keep_shared: bool = False) -> None:
        """Forgets everything that is cached, removes what is stored, and ends the use of a shared store until resume_shared().

        It does not wait for the disk: while statistics()["erasing"] is 1, a kill may bring removed blocks back.

        Args:
            keep_storage: What is stored still means what its names say: it stays, and is a hit.
            keep_shared: The same of the shared store, which is used further on.
        """
        flags = (_KEEP_STORAGE if keep_storage else 0) | (_KEEP_SHARED if keep_shared else 0)
        with self._lock:
            check(lib.terrace_offload_clear(self._open(), flags))

    def resume_shared(self, weights_revision: str | None = None) -> None:
        """Uses the shared store again, for weights of this revision from now on. None: names that blocks had before the clear
        still mean the same."""
        with self._lock:
            check(
                lib.terrace_offload_resume_shared(
                    self._open(), None if weights_revision is None else weights_revision.encode()
                )
            )

    def resize_host(self, blocks: int, pool: int = 0) -> None:
        """Makes the host tier larger or smaller. Does not wait."""
        with self._lock:
            check(lib.terrace_offload_resize(self._open(), 1, in_range("blocks", blocks, c_uint32), _pool(pool)))

    def resize_storage(self, blocks: int, pool: int = 0) -> None:
        """Makes storage larger or smaller. Does not wait."""
        with self._lock:
            check(lib.terrace_offload_resize(self._open(), 2, in_range("blocks", blocks, c_uint32), _pool(pool)))

    def statistics(self) -> dict[str, int]:
        """Counts by the names of terrace_offload_statistics in terrace.h. Sizes are in bytes."""
        value = _library.OffloadStatistics()
        with self._lock:
            check(lib.terrace_offload_read_statistics(self._open(), byref(value)))
        return {field: getattr(value, field) for field, *_ in value._fields_ if field != "struct_size"}

    def record_changes(self) -> None:
        """Records changes of what is cached from now on. Take them regularly: every one is kept."""
        with self._lock:
            check(lib.terrace_offload_record_events(self._open()))

    def changes(self) -> list[Change]:
        """Returns the changes since the last call."""
        expiries = POINTER(c_int64)()
        count = c_size_t()
        with self._lock:
            changes = list(self._raw_changes(_CHANGE))
            check(lib.terrace_offload_event_expiries(self._open(), byref(expiries), byref(count)))
            ends = [expiries[i] / 1e9 for i in range(count.value)]
        return [
            Change(ChangeKind(kind), _source(source), key, None if parent == _NO_KEY else parent, tenant, depth, group, end)
            for (key, parent, tenant, kind, source, depth, group), end in zip(changes, ends, strict=True)
        ]

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
            timeout: In seconds; blocks that are not stored by then are given up.
            budget: The most bytes to write; 0: no limit.
            durable: The job also flushes storage before it ends.

        Raises:
            InvalidArgument: There is no such target, among others.
        """
        made = self._keys(keys) if keys is not None else None
        order = _library.WriteBack(
            scope=int(scope),
            target=int(target),
            not_durable=int(not durable),
            tenant=tenant,
            unused_for=nanoseconds(unused_for),
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
            check(lib.terrace_write_back_pause(self._open(), _job(job)))

    def resume_write_back(self, job: int) -> None:
        """The job goes on."""
        with self._lock:
            check(lib.terrace_write_back_resume(self._open(), _job(job)))

    def cancel_write_back(self, job: int) -> None:
        """Ends the job at once."""
        with self._lock:
            check(lib.terrace_write_back_cancel(self._open(), _job(job)))

    def write_back(self, job: int) -> WriteBackProgress:
        """The progress of a job.

        Raises:
            NotFound: There is no such job, or it ended long ago.
        """
        value = _library.WriteBackProgress()
        with self._lock:
            check(lib.terrace_write_back_read(self._open(), _job(job), byref(value)))
        counts = {field: getattr(value, field) for field, *_ in value._fields_ if field not in ("struct_size", "state")}
        return WriteBackProgress(state=WriteBackState(value.state), **counts)

    # ---- the end

    def close(self, timeout: float | None = None) -> None:
        """Ends all work, and lets go of all buffers. A second call does nothing.

        Raises:
            DeadlineExceeded: A disk or device has not answered within `timeout` seconds. The cache is closed all the same; the
                engine's memory must stay valid for the rest of the process.
        """
        with self._lock:
            if self._handle is None:
                return
            self._stop_serving()
            handle, self._handle = self._handle, None
            try:
                ended = lib.terrace_offload_destroy(handle, nanoseconds(timeout)) == 1
            finally:
                for end in self._waiters.values():
                    end.wake()
                self._wake_threads()
            if ended:
                self._let_go()
                self._kept.end()
        if not ended:
            raise error_of(_library.DEADLINE_EXCEEDED, "close: a disk or device has not answered in time")

    def __enter__(self) -> OffloadCache:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            try:
                self.close()
            except TerraceError:
                pass

    # ---- inside

    def _states(self, keys: Keys, pool: int = 0) -> bytes:
        """The numbers of the states."""
        states = ctypes.create_string_buffer(keys.count or 1)
        with self._lock:
            check(lib.terrace_offload_look_up(self._open(), _pool(pool, keys), keys._array, keys.count, states))
        return states.raw[: keys.count]

    def _keys(self, keys: Names) -> Keys:
        return keys if isinstance(keys, Keys) else keys_of_names(self.namespace, keys)

    def _host_slots(
        self, job: int, keys: Names, first: int, pool: int, tenant: int
    ) -> tuple[Keys, _library.Order, ctypes.Array[c_uint32]]:
        """An order that means host slots, with the keys that it points to, and a place for the slots."""
        made = self._keys(keys)
        _check_first(first, made)
        order = _library.Order(
            id=_job(job), keys=ctypes.addressof(made._array), count=made.count, first=first, pool=_pool(pool, made), tenant=tenant
        )
        return made, order, (c_uint32 * (made.count - first))()

    def _put_back(self, number: int, events: list[JobEvent]) -> None:
        if events:
            self._events[number] = events
        else:
            self._events.pop(number, None)

    def _has_news(self) -> bool:
        return bool(self._events)

    def _has_work(self) -> bool:
        return bool(self._waiters)

    def _let_go(self) -> None:
        for owners in self._jobs.values():
            _release_all(owners)
        _release_all(self._host_rows)

    def _collect(self) -> None:
        self._returned.collect(self._open(), self._take)
        self._attempts.settle()

    def _take(self, number: int, events: Any, count: int) -> None:
        told: dict[int, list[JobEvent]] = {}
        for e in events[:count]:
            event = JobEvent(JobEventKind(e.kind), e.job, e.block, e.status, _source(e.source), e.layers, e.moved, e.failed)
            told.setdefault(event.job if event.job in self._waiters else -1, []).append(event)
            if event.kind is JobEventKind.ENDED:
                _release_all(self._jobs.get(event.job, ()))
                self._jobs.pop(event.job, None)
        for job, its in told.items():
            if job < 0:
                self._events[number] = its
            else:
                self._waiters[job].take(number, its)
        self._arrivals += 1

    def _drop(self, job: int) -> None:
        """Forgets a job that the library does not have, and cancels one that it has: its events come as usual."""
        if job in self._jobs and lib.terrace_offload_cancel(self._open(), job) == _library.NOT_FOUND:
            _release_all(self._jobs[job])
            self._jobs.pop(job, None)

    def _raw_changes(self, fields: struct.Struct) -> Iterator[tuple[Any, ...]]:
        """The changes since the last call, unpacked."""
        raw = POINTER(_library.CacheEvent)()
        count = c_size_t()
        with self._lock:
            check(lib.terrace_offload_events(self._open(), byref(raw), byref(count)))
            return fields.iter_unpack(ctypes.string_at(raw, count.value * fields.size) if count.value else b"")

    def _order(
        self,
        call: Any,
        job: int,
        keys: Names,
        *,
        writes: bool,
        anywhere: bool = False,
        slots: Sequence[int] | None = None,
        memory: Sequence[Any] | None = None,
        first: int = 0,
        pool: int = 0,
        tenant: int = 0,
        after: int = 0,
        urgency: Urgency = Urgency.REQUEST,
        timeout: float | None = None,
        by_layer: bool = False,
        shared: bool = False,
    ) -> None:
        made = self._keys(keys)
        _check_first(first, made)
        if (slots is None) == (memory is None) and not anywhere:
            raise ValueError("exactly one of slots and memory must be given")
        moved = made.count - first
        given = len(slots) if slots is not None else len(memory or ())
        if given != moved and not anywhere:
            raise ValueError(f"the job moves {moved} blocks, and {given} slots or buffers are given")
        order = _library.Order(
            id=job,
            keys=ctypes.addressof(made._array),
            count=made.count,
            first=first,
            pool=_pool(pool, made),
            tenant=tenant,
            after=after,
            deadline=0 if timeout is None else max(1, nanoseconds(timeout)),
            urgency=int(urgency),
            by_layer=int(by_layer),
            shared=int(shared),
        )
        owners: list[Rows] = []
        try:
            if slots is not None:
                numbers = row_numbers("slots", slots)
                order.slots = numbers.buffer_info()[0]
            elif memory is not None:
                owners = _buffers(memory, self.block_bytes(pool), writes)
                addresses = (c_void_p * moved)(*(owner.address for owner in owners))
                order.memory = ctypes.addressof(addresses)
            with self._lock:
                handle = self._open()
                if job in self._jobs:
                    raise error_of(_library.DUPLICATE_REQUEST, f"job {job} is under way; choose another number")

                def enter() -> int:
                    self._jobs[job] = owners  # kept from before the call on
                    return int(call(handle, byref(order)))

                self._attempts.make(enter, lambda: self._drop(job))
        except BaseException:
            if self._jobs.get(job) is not owners:
                _release_all(owners)
            raise


class _End(Waiter):
    """Somebody who waits for the end of a job: its events, by the call that returned them."""

    __slots__ = ("ended", "events")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self.events: dict[int, list[JobEvent]] = {}
        self.ended = False

    def take(self, number: int, events: list[JobEvent]) -> None:
        if events:
            self.events[number] = events
        if any(event.kind is JobEventKind.ENDED for event in events):
            self.ended = True
            self.wake()

    def all(self) -> list[JobEvent]:
        return [event for each in self.events.values() for event in each]


def _job(job: int) -> int:
    return in_range("job", job, c_uint64)


def _pool(pool: int, keys: Keys | None = None) -> int:
    number = in_range("pool", pool, c_uint16)
    return number | _ALONE if keys is not None and keys.alone else number


def _check_first(first: int, keys: Keys) -> None:
    if not 0 <= first <= keys.count:
        raise ValueError(f"first is {first}, must be from 0 to the number of keys, {keys.count}")


def _rank(rank: int) -> int:
    return in_range("rank", rank, c_uint32)


def _stream(stream: int) -> int | None:
    return in_range("stream", stream, c_uint64) or None


def _release_all(owners: Iterable[Rows]) -> None:
    for owner in owners:
        owner.release()


def _source(number: int) -> State:
    """A source that this package does not know is slower than all that it knows."""
    return State(min(number, State.SHARED))


def _buffers(memory: Sequence[Any], block_bytes: int, writes: bool) -> list[Rows]:
    owners: list[Rows] = []
    try:
        for buffer in memory:
            rows = Rows(buffer, block_bytes)
            owners.append(rows)
            if rows.count != 1:
                raise ValueError(f"a buffer has {rows.count} blocks; a job takes one buffer for each block")
            if writes and rows.readonly:
                raise ValueError("a buffer is read-only")
    except BaseException:
        _release_all(owners)
        raise
    return owners


