"""A cache that owns the blocks of the engine's devices, host memory and storage: the block manager of an engine."""

from __future__ import annotations

import asyncio
import ctypes
import itertools
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from ctypes import POINTER, byref, c_int32, c_size_t, c_uint8, c_uint16, c_uint32, c_uint64
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType, TracebackType
from typing import Any

from . import _interface
from ._caches import AnyCache, pool_number, rank_number, regions_of, release_all, stream_address
from ._keys import KEY_BYTES, Keys
from ._library import check, error_of, last_error, lib, row_numbers, status_text
from ._offload_types import NO_SLOT, DeviceRegion, HostMemory
from ._polling import LONGEST_WAIT, Returned, Waiter, end_of, nanoseconds
from ._structures import Uncopied, in_range
from .chain import Chain

_ALL_LAYERS = 0xFFFF_FFFF
_HITS_MAX, _NEW_UNITS_MAX, _DROP_LAST_HIT, _PREEMPTED, _BY_LAYER = 1, 2, 4, 8, 16  # TERRACE_ACQUIRE_
_USED_UNTIL, _OUTPUT_TOKENS, _NEXT_USE = 1, 2, 4  # TERRACE_RELEASE_
_IDLE_ONLY = 0x800  # TERRACE_CLEAR_


class Source(IntEnum):
    """Where a block of a Cache is."""

    DEVICE = 1
    HOST = 2
    STORAGE = 3
    SHARED = 4


class RequestState(IntEnum):
    """The state of a request."""

    WAITING = 1
    """For slots, for loads, or for the shared store."""
    FAILED = 2
    """It must be released."""
    READY = 3


@dataclass(frozen=True)
class Found:
    """Blocks of a prefix, by the source in which they are."""

    device: int
    host: int
    storage: int
    shared: int

    @property
    def total(self) -> int:
        return self.device + self.host + self.storage + self.shared


@dataclass(frozen=True)
class Place:
    """The copies of a block: its slots on the device and in host memory, and whether storage has it."""

    device: int | None
    host: int | None
    storage: bool
    in_use: bool
    """A request, a pin or a transfer holds it."""


def _place(at: _interface.Place) -> Place:
    device, host = (None if slot == NO_SLOT else slot for slot in (at.device, at.host))
    return Place(device, host, bool(at.storage), bool(at.in_use))


@dataclass(frozen=True)
class RequestInfo:
    """A request: its state, and where its blocks with keys were found. Numbers of blocks, in hash units."""

    state: RequestState
    units: int
    device: int
    host: int
    storage: int
    shared: int
    external: int
    miss: int
    """To be computed."""
    joined: int
    """Of those found: blocks that another request was loading."""
    committed_units: int
    """Leading blocks that are shared with other requests; 0 before the request is ready."""
    waited: float
    """Seconds until the request was ready, or so far."""
    waited_looking: float
    """Of this time, the waits that have ended. For the answer of the shared store, or for a prefetch."""
    waited_room: float
    """For slots."""
    waited_host: float
    """From then on, until the last block from host memory was on the device. Loads from several sources run at the same time."""
    waited_storage: float
    """The same from storage."""
    waited_shared: float
    """The same from the shared store."""


@dataclass(frozen=True)
class RequestEvent:
    """A report of a request that waits."""

    request: int
    status: int
    """At the end of the wait: 0: the request is ready; otherwise it has failed, and must be released."""
    layers: int
    """If not 0, the wait continues, and so many leading layers have arrived."""


