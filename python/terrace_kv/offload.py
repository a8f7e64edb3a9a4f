"""A cache in host memory and storage, below an engine that owns the blocks of its devices."""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable, Mapping, Sequence
from ctypes import byref, c_int32, c_size_t, c_uint32, c_uint64, c_void_p
from typing import TYPE_CHECKING, Any

from . import _interface
from ._caches import AnyCache, job_number, pool_number, rank_number, release_all, stream_address
from ._keys import Keys, Names, keys_of_names, keys_of_prefix, keys_of_tokens
from ._library import check, error_of, lib, row_numbers
from ._memory import Rows
from ._offload_types import DeviceRegion, HostMemory, JobEvent, JobEventKind, LoadOrder, State, StoreOrder, Urgency
from ._polling import Returned, Waiter, nanoseconds
from ._structures import in_range

if TYPE_CHECKING:
    from typing_extensions import Unpack



class OffloadCache(AnyCache):
    """Keeps blocks in host memory and in storage, for an engine that allocates the blocks of its devices itself.

    The engine asks which blocks are cached (look_up, leading), and orders jobs that store blocks from slots or load blocks into
    slots. poll() returns an event for each block and one at the end of each job. Instead of slots, a job may name buffers of host
    memory of one block each.

    Methods take keys from token_keys() or prefix_keys(), or from keys() with key-order = "flat". Names in place of keys are
    converted with keys(names).

    Args:
        config: The configuration (docs/configuration.md), as TOML, or as a mapping of the same shape:
            {"write-policy": "none", "storage": {"where": "file:/mnt/kv"}, "pool": [{"host-blocks": 64}]}.
        regions: The engine's memory. If there is none, devices allocate the blocks.
        host_memory: Memory for the host tiers. A pool without an entry allocates its own memory.
        namespace: The meaning of the names of blocks: model, weights, layout, rank.
        log: Called with a level (0 info, 1 warning, 2 error) and a sentence, on a thread of the library.

    Raises:
        InvalidArgument: An option is wrong; the sentence says which, and what would be right.
        TerraceError: A part cannot be created, for example because there is no GPU.

    Threads: any. In a child process made by os.fork() the cache is closed, and raises Stopped; the cache of the parent continues.
    """

    def __init__(
        self,
        config: str | Mapping[str, Any],
        *,
        regions: Sequence[DeviceRegion] = (),
        host_memory: Sequence[HostMemory] = (),
        namespace: bytes = b"",
        log: Callable[[int, str], None] | None = None,
    ) -> None:
        self._make_once()
        self._jobs: dict[int, list[Rows]] = {}  # jobs that have not ended, and the buffers that they use
        self._events: dict[int, list[JobEvent]] = {}  # events for poll(), by the call that returned them
        self._returned = Returned(lib.terrace_offload_poll, _interface.OffloadEvent)
        self._waiters: dict[int, _End] = {}
        super().__init__(lib.terrace_offload_open, config, regions, host_memory, namespace, log, self._jobs)

    # ---- keys

    def keys(self, names: Sequence[bytes]) -> Keys:
        """Keys of blocks that stand alone (key-order = "flat"), or of a prefix whose names are chained hashes: each name also
        stands for the names before it (key-order = "prefix")."""
        return keys_of_names(self.namespace, names)

    def lone_keys(self, names: Sequence[bytes]) -> Keys:
        """Keys of blocks that each stand alone, with any key-order: blocks of a window or a state, which can be used without the
        blocks before them. A block is always named in the same way: either alone or in a prefix."""
        return keys_of_names(self.namespace, names, alone=True)

    def prefix_keys(self, names: Sequence[bytes]) -> Keys:
        """Keys of a prefix (key-order = "prefix"): each key also stands for all names before it."""
        return keys_of_prefix(self.namespace, names)

    def token_keys(self, tokens: Sequence[int], block_tokens: int) -> Keys:
        """Keys of the full blocks of a prompt (key-order = "prefix"), of `block_tokens` tokens each. Each key also stands for all
        tokens before its block. There are len(tokens) // block_tokens keys.

        Raises:
            ValueError: A token is not from 0 to 2**32 - 1, or block_tokens is less than 1.
        """
        return keys_of_tokens(self.namespace, tokens, block_tokens)

    # ---- what is there

    def look_up(self, keys: Names, pool: int = 0) -> list[State]:
        """Returns the State of each block. Has no side effect."""
        return [State(state) for state in self._states(self._keys(keys), pool)]

    def leading(self, keys: Names, pool: int = 0) -> int:
        """Returns the number of leading keys whose blocks all have a copy. Has no side effect."""
        made = self._keys(keys)
        leading = c_size_t()
        with self._lock:
            check(lib.terrace_offload_leading(self._open(), pool_number(pool, made), made._array, made.count, byref(leading)))
        return leading.value

    def find(self, keys: Names, pool: int = 0) -> tuple[int, bool]:
        """Returns the number of leading keys whose blocks all have a copy, here or in the shared store; and whether the shared
        store has been asked and has not answered yet. In this case call poll(), and then find() again with the same keys; the
        answer comes within the option `probe-deadline`. load() with `shared` loads the blocks that it has counted."""
        made = self._keys(keys)
        leading = c_size_t()
        looking = c_int32()
        with self._lock:
            check(lib.terrace_offload_find(self._open(), pool_number(pool, made), made._array, made.count, byref(leading), byref(looking)))
        return leading.value, bool(looking.value)

    # ---- jobs

    def load(self, job: int, keys: Names, **order: Unpack[LoadOrder]) -> None:
        """Loads blocks into slots or memory. Does not wait. The other arguments are those of store(), and:

        Args:
            by_layer: Report leading layers.
            shared: Read blocks that are neither here nor in storage from the shared store. A block that is missing, damaged or
                late fails.
        """
        self._order(lib.terrace_offload_load, job, keys, writes=True, **order)

    def store(self, job: int, keys: Names, **order: Unpack[StoreOrder]) -> None:
        """Stores blocks: copies them to the host tier, and from there to storage, according to the write policy. Does not wait.

        Args:
            job: A number that the caller chooses. No other job under way may have it.
            slots: Device slots, one for each moved block.
            memory: Instead of slots: buffers of one block each. They are kept until the end of the job.
            first: With prefix keys: the blocks from this index on are moved.
            pool, tenant: Numbers.
            after: A point of signal() that the device must reach before the copies.
            urgency: An Urgency.
            timeout: In seconds.
            beside: For lone_keys() in a cache in prefix order: the keys of a prefix. The blocks are of use only together with
                its last blocks, each with one of them, such as the chunks of a sliding window with those of full attention. Each
                stays in host memory as long as that block. Its own uses do not count.

        Raises:
            Busy: A limit is reached, or another job uses a slot.
        """
        self._order(lib.terrace_offload_store, job, keys, writes=False, **order)

    def cancel(self, job: int) -> None:
        """Ends the blocks of the job that have not begun to cross the link."""
        with self._lock:
            check(lib.terrace_offload_cancel(self._open(), job_number(job)))

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
        use: int = 0,
    ) -> None:
        """Brings blocks from storage, and if `shared` from the shared store, to the host tier. Does not wait; it is a job like
        load()."""
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
            use=use,
        )

    def pin(self, job: int, keys: Names, pool: int = 0) -> int:
        """Keeps host copies until unpin(), or until the end of the job with this number. Returns the number of these blocks."""
        made = self._keys(keys)
        pinned = c_uint32()
        with self._lock:
            check(lib.terrace_offload_pin(self._open(), job_number(job), pool_number(pool, made), made._array, made.count, byref(pinned)))
        return pinned.value

    def new_use(self) -> int:
        """A number for all orders of one request of the engine: with it, they are one use of their blocks. Otherwise a request that
        stores its prefix in pieces seems to use it again and again, and the eviction policy learns that it comes back."""
        use = c_uint64()
        with self._lock:
            check(lib.terrace_offload_new_use(self._open(), byref(use)))
        return use.value

    def touch(self, keys: Names, pool: int = 0) -> None:
        """Records a use of the blocks, so that they are evicted later; the first key is evicted last. Keys that are not cached
        are ignored."""
        made = self._keys(keys)
        with self._lock:
            check(lib.terrace_offload_touch(self._open(), pool_number(pool, made), made._array, made.count))

    def end_request(self, keys: Names, output_tokens: int, pool: int = 0) -> None:
        """Tells that the engine's last request that used this prefix has ended, after it wrote so many tokens. The default
        eviction policy learns from it which requests are continued. Optional. Keys that are not cached are ignored."""
        tokens = in_range("output_tokens", output_tokens, c_uint64)
        made = self._keys(keys)
        with self._lock:
            check(lib.terrace_offload_end_request(self._open(), pool_number(pool, made), made._array, made.count, tokens))

    def expect_use(self, keys: Names, seconds: float | None, pool: int = 0) -> None:
        """Tells after how many seconds the prefix is expected to be used next, for example after the call of a tool. None: never,
        because the session has ended. It counts for the blocks that belong to this prefix alone, until they are used again.
        Keys that are not cached are ignored."""
        made = self._keys(keys)
        with self._lock:
            check(lib.terrace_offload_expect_use(self._open(), pool_number(pool, made), made._array, made.count, nanoseconds(seconds, "seconds")))

    # ---- blocks that the engine moves itself

    def pin_slots(self, job: int, keys: Names, *, first: int = 0, pool: int = 0, use: int = 0) -> list[int]:
        """The same as pin(), and records a use of the blocks (`use`: new_use()). Returns the slot of the host tier that holds each
        block from index `first` on, or NO_SLOT. The engine may read these slots until it calls unpin()."""
        _kept, order, slots = self._host_slots(job, keys, first, pool, 0, use)
        with self._lock:
            check(lib.terrace_offload_pin_slots(self._open(), byref(order), slots))
        return slots[:]

    def reserve(
        self,
        job: int,
        keys: Names,
        *,
        first: int = 0,
        pool: int = 0,
        tenant: int = 0,
        beside: Names | None = None,
        use: int = 0,
    ) -> list[int]:
        """Reserves slots of the host tier. The engine fills them itself, and then calls publish(). Returns the slot of each block
        from index `first` on, or NO_SLOT: the block is there already or is being brought, or there is no room. If all are
        NO_SLOT, there is nothing to publish. `beside`: the same as for store(); `use`: new_use().

        Raises:
            Busy: Too much is reserved.
        """
        _kept, order, slots = self._host_slots(job, keys, first, pool, tenant, use)
        beside_keys = None if beside is None else self._keys(beside)
        if beside_keys is not None:
            order.beside, order.beside_count = ctypes.addressof(beside_keys._array), beside_keys.count
        reserved = c_uint32()
        with self._lock:
            check(lib.terrace_offload_reserve(self._open(), byref(order), slots, byref(reserved)))
        return slots[:]

    def publish(self, job: int, filled: bool = True) -> None:
        """Ends a reservation. If `filled`, the slots hold their blocks; otherwise the slots become free.

        Raises:
            NotFound: There is no such reservation.
        """
        with self._lock:
            check(lib.terrace_offload_publish(self._open(), job_number(job), int(filled)))

    def unpin(self, job: int) -> None:
        """Ends a pin."""
        with self._lock:
            check(lib.terrace_offload_unpin(self._open(), job_number(job)))

    def poll(self) -> list[JobEvent]:
        """Collects ended work, starts new work, and returns the events since the last call, except those of jobs for which
        ended() waits."""
        with self._lock:
            self._poll()
            events, self._events = self._events, {}
        return [event for number in sorted(events) for event in events[number]]

    async def ended(self, job: int) -> list[JobEvent]:
        """Waits on the running event loop for the end of a job under way, and returns its events since the last poll(). The last
        one is the end of the job. During the wait, poll() need not be called. Only one loop at a time can serve a cache. If the
        caller is cancelled, the job continues: cancel() ends it.

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
                    raise error_of(_interface.NOT_FOUND, f"ended: {why}")
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
            with self._lock:  # poll() returns its events
                for number, events in end.events.items():
                    self._put_back(number, self._events.get(number, []) + events)
            raise
        finally:
            with self._lock:
                if self._waiters.get(job) is end:
                    del self._waiters[job]

    # ---- streams of the engine

    def await_stream(self, job: int, stream: int = 0, layers: int = 0xFFFF_FFFF, rank: int = 0) -> None:
        """Makes the stream wait on the device until the leading layers of the job's blocks have been copied.

        Raises:
            Busy: Some of the copies are not on the device yet. Try again after the next poll().
        """
        with self._lock:
            leading = in_range("layers", layers, c_uint32)
            check(lib.terrace_offload_await(self._open(), job_number(job), leading, stream_address(stream), rank_number(rank)))

    # ---- the cache as a whole

    def statistics(self) -> dict[str, int]:
        """Counts by the names of terrace_offload_statistics in terrace.h. Sizes are in bytes."""
        return self._read(lib.terrace_offload_read_statistics, _interface.OffloadStatistics())

    # ---- inside

    def _states(self, keys: Keys, pool: int = 0) -> bytes:
        """Returns the states as numbers."""
        states = ctypes.create_string_buffer(keys.count or 1)
        with self._lock:
            check(lib.terrace_offload_look_up(self._open(), pool_number(pool, keys), keys._array, keys.count, states))
        return states.raw[: keys.count]

    def _host_slots(
        self, job: int, keys: Names, first: int, pool: int, tenant: int, use: int
    ) -> tuple[Keys, _interface.Order, ctypes.Array[c_uint32]]:
        """Makes an order for host slots, with the keys that it points to, and an array for the slots."""
        made = self._keys(keys)
        _check_first(first, made)
        order = _interface.Order(
            id=job_number(job),
            keys=ctypes.addressof(made._array),
            count=made.count,
            first=first,
            pool=pool_number(pool, made),
            tenant=tenant,
            use=in_range("use", use, c_uint64),
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

    def _wake_waiters(self) -> None:
        for end in self._waiters.values():
            end.wake()

    def _let_go(self) -> None:
        for owners in self._jobs.values():
            release_all(owners)
        release_all(self._host_rows)

    def _collect(self) -> None:
        self._returned.collect(self._open(), self._take)
        self._attempts.settle()

    def _take(self, number: int, events: Any, count: int) -> None:
        told: dict[int, list[JobEvent]] = {}
        for e in events[:count]:
            event = JobEvent(JobEventKind(e.kind), e.job, e.block, e.status, self._source_of(e.source), e.layers, e.moved, e.failed)
            told.setdefault(event.job if event.job in self._waiters else -1, []).append(event)
            if event.kind is JobEventKind.ENDED:
                release_all(self._jobs.get(event.job, ()))
                self._jobs.pop(event.job, None)
        for job, its in told.items():
            if job < 0:
                self._events[number] = its
            else:
                self._waiters[job].take(number, its)
        self._arrivals += 1

    def _drop(self, job: int) -> None:
        """Removes a job that the library does not have, and cancels a job that it has; the events of that job come as usual."""
        if job in self._jobs and lib.terrace_offload_cancel(self._open(), job) == _interface.NOT_FOUND:
            release_all(self._jobs[job])
            self._jobs.pop(job, None)

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
        beside: Names | None = None,
        use: int = 0,
    ) -> None:
        made = self._keys(keys)
        _check_first(first, made)
        beside_keys = None if beside is None else self._keys(beside)
        if (slots is None) == (memory is None) and not anywhere:
            raise ValueError("exactly one of slots and memory must be given")
        moved = made.count - first
        given = len(slots) if slots is not None else len(memory or ())
        if given != moved and not anywhere:
            raise ValueError(f"the job moves {moved} blocks, and {given} slots or buffers are given")
        order = _interface.Order(
            id=job,
            keys=ctypes.addressof(made._array),
            count=made.count,
            first=first,
            pool=pool_number(pool, made),
            tenant=tenant,
            after=after,
            deadline=0 if timeout is None else max(1, nanoseconds(timeout)),
            urgency=int(urgency),
            by_layer=int(by_layer),
            shared=int(shared),
            beside=None if beside_keys is None else ctypes.addressof(beside_keys._array),
            beside_count=0 if beside_keys is None else beside_keys.count,
            use=in_range("use", use, c_uint64),
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
                    raise error_of(_interface.DUPLICATE_REQUEST, f"job {job} is under way; choose another number")

                def enter() -> int:
                    self._jobs[job] = owners  # assigned before the call
                    return int(call(handle, byref(order)))

                self._attempts.make(enter, lambda: self._drop(job))
        except BaseException:
            if self._jobs.get(job) is not owners:
                release_all(owners)
            raise


class _End(Waiter):
    """A waiter for the end of a job: the events of the job, by the call that returned them."""

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


def _check_first(first: int, keys: Keys) -> None:
    if not 0 <= first <= keys.count:
        raise ValueError(f"first is {first}, must be from 0 to the number of keys, {keys.count}")


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
        release_all(owners)
        raise
    return owners