class Request(Uncopied):
    """Holds the blocks of one request until release(), until the end of a `with`, or until nobody has this object any more. Made
    by Cache.acquire()."""

    __slots__ = ("_cache", "_mark", "chain", "id")

    def __init__(self, cache: Cache, number: int, chain: Chain | None) -> None:
        self._cache = cache
        self.id = number
        self.chain = chain
        self._mark = object()  # unlike the id, never that of another request

    @property
    def _number(self) -> int:
        """The id, if it is still that of this request."""
        if self.released and not self._cache.closed:
            raise error_of(_interface.UNKNOWN_REQUEST, f"request {self.id} was released")
        return self.id

    @property
    def info(self) -> RequestInfo:
        """The state of the request, and where its blocks were found."""
        return self._cache._info(self._number)

    def wait(self, timeout: float | None = LONGEST_WAIT) -> RequestInfo:
        """Waits until the request is ready.

        Raises:
            TerraceError: It has failed.
            DeadlineExceeded: It still waits after `timeout` seconds; None: it waits without end.
        """
        return self._cache._wait_for(self._number, timeout)

    async def ready(self) -> RequestInfo:
        """The same on the running event loop."""
        return await self._cache._ready(self._number)

    def block_table(self, group: int = 0) -> Any:
        """The slots of the request's blocks, as a numpy array of int32. Cache.step() writes them into the tables of an engine
        without this copy."""
        return self._cache._block_table(self._number, group)

    def slots_from(self, block: int, group: int = 0) -> list[int]:
        """The slots of the request's blocks from this one on: what extend() has added."""
        return self._cache._slots_from(self._number, group, block)

    def hit_sources(self) -> list[Source]:
        """The source of each hit, from the first block on."""
        return self._cache._hit_sources(self._number)

    def extend(self, units: int) -> None:
        """Adds blocks at the end of the block tables.

        Raises:
            Busy: There is no room.
        """
        self._cache._call(lib.terrace_cache_extend, self._number, in_range("units", units, c_uint32))

    def commit(self, keys: Keys, written: int = 0) -> None:
        """Shares the first len(keys) blocks, which hold the data of their keys when the devices reach the point `written`."""
        point = in_range("written", written, c_uint64)
        self._cache._call(lib.terrace_cache_commit, self._number, keys._array, keys.count, point, None, None)

    def advance(self, tokens: int, last_use: int = 0) -> None:
        """The first `tokens` tokens are computed: drops the blocks to which no later token attends."""
        point = in_range("last_use", last_use, c_uint64)
        self._cache._call(lib.terrace_cache_advance, self._number, in_range("tokens", tokens, c_uint64), point)

    def await_stream(self, stream: int = 0, layers: int = _ALL_LAYERS, rank: int = 0) -> None:
        """Makes the stream wait on the device until the leading layers of all hits have arrived.

        Raises:
            Busy: Some copies are not on the device yet. Try again after the next poll().
        """
        leading = in_range("layers", layers, c_uint32)
        self._cache._call(lib.terrace_cache_await, self._number, leading, stream_address(stream), rank_number(rank))

    def serves(self, group: int) -> bool:
        """True if the group can serve the hits of the request. Only optional groups may be unable to."""
        state = c_uint32()
        self._cache._call(lib.terrace_cache_group_state, self._number, pool_number(group), byref(state))
        return state.value == _interface.GROUP_SERVES

    def release(
        self,
        last_use: int | None = None,
        *,
        output_tokens: int | None = None,
        returns_in: float | None = None,
        ended: bool = False,
    ) -> None:
        """Ends the request. A second call does nothing.

        Args:
            last_use: Work up to this point of signal() may still touch the blocks; 0: no work does. None: the slots are not used
                until the devices have finished all work that they were given, which is safe, and slower.
            output_tokens: Tokens that it has written. The eviction policy learns from it which requests are continued.
            returns_in: After so many seconds, a request is expected to continue it, such as after the call of a tool.
            ended: True if nobody continues it.
        """
        if ended and returns_in is not None:
            raise ValueError("returns_in is given, and the session has ended; give one of the two")
        how = _interface.Release()
        if last_use is not None:
            how.flags |= _USED_UNTIL
            how.last_use = in_range("last_use", last_use, c_uint64)
        if output_tokens is not None:
            how.flags |= _OUTPUT_TOKENS
            how.output_tokens = in_range("output_tokens", output_tokens, c_uint64)
        if ended or returns_in is not None:
            how.flags |= _NEXT_USE
            how.next_use = nanoseconds(returns_in, "returns_in")
        self._cache._release(self, how)

    @property
    def released(self) -> bool:
        """True after release(), and after the end of the cache."""
        return self._cache._live.get(self.id) is not self._mark

    def __del__(self) -> None:
        if hasattr(self, "_mark") and not self.released:  # in any thread, at any place of it
            self._cache._left.append(self.id)

    def __enter__(self) -> Request:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()


class Step:
    """The arrays of Cache.step(): one entry for each running request. Fill the first `count` entries of `requests`, `computed`
    and, if they are used, of the others. The arrays belong to numpy, and are used in each step again. The library has their
    addresses, so they cannot be replaced or resized.

    Args:
        rows: The most requests of a step.
        table_width: The most blocks of a request.
        groups: The groups whose block tables are written.
        tokens_max: The most new tokens of a step.

    Attributes:
        requests: uint64: the ids of the requests (Request.id).
        computed: uint64: leading tokens of the sequence whose KV is computed at `written`.
        needed: uint64: tokens for which the step needs slots, lookahead included; 0: as many as the sequence has.
        token_counts: uint32: number of tokens that the sequence has got since the last step.
        tokens: uint32: these tokens, of all requests one after another.
        rows: uint32: the row of the request in the tables. At first, request i has row i.
        tables: By group: int32, one row for each request. The call appends the entries that a row lacks.
        lengths: By group: uint32, entries of each row. Set it to 0 when a row gets another request.
        statuses: int32: what became of each request; 0: it was served.
        sentence: Why the last request of a step that was not served was not.
    """

    def __init__(self, rows: int, table_width: int, groups: Sequence[int] = (0,), tokens_max: int | None = None) -> None:
        import numpy

        def zeros(shape: int | tuple[int, int], kind: type) -> Any:
            return numpy.zeros(shape, kind)[:]  # numpy resizes no array that does not own its memory

        self.requests = zeros(rows, numpy.uint64)
        self.computed = zeros(rows, numpy.uint64)
        self.needed = zeros(rows, numpy.uint64)
        self.token_counts = zeros(rows, numpy.uint32)
        self.tokens = zeros(rows if tokens_max is None else tokens_max, numpy.uint32)
        self.rows = numpy.arange(rows, dtype=numpy.uint32)[:]
        self.statuses = zeros(rows, numpy.int32)
        self.tables = MappingProxyType({group: zeros((rows, table_width), numpy.int32) for group in groups})
        self.lengths = MappingProxyType({group: zeros(rows, numpy.uint32) for group in groups})
        self.sentence = ""
        self._row_count = rows  # an array may get another shape
        self._owners = zeros(rows, numpy.uint64)
        self._tables = (_interface.Table * len(groups))(
            *(
                _interface.Table(
                    rows=_address(self.tables[group]),
                    stride=table_width,
                    lengths=_address(self.lengths[group]),
                    group=group,
                    row_count=rows,
                )
                for group in groups
            )
        )
        self._given = _interface.Step(
            requests=_address(self.requests),
            token_counts=_address(self.token_counts),
            tokens=_address(self.tokens),
            token_capacity=len(self.tokens),
            computed_tokens=_address(self.computed),
            needed_tokens=_address(self.needed),
            rows=_address(self.rows),
            tables=self._tables,
            table_count=len(groups),
            statuses=ctypes.cast(_address(self.statuses), POINTER(c_int32)),
            row_owners=_address(self._owners),
        )
        self._reference = byref(self._given)

    def __setattr__(self, name: str, value: Any) -> None:
        if "_reference" in self.__dict__ and value is not self.__dict__.get(name):  # += assigns the same array
            raise AttributeError(f"{name} cannot be replaced, because the library has the address of its array; write {name}[:] = ...")
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{name} cannot be deleted, because the library has the address of its array")

    def failures(self, count: int) -> dict[int, str]:
        """By index of a request that was not served: why, in a few words."""
        return {i: status_text(status) for i, status in enumerate(self.statuses[:count].tolist()) if status != _interface.OK}


class Cache(AnyCache):
    """Decides which request holds which blocks, and where each block lives: on the device, in host memory, in storage, or in a
    shared store. It owns the slots of the device, and moves the blocks.

        root = Root(model_digest=namespace("engine", {...}))
        with cache.acquire(Chain(root, 16, prompt)) as request:
            info = request.wait()             # info.miss blocks are to be computed, in the slots of request.block_table()
            ...compute the prompt...
            request.commit(request.chain.keys)

    An engine with a step loop calls step() for all running requests, launches the step, and calls poll().

    Args:
        config: The configuration (docs/configuration.md), as TOML, or as a mapping of the same shape:
            {"pool": [{"block-bytes": "2MiB", "device-blocks": 1000, "host-blocks": 4000}]}.
        regions: The engine's memory (DeviceRegion.of). If there is none, devices allocate the blocks.
        host_memory: Memory for the host tiers. A pool without an entry allocates its own memory.
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
        log: Callable[[int, str], None] | None = None,
    ) -> None:
        self._make_once()
        self._live: dict[int, object] = {}  # by id, the mark of the request
        self._left: deque[int] = deque()  # requests that nobody has any more
        self._events: dict[int, dict[tuple[int, int], RequestEvent]] = {}  # for poll(), by request, and by call and place
        self._returned = Returned(lib.terrace_cache_poll, _interface.RequestEvent)
        self._failed: dict[int, int] = {}  # the status of requests that have failed
        self._waiters: dict[int, Waiter] = {}
        self._numbers = itertools.count(1)
        self._counts = _interface.CacheStatistics()
        super().__init__(lib.terrace_cache_open, config, regions, host_memory, b"", log, None)

    # ---- requests

    def match(self, keys: Keys | Chain, farthest: Source | None = None) -> Found:
        """Returns how many leading blocks are cached in `farthest` or a nearer source. Has no side effect, and does not ask the
        shared store."""
        made = keys.keys if isinstance(keys, Chain) else keys
        found = _interface.Found()
        with self._lock:
            check(lib.terrace_cache_match(self._open(), made._array, made.count, _farthest(farthest), byref(found)))
        return Found(found.device, found.host, found.storage, found.shared)

    def find_blocks(self, keys: Keys | Chain, group: int = 0) -> list[Place]:
        """Tells where the blocks of a prefix are: an entry for each block of the group that the keys fill. Holds nothing, so the
        slots are true until the next call only; a request holds its blocks."""
        made = keys.keys if isinstance(keys, Chain) else keys
        places, count = POINTER(_interface.Place)(), c_size_t()
        with self._lock:
            check(
                lib.terrace_cache_find_blocks(
                    self._open(), made._array, made.count, in_range("group", group, c_uint16), byref(places), byref(count)
                )
            )
            return [_place(at) for at in places[: count.value]]

    def find_block(self, key: bytes, group: int = 0) -> Place:
        """Tells where one block is, by the 32 bytes of its key alone (Keys, Change). Visits the whole tree."""
        if len(key) != KEY_BYTES:
            raise ValueError(f"the key has {len(key)} bytes, must have {KEY_BYTES}")
        place = _interface.Place()
        with self._lock:
            check(lib.terrace_cache_find_block(self._open(), key, pool_number(group), byref(place)))
        return _place(place)

    def blocks_for(self, tokens: int, group: int = 0) -> int:
        """Number of blocks of a group for so many tokens, of which the last block may be partly filled; for cross attention,
        tokens of the encoder. Without groups in the configuration, give hash units in place of tokens. usage() tells whether so
        many have room."""
        blocks = c_uint64()
        number = in_range("tokens", tokens, c_uint64)
        with self._lock:
            check(lib.terrace_cache_blocks_for(self._open(), number, pool_number(group), byref(blocks)))
        return blocks.value

    def acquire(
        self,
        prompt: Chain | Keys,
        *,
        request: int | None = None,
        units: int = 0,
        hit_units_max: int | None = None,
        new_units_max: int | None = None,
        room_left: int = 0,
        external_units: int = 0,
        encoder_tokens: int = 0,
        drop_last_hit: bool = False,
        farthest: Source | None = None,
        preempted: bool = False,
        by_layer: bool = False,
        tenant: int = 0,
        timeout: float | None = None,
    ) -> Request:
        """Gives a request everything that it needs, or fails. It is ready, or it waits (Request.wait, Request.ready, poll).

        Args:
            prompt: The chain of its tokens. step() appends to it; no other live request may have it. At least the last token is
                not taken from the cache, because the engine needs its result. Keys instead: the caller extends and commits.
            request: Its id. None: the cache chooses one.
            units: All blocks that it needs now, lookahead included; 0: those of the prompt.
            hit_units_max: The most blocks from the cache.
            new_units_max: The most blocks to allocate now in addition to cached ones: the first chunk of a prompt.
            room_left: Device slots of each pool that must be left, free or evictable, when the request has its own: for the
                rest of its prompt, or in reserve.
            external_units: Blocks after the cached ones that are filled from elsewhere.
            encoder_tokens: For groups with cross attention.
            drop_last_hit: Uses one cached block less than was found, for speculative decoding with a draft model.
            farthest: The farthest source from which blocks are loaded.
            preempted: The request was preempted before.
            by_layer: Events report leading layers that have arrived.
            tenant: For quotas and statistics; 0: that of the chain.
            timeout: For all waits, in seconds.

        Raises:
            Busy: There is no room until something in use is released.
            InvalidArgument: It never fits, among others.
        """
        number = self._free_number() if request is None else in_range("request", request, c_uint64)
        given = _interface.Acquire()
        given.request = number
        chain = prompt if isinstance(prompt, Chain) else None
        if chain is not None:
            given.chain = chain._handle
        else:
            given.keys, given.count = ctypes.addressof(prompt._array), prompt.count  # type: ignore[union-attr]
        flags = _DROP_LAST_HIT * drop_last_hit + _PREEMPTED * preempted + _BY_LAYER * by_layer
        if units:
            given.units = in_range("units", units, c_uint32)
        if hit_units_max is not None:
            flags |= _HITS_MAX
            given.hit_units_max = in_range("hit_units_max", hit_units_max, c_uint32)
        if new_units_max is not None:
            flags |= _NEW_UNITS_MAX
            given.new_units_max = in_range("new_units_max", new_units_max, c_uint32)
        if room_left:
            given.room_left = in_range("room_left", room_left, c_uint32)
        if external_units:
            given.external_units = in_range("external_units", external_units, c_uint32)
        if encoder_tokens:
            given.encoder_tokens = in_range("encoder_tokens", encoder_tokens, c_uint32)
        given.farthest = _farthest(farthest)
        if tenant:
            given.tenant = in_range("tenant", tenant, c_uint64)
        if timeout is not None:
            given.deadline = max(1, nanoseconds(timeout))
        given.flags = flags
        made = Request(self, number, chain)
        with self._lock:
            handle = self._open()
            self._settle()
            if number in self._live:
                raise error_of(_interface.DUPLICATE_REQUEST, f"request {number} is alive; choose another number")

            def enter() -> int:
                self._live[number] = made._mark  # assigned before the call
                return int(lib.terrace_cache_acquire(handle, byref(given), None))

            self._attempts.make(enter, lambda: self._drop(number))
        return made

    def step(self, step: Step, count: int, *, written: int = 0, advance: bool = False) -> bool:
        """For the first `count` requests: appends their new tokens, shares the blocks that are computed, drops the blocks to
        which no later token attends (`advance`), adds slots, and writes the block tables. Call it before a step is launched, for
        requests that are ready.

        Returns:
            True if all requests were served. Otherwise Step.statuses says which were not: one without room has its tokens
            appended and its blocks shared; preempt a request, set its token_counts to 0, and call again.

        Raises:
            InvalidArgument: The arrays are wrong as a whole.
        """
        if not 0 <= count <= step._row_count:
            raise ValueError(f"count is {count}, must be from 0 to the rows of the step, {step._row_count}")
        given = step._given
        given.count = count
        given.written = in_range("written", written, c_uint64)
        given.advance = advance
        if count:
            step.statuses[0] = -1  # stays if the call is refused as a whole
        with self._lock:
            status = lib.terrace_cache_step(self._open(), step._reference)
        if status == _interface.OK:
            return True
        if count == 0 or step.statuses[0] == -1:
            check(status)
        step.__dict__["sentence"] = last_error()
        return False

    def end_step(self) -> None:
        """Starts the copies that the calls of this step have requested. Call it before the step is launched."""
        with self._lock:
            check(lib.terrace_cache_end_step(self._open()))

    def poll(self) -> list[RequestEvent]:
        """Collects ended work, starts new work, and returns the events since the last call, except those of requests that have
        ended, or whose wait() or ready() has."""
        with self._lock:
            self._poll()
            if not self._events:
                return []
            events, self._events = self._events, {}
        told = {at: event for each in events.values() for at, event in each.items()}
        return [told[at] for at in sorted(told)]

    def compute_is_idle(self) -> None:
        """The devices have finished all work that they were given: slots whose release has named no last use are free."""
        with self._lock:
            check(lib.terrace_cache_compute_is_idle(self._open()))

    def common_prefix(self, group: int = 0) -> int:
        """Number of leading blocks of the group that all ready requests share, for cascade attention."""
        blocks = c_uint32()
        with self._lock:
            check(lib.terrace_cache_common_prefix(self._open(), pool_number(group), byref(blocks)))
        return blocks.value

    # ---- blocks of future requests, and blocks that leave

    def prefetch(
        self, keys: Keys | Chain, *, farthest: Source | None = None, tenant: int = 0, timeout: float | None = None
    ) -> int:
        """Copies blocks of a future request from storage and the shared store to host memory. Returns a number.

        Raises:
            Busy: Too many prefetches run.
        """
        made = keys.keys if isinstance(keys, Chain) else keys
        deadline = 0 if timeout is None else max(1, nanoseconds(timeout))
        number = c_uint64()
        with self._lock:
            check(
                lib.terrace_cache_prefetch(
                    self._open(),
                    made._array,
                    made.count,
                    _farthest(farthest),
                    in_range("tenant", tenant, c_uint64),
                    deadline,
                    byref(number),
                )
            )
        return number.value

    def cancel_prefetch(self, prefetch: int) -> None:
        """Ends a prefetch whose request will not come. Blocks that have arrived stay."""
        with self._lock:
            check(lib.terrace_cache_cancel_prefetch(self._open(), in_range("prefetch", prefetch, c_uint64)))

    def prefetching(self, prefetch: int) -> bool:
        """True while the prefetch brings blocks or waits for an answer."""
        running = c_int32()
        with self._lock:
            check(lib.terrace_cache_prefetching(self._open(), in_range("prefetch", prefetch, c_uint64), byref(running)))
        return bool(running.value)

    def expect_use(self, keys: Keys | Chain, seconds: float | None) -> None:
        """Tells after how many seconds the prefix is expected to be used next. None: never, because the session has ended. It
        counts for the blocks that belong to this prefix alone, until they are used again.

        Raises:
            NotFound: No block of it is cached.
        """
        made = keys.keys if isinstance(keys, Chain) else keys
        with self._lock:
            check(lib.terrace_cache_expect_use(self._open(), made._array, made.count, nanoseconds(seconds, "seconds")))

    def drop(self, keys: Keys) -> int:
        """Drops the device and host copies of the prefix from its end, up to the first block that is held. Returns the number of
        device blocks that became free.

        Raises:
            NotFound: No block of it is cached.
            Busy: The last cached block of it is held.
        """
        freed = c_uint32()
        with self._lock:
            check(lib.terrace_cache_drop(self._open(), keys._array, keys.count, byref(freed)))
        return freed.value

    def evict(self, slots: Sequence[int], pool: int = 0) -> tuple[int, list[int]]:
        """Evicts the blocks in these device slots, and all that follow them, from every tier: their bytes have turned out to be
        wrong. Returns the number of blocks, and the slots whose blocks are held, and stay."""
        numbers = row_numbers("slots", slots)
        evicted, count = c_uint32(), c_size_t()
        in_use = POINTER(c_uint32)()
        with self._lock:
            check(
                lib.terrace_cache_evict(
                    self._open(),
                    numbers.buffer_info()[0],
                    len(numbers),
                    pool_number(pool),
                    byref(evicted),
                    byref(in_use),
                    byref(count),
                )
            )
            return evicted.value, in_use[: count.value]

    # ---- the cache as a whole

    def reset(
        self, *, keep_storage: bool = False, keep_shared: bool = False, wait: bool = False, release_host: bool = False
    ) -> None:
        """The same as clear(), but only if no request is alive: with `wait`, before the engine releases its GPU memory.

        Raises:
            Busy: A request is alive.
        """
        self._clear(_IDLE_ONLY, keep_storage, keep_shared, wait, release_host)

    def relocate(self, regions: Sequence[DeviceRegion]) -> None:
        """The engine has put its memory elsewhere, for example after it slept. No block may be cached on the device: call
        reset(wait=True) before, and resume() after it. Ranks without a region stay."""
        with self._lock:
            check(lib.terrace_cache_relocate(self._open(), regions_of(regions), len(regions)))

    def resize_device(self, blocks: int, pool: int = 0) -> None:
        """Makes the device tier larger, up to device-blocks-max, or smaller. Does not wait."""
        with self._lock:
            check(lib.terrace_cache_resize(self._open(), 0, in_range("blocks", blocks, c_uint32), pool_number(pool)))

    def device_room(self) -> int:
        """Number of device blocks of the first pool that are free, or become free by eviction. Cheaper than statistics()."""
        with self._lock:
            check(lib.terrace_cache_read_statistics(self._open(), byref(self._counts)))
        return int(self._counts.device_free + self._counts.device_evictable)

    def statistics(self) -> dict[str, int]:
        """Counts by the names of terrace_cache_statistics in terrace.h. Sizes are in bytes."""
        return self._read(lib.terrace_cache_read_statistics, _interface.CacheStatistics())

    # ---- inside

    @staticmethod
    def _source_of(number: int) -> Source:
        return Source(min(number, Source.SHARED))

    def _free_number(self) -> int:
        """An id that no live request has, also none that a caller has chosen."""
        return next(number for number in self._numbers if number not in self._live)

    def _call(self, function: Any, request: int, *arguments: Any) -> None:
        with self._lock:
            check(function(self._open(), request, *arguments))

    def _info(self, request: int) -> RequestInfo:
        value = _interface.Request()
        self._call(lib.terrace_cache_read_request, request, byref(value))
        numbers: dict[str, Any] = {field: getattr(value, field) for field in RequestInfo.__dataclass_fields__}
        numbers["state"] = RequestState(value.state)
        return RequestInfo(**{field: n / 1e9 if field.startswith("waited") else n for field, n in numbers.items()})

    def _ended_wait(self, request: int) -> RequestInfo | None:
        """The request, if it does not wait any more. Raises its error."""
        info = self._info(request)
        if info.state is RequestState.WAITING:
            return None
        self._events.pop(request, None)
        if info.state is RequestState.FAILED:
            status = self._failed.get(request, _interface.LOAD_FAILED)
            raise error_of(status, f"request {request} has failed: {status_text(status)}")
        return info

    def _wait_for(self, request: int, timeout: float | None) -> RequestInfo:
        found: list[RequestInfo] = []

        def done() -> bool:
            info = self._ended_wait(request)
            found.extend([] if info is None else [info])
            return info is not None

        if not self._until(done, end_of(timeout)):
            self._open()
            raise error_of(_interface.DEADLINE_EXCEEDED, f"request {request} is not ready yet")
        return found[-1]

    async def _ready(self, request: int) -> RequestInfo:
        loop = asyncio.get_running_loop()
        waiter = Waiter(loop)
        with self._lock:
            self._open()
            if request in self._waiters:
                raise error_of(_interface.IN_USE, f"somebody waits for request {request} already")
            self._waiters[request] = waiter
            self._serve_on(loop)
        try:
            self._serve()
            info: list[RequestInfo | None] = [None]

            def done() -> bool:
                if not self.closed:
                    info[0] = self._ended_wait(request)
                return self.closed or info[0] is not None

            await waiter.until(done)
            if info[0] is None:
                self._open()
            assert info[0] is not None
            return info[0]
        finally:
            with self._lock:
                self._waiters.pop(request, None)

    def _block_table(self, request: int, group: int) -> Any:
        import numpy

        slots = POINTER(c_uint32)()
        count = c_size_t()
        with self._lock:
            check(lib.terrace_cache_block_table(self._open(), request, pool_number(group), byref(slots), byref(count)))
            raw = ctypes.string_at(slots, 4 * count.value) if count.value else b""
        return numpy.frombuffer(raw, numpy.int32)

    def _slots_from(self, request: int, group: int, block: int) -> list[int]:
        slots = POINTER(c_uint32)()
        count = c_size_t()
        with self._lock:
            check(lib.terrace_cache_block_table(self._open(), request, pool_number(group), byref(slots), byref(count)))
            return slots[in_range("block", block, c_uint32) : count.value] if count.value > block else []

    def _hit_sources(self, request: int) -> list[Source]:
        sources = POINTER(c_uint8)()
        count = c_size_t()
        with self._lock:
            check(lib.terrace_cache_hit_sources(self._open(), request, byref(sources), byref(count)))
            return [self._source_of(number) for number in sources[: count.value]]

    def _release(self, request: Request, how: _interface.Release) -> None:
        with self._lock:
            if self._handle is None or request.released:
                return
            status = lib.terrace_cache_release(self._handle, byref(c_uint64(request.id)), 1, byref(how))
            if status != _interface.UNKNOWN_REQUEST:  # after a call that was interrupted
                check(status)
            self._forget(request.id)

    def _drop(self, number: int) -> None:
        """A call of acquire() has failed, or was interrupted, or nobody has the request any more."""
        if number in self._live:
            lib.terrace_cache_release(self._open(), byref(c_uint64(number)), 1, None)
            self._forget(number)

    def _forget(self, number: int) -> None:
        """The library does not have this request any more."""
        self._events.pop(number, None)
        self._failed.pop(number, None)
        if (waiter := self._waiters.get(number)) is not None:
            waiter.wake()
        self._live.pop(number, None)  # last: an exception before is as one before the call

    def _settle(self) -> None:
        """Releases the requests that nobody has. Until then their ids are not free, so no other request has them."""
        self._attempts.settle()
        while self._left:
            self._drop(self._left[0])
            self._left.popleft()

    def _collect(self) -> None:
        self._returned.collect(self._open(), self._take)
        self._settle()

    def _take(self, number: int, events: Any, count: int) -> None:
        for i, e in enumerate(events[:count]):
            if e.request not in self._live:
                continue
            self._events.setdefault(e.request, {})[number, i] = RequestEvent(e.request, e.status, e.layers)
            if e.status != _interface.OK:
                self._failed[e.request] = e.status
            if (waiter := self._waiters.get(e.request)) is not None:
                waiter.wake()
        self._arrivals += 1

    def _has_news(self) -> bool:
        return bool(self._events)

    def _has_work(self) -> bool:
        return bool(self._waiters)

    def _wake_waiters(self) -> None:
        for waiter in self._waiters.values():
            waiter.wake()

    def _let_go(self) -> None:
        self._live.clear()
        release_all(self._host_rows)


def _farthest(source: Source | None) -> int:
    return int(Source(source)) if source else 0


def _address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])
