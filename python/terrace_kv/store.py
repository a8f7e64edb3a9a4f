"""A store of blocks on disk, which finds its blocks again after a restart."""

from __future__ import annotations

import asyncio
import ctypes
import mmap
import os
import select
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from ctypes import POINTER, byref, c_char_p, c_int32, c_size_t, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from enum import IntEnum
from types import TracebackType
from typing import Any, Union

from . import _library
from ._keys import Keys, keys_of_names
from ._library import NEVER, OK, TerraceError, check, error_of, lib
from ._memory import Rows
from ._toml import Value, table

Names = Union[Sequence[bytes], Keys]


class BatchKind(IntEnum):
    """What a batch has done."""

    PUT = 0
    GET = 1
    FLUSH = 2
    PROBE = 3


class EventKind(IntEnum):
    """What has become of a block."""

    STORED = 0
    EVICTED = 1
    REMOVED = 2


class Health(IntEnum):
    """How well the disk works."""

    WELL = 0
    DEGRADED = 1
    DOWN = 2


@dataclass(frozen=True)
class Result:
    """How a job has ended."""

    job: int
    kind: BatchKind
    statuses: tuple[int, ...]
    """By key: 0 if the block is stored, or if its row has its bytes; otherwise why not. After an error of a get the content of
    the row means nothing."""
    succeeded: int
    """Number of blocks without an error. For a probe: how many of the first keys are there without a gap."""
    bytes: int
    """Bytes of the blocks that succeeded."""
    seconds: float
    """Time since the job was submitted."""

    @property
    def ok(self) -> bool:
        """True if no block has failed."""
        return self.succeeded == len(self.statuses)


@dataclass(frozen=True)
class Event:
    """A block that has become readable, or was given up. `key` has the 32 bytes of Store.keys()."""

    kind: EventKind
    key: bytes


class Region:
    """Registered memory in rows of one block each. It keeps its buffer until close()."""

    def __init__(self, store: Store, rows: Rows, number: int) -> None:
        self._store = store
        self._rows: Rows | None = rows
        self.number = number
        """The number of the region in the library."""
        self.count = rows.count
        """Number of rows."""

    def close(self) -> None:
        """Ends the registration, and lets go of the buffer. Raises Busy while a job uses it. A second call does nothing."""
        self._store._unregister(self)

    def __enter__(self) -> Region:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class _Job:
    """A job under way: its temporary region, and whoever waits for it."""

    __slots__ = ("region", "waiter")

    def __init__(self, region: Region | None, waiter: Callable[[Result], None] | None) -> None:
        self.region = region
        self.waiter = waiter


_OWN_JOBS = 1 << 63  # numbers from here on belong to put() and get()


class Store:
    """A flat store of blocks of one size on disk, by keys of any bytes.

    `put` and `get` move one block and wait. `submit_put` and `submit_get` name a batch of blocks and rows of a buffer, and do not
    wait; `poll` returns their results, and `fileno()` is readable when there is one. Each block that is read is verified; a
    damaged block is a miss. A full store evicts the block that was used least recently.

    Args:
        path: The directory of the store, or several, each on a disk of its own. It is made if its parent exists.
        capacity: The disk space of all directories: a number of bytes, or a text such as "4GiB".
        block_bytes: The size of a block, a multiple of 4096.
        namespace: Says what the keys mean: model, weights, layout, rank. Equal keys of two namespaces name different blocks.
        name: The store's own directory inside `path`.
        fingerprint: 32 bytes that identify the contents; a store with another one is refused.
        log: Called with a level (0 info, 1 warning, 2 error) and a sentence, on a thread of the library.
        admin: The options of the table [admin]: {"listen": "unix:"} opens an endpoint for operators (docs/admin.md), which answers
            as often as the store is called.
        shared: The options of the table [shared]: {"url": "redis://kv@cache:6379"} puts a store that several machines share behind
            this one (docs/shared.md). What is not here is read from there, and what is stored is written there, too.
        options: More options of the table [storage] of docs/configuration.md, with "_" for "-": io="threads",
            flush_interval="1s", floor="10GiB".

    Raises:
        InvalidArgument: An option is wrong; the sentence says which, and what would be right.
        Busy: Another process has the store.
        StorageError: The directory cannot be used.

    A store may be used by several threads; its calls take turns. After os.fork() the child must not use it. Close it, or use it
    as a context manager: then everything that was stored survives a power failure.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        capacity: int | str = "4GiB",
        block_bytes: int | str = 65536,
        *,
        namespace: bytes = b"",
        name: str | None = None,
        fingerprint: bytes | None = None,
        log: Callable[[int, str], None] | None = None,
        admin: Mapping[str, Value | None] | None = None,
        shared: Mapping[str, Value | None] | None = None,
        **options: Value | None,
    ) -> None:
        self._handle: c_void_p | None = None
        paths = [os.fspath(path)] if isinstance(path, (str, os.PathLike)) else [os.fspath(each) for each in path]
        if not paths:
            raise ValueError("path: at least one directory is needed")
        storage: dict[str, Value | None] = {
            "where": "file:" + paths[0],
            "stripe": paths[1:] or None,
            "capacity": _size(capacity),
            "name": name,
            **{option.replace("_", "-"): value for option, value in options.items()},
        }
        general: dict[str, Value | None] = {"fingerprint": None if fingerprint is None else fingerprint.hex()}
        text = table("", general) + table("[storage]", storage) + table("[[pool]]", {"block-bytes": _size(block_bytes)})
        if admin is not None:
            text += table("[admin]", admin)
        if shared is not None:
            text += table("[shared]", shared)
        self.shares = shared is not None
        """True if there is a shared store behind this one."""
        self.namespace = bytes(namespace)
        self._lock = threading.RLock()
        self._jobs: dict[int, _Job] = {}
        self._results: deque[Result] = deque()
        self._events: deque[Event] = deque()
        self._own_jobs = _OWN_JOBS
        self._regions: dict[int, Region] = {}
        self._late: dict[int, Region] = {}
        self._staging: tuple[mmap.mmap, Region] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._log = _log_function(log)
        given = _library.OpenOptions(config=text.encode(), config_name=b"Store")
        if self._log is not None:
            given.log = self._log
        handle = c_void_p()
        check(lib.terrace_store_open(byref(given), byref(handle)))
        self._handle = handle
        self.block_bytes: int = lib.terrace_store_block_bytes(handle)
        """The size of a block."""

    # ---- one block

    def put(self, key: bytes, buffer: Any) -> None:
        """Stores a block, and waits until it can be read. `buffer` has exactly one block.

        Raises:
            StorageError: The disk is full or fails.
        """
        rows = Rows(buffer, self.block_bytes)
        try:
            if rows.count != 1:
                raise ValueError(f"the buffer has {rows.count} blocks; put() stores one")
            with self._lock:
                memory, region = self._own_row()
                memory[:] = ctypes.string_at(rows.address, self.block_bytes)
                result = self._run(self._submit(True, self._own_job(), [key], region, [0], None, None))
        finally:
            rows.release()
        if not result.ok:
            status = result.statuses[0]
            raise error_of(status, f"put: {_library.status_text(status)}")

    def get(self, key: bytes, into: Any) -> bool:
        """Reads a block into a buffer of exactly one block. Returns False if it is not there, or if it was damaged.

        Raises:
            StorageError: The disk fails.
        """
        rows = Rows(into, self.block_bytes)
        try:
            if rows.count != 1:
                raise ValueError(f"the buffer has {rows.count} blocks; get() reads one")
            if rows.readonly:
                raise ValueError("the buffer is read-only")
            with self._lock:
                memory, region = self._own_row()
                result = self._run(self._submit(False, self._own_job(), [key], region, [0], None, None))
                if result.ok:
                    ctypes.memmove(rows.address, memory[:], self.block_bytes)
        finally:
            rows.release()
        status = result.statuses[0]
        if status in (_library.NOT_FOUND, _library.CORRUPT):
            return False
        if status != OK:
            raise error_of(status, f"get: {_library.status_text(status)}")
        return True

    # ---- what is there

    def keys(self, names: Sequence[bytes]) -> Keys:
        """Makes keys once, for several calls."""
        return keys_of_names(self.namespace, names)

    def contains(self, key: bytes) -> bool:
        """True if a get would find the block. Answers from memory."""
        return self.contains_many([key])[0]

    def contains_many(self, keys: Names) -> list[bool]:
        """For each key, whether a get would find the block. Answers from memory."""
        made = self._keys(keys)
        count = made.count
        words = (c_uint64 * ((count + 63) // 64 or 1))()
        with self._lock:
            check(lib.terrace_store_contains(self._open(), made._array, count, words))
        bits = int.from_bytes(bytes(words), "little")
        return [digit == "1" for digit in reversed(f"{bits:0{count}b}"[-count:])] if count else []

    def leading(self, keys: Names) -> int:
        """How many of the first keys are there without a gap."""
        made = self._keys(keys)
        leading = c_size_t()
        with self._lock:
            check(lib.terrace_store_leading(self._open(), made._array, made.count, byref(leading)))
        return leading.value

    def leading_shared(self, keys: Names, timeout: float = 0.02) -> int:
        """How many of the first keys are there without a gap, in this store and in the shared one behind it. Waits for the shared
        store, at most `timeout` seconds: what it has not told by then counts as not there. Without a shared store it is leading().
        """
        made = self._keys(keys)
        here = self.leading(made)
        if not self.shares or here == made.count:
            return here
        with self._lock:
            job = self._own_job()
            self._probe(job, made, timeout)
            return self._run(job).succeeded

    def touch(self, keys: Names) -> None:
        """The blocks were used elsewhere, so they are evicted later. Keys that are not there are ignored."""
        made = self._keys(keys)
        with self._lock:
            check(lib.terrace_store_touch(self._open(), made._array, made.count))

    def remove(self, keys: Names) -> None:
        """Gives up blocks, and those below them (`parents` of submit_put). A shared store is asked to remove those that are named,
        too."""
        made = self._keys(keys)
        with self._lock:
            check(lib.terrace_store_remove(self._open(), made._array, made.count))

    def clear(self) -> None:
        """Gives up all blocks. A shared store is not used after that, until resume_shared(): nobody knows for which weights its
        blocks are."""
        with self._lock:
            check(lib.terrace_store_clear(self._open()))

    def resume_shared(self, weights_revision: str | None = None) -> None:
        """Uses the shared store again, for weights of this revision from now on. None: names that blocks had before the clear
        still mean the same."""
        with self._lock:
            revision = None if weights_revision is None else weights_revision.encode()
            check(lib.terrace_store_resume_shared(self._open(), revision))

    # ---- jobs

    def register(self, buffer: Any) -> Region:
        """Registers memory whose rows jobs will name: a buffer of several blocks, or of several dimensions of which the first counts
        rows. Jobs over registered memory begin faster. Rows at multiples of 4096 bytes are read and written without a copy.
        """
        rows = Rows(buffer, self.block_bytes)
        number = c_uint32()
        with self._lock:
            try:
                check(lib.terrace_store_register(self._open(), rows.address, rows.count, rows.stride, byref(number)))
            except BaseException:
                rows.release()
                raise
            region = self._regions[number.value] = Region(self, rows, number.value)
        return region

    def submit_put(
        self,
        job: int,
        keys: Names,
        buffer: Any,
        rows: Sequence[int],
        *,
        parents: Names | None = None,
        timeout: float | None = None,
    ) -> None:
        """Stores the blocks in these rows of the buffer (a Region, or any buffer). Does not wait.

        Args:
            job: A number of the caller's below 2**63, that no other job under way has.
            parents: By key, the block that comes before it. A block is evicted before its parent.
            timeout: In seconds; blocks that are not stored by then fail with DEADLINE_EXCEEDED.

        Raises:
            Busy: Too much is under way, or another job uses a row. Try again when jobs have ended.
        """
        self._submit_user(True, job, keys, buffer, rows, parents, timeout)

    def submit_get(
        self, job: int, keys: Names, buffer: Any, rows: Sequence[int], *, timeout: float | None = None
    ) -> None:
        """Reads blocks into these rows of the buffer. Does not wait; otherwise as submit_put(). Until its result, nobody else uses
        the rows.
        """
        self._submit_user(False, job, keys, buffer, rows, None, timeout)

    def submit_probe(self, job: int, keys: Names, *, timeout: float = 0.02) -> None:
        """Asks this store and the shared one behind it. Does not wait; Result.succeeded says how many of the first keys are there
        without a gap, after `timeout` seconds at the latest.

        Raises:
            InvalidArgument: There is no shared store; leading() answers at once then.
        """
        self._check_job(job)
        with self._lock:
            self._probe(job, self._keys(keys), timeout)

    def submit_flush(self, job: int) -> None:
        """Makes everything durable of which the results have been polled. The job ends in one result."""
        with self._lock:
            check(lib.terrace_store_flush(self._open(), job))
            self._jobs[job] = _Job(None, None)

    def cancel(self, job: int) -> None:
        """Ends the blocks of the job that the disk has not begun, with CANCELLED.

        Raises:
            NotFound: There is no such job.
        """
        with self._lock:
            check(lib.terrace_store_cancel(self._open(), job))

    def poll(self) -> list[Result]:
        """Returns the results of jobs that have ended."""
        with self._lock:
            self._collect()
            results = list(self._results)
            self._results.clear()
        return results

    def events(self) -> list[Event]:
        """Returns what has become readable or was given up since the last call. poll() is what collects it."""
        with self._lock:
            events = list(self._events)
            self._events.clear()
        return events

    def fileno(self) -> int:
        """A descriptor that is readable when poll() has something."""
        with self._lock:
            return int(lib.terrace_store_fd(self._open()))

    def wait(self, timeout: float | None = None) -> None:
        """Waits until poll() has something to do, or until the time is over. `timeout` is in seconds."""
        with self._lock:
            handle = self._open()
            if self._results:
                return
            descriptor = os.dup(lib.terrace_store_fd(handle))
            next_poll = lib.terrace_store_next_poll(handle)
        wait_until_readable(descriptor, min(next_poll, _nanoseconds(timeout)))

    def drain(self, timeout: float | None = None) -> None:
        """Waits until no job is under way. The results come with the next poll().

        Raises:
            DeadlineExceeded: The time is over, in seconds.
        """
        with self._lock:
            check(lib.terrace_store_drain(self._open(), _nanoseconds(timeout)))

    # ---- asyncio

    async def put_async(self, key: bytes, buffer: Any) -> None:
        """As put(), on the running event loop. One loop at a time serves a store; there, do not call poll()."""
        result = await self._on_loop(True, key, buffer)
        if not result.ok:
            raise error_of(result.statuses[0], f"put: {_library.status_text(result.statuses[0])}")

    async def get_async(self, key: bytes, into: Any) -> bool:
        """As get(), on the running event loop."""
        result = await self._on_loop(False, key, into)
        status = result.statuses[0]
        if status in (_library.NOT_FOUND, _library.CORRUPT):
            return False
        if status != OK:
            raise error_of(status, f"get: {_library.status_text(status)}")
        return True

    # ---- how it is

    def statistics(self) -> dict[str, int]:
        """Counts since the store was opened, by the names of terrace_store_statistics in terrace.h. Sizes are in bytes."""
        value = _library.StoreStatistics()
        with self._lock:
            check(lib.terrace_store_read_statistics(self._open(), byref(value)))
        return {field: getattr(value, field) for field, *_ in value._fields_ if field != "struct_size"}

    def health(self) -> tuple[Health, str]:
        """How well the disk works, and a sentence that says why not ("" while it works)."""
        state = c_int32()
        reason = c_char_p()
        with self._lock:
            check(lib.terrace_store_health(self._open(), byref(state), byref(reason)))
            return Health(state.value), (reason.value or b"").decode("utf-8", "replace")

    def io(self) -> str:
        """A text for people that says how I/O is done."""
        with self._lock:
            return str(lib.terrace_store_io(self._open()).decode("utf-8", "replace"))

    # ---- the end

    @property
    def closed(self) -> bool:
        """True after close()."""
        return self._handle is None

    def close(self, timeout: float | None = None) -> None:
        """Ends all jobs, makes everything durable, and lets go of all buffers. A second call does nothing.

        Raises:
            DeadlineExceeded: A disk has not answered within `timeout` seconds. The store is closed all the same, and the buffers
                of its jobs are kept for the rest of the process, because the disk may still use them.
            StorageError: The last flush has failed, so that a power failure may cost blocks that were stored.
        """
        with self._lock:
            if self._handle is None:
                return
            handle, self._handle = self._handle, None
            if self._loop is not None and not self._loop.is_closed():
                self._loop.remove_reader(lib.terrace_store_fd(handle))
            report = _library.CloseReport()
            status = lib.terrace_store_close(handle, _nanoseconds(timeout), byref(report))
            sentence = _library.last_error()
            if report.closed:
                lib.terrace_store_destroy(handle)
                for region in self._regions.values():
                    _release(region)
                if self._staging is not None:
                    self._staging[0].close()
            else:
                _kept_for_ever.append((self._regions, self._staging, self._log))
            self._jobs, self._regions, self._late, self._staging = {}, {}, {}, None
        check_text(status, sentence)
        if not report.closed:
            raise error_of(_library.DEADLINE_EXCEEDED, "close: a disk has not answered in time")
        if report.error != OK:
            raise error_of(report.error, f"close: the last flush has failed: {_library.status_text(report.error)}")

    def __enter__(self) -> Store:
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

    def _open(self) -> c_void_p:
        if self._handle is None:
            raise error_of(_library.STOPPED, "the store is closed")
        return self._handle

    def _keys(self, keys: Names) -> Keys:
        return keys if isinstance(keys, Keys) else keys_of_names(self.namespace, keys)

    def _own_job(self) -> int:
        self._own_jobs += 1
        return self._own_jobs

    def _own_row(self) -> tuple[mmap.mmap, Region]:
        """Memory of one block, at a multiple of 4096, for put() and get()."""
        if self._staging is None:
            memory = mmap.mmap(-1, self.block_bytes)
            self._staging = (memory, self.register(memory))
        return self._staging

    def _submit_user(
        self,
        is_put: bool,
        job: int,
        keys: Names,
        buffer: Any,
        rows: Sequence[int],
        parents: Names | None,
        timeout: float | None,
    ) -> None:
        self._check_job(job)
        with self._lock:
            self._submit(is_put, job, keys, buffer, rows, parents, timeout)

    @staticmethod
    def _check_job(job: int) -> None:
        if not 0 <= job < _OWN_JOBS:
            raise ValueError(f"job is {job}, must be from 0 to 2**63 - 1")

    def _probe(self, job: int, made: Keys, timeout: float) -> None:
        asked = _library.Probe(id=job, keys=ctypes.addressof(made._array), count=made.count, deadline=_nanoseconds(timeout) or 1)
        check(lib.terrace_store_probe(self._open(), byref(asked)))
        self._jobs[job] = _Job(None, None)

    def _submit(
        self,
        is_put: bool,
        job: int,
        keys: Names,
        buffer: Any,
        rows: Iterable[int],
        parents: Names | None,
        timeout: float | None,
        waiter: Callable[[Result], None] | None = None,
    ) -> int:
        made = self._keys(keys)
        chosen = rows if isinstance(rows, (list, tuple)) else list(rows)
        if len(chosen) != made.count:
            raise ValueError(f"there are {made.count} keys and {len(chosen)} rows")
        before = None if parents is None else self._keys(parents)
        if before is not None and before.count != made.count:
            raise ValueError(f"there are {made.count} keys and {before.count} parents")
        temporary = None if isinstance(buffer, Region) else self.register(buffer)
        region = buffer if temporary is None else temporary
        try:
            if not is_put and region._rows is not None and region._rows.readonly:
                raise ValueError("the buffer is read-only")
            numbers = (c_uint32 * made.count)(*chosen)
            batch = _library.Batch(
                id=job,
                keys=ctypes.addressof(made._array),
                rows=ctypes.addressof(numbers),
                count=made.count,
                region=region.number,
                deadline=0 if timeout is None else max(1, _nanoseconds(timeout)),
            )
            if before is not None:
                batch.parents = ctypes.addressof(before._array)
            check((lib.terrace_store_put if is_put else lib.terrace_store_get)(self._open(), byref(batch)))
        except BaseException:
            if temporary is not None:
                temporary.close()
            raise
        self._jobs[job] = _Job(temporary, waiter)
        return job

    def _run(self, job: int) -> Result:
        """Waits for the result of one job. Results of others wait for poll()."""
        found: list[Result] = []
        self._jobs[job].waiter = found.append
        while not found:
            check(lib.terrace_store_wait(self._open(), NEVER))
            self._collect()
        return found[0]

    def _collect(self) -> None:
        handle = self._open()
        results = POINTER(_library.BatchResult)()
        events = POINTER(_library.StoreEvent)()
        count = c_size_t()
        check(lib.terrace_store_poll(handle, byref(results), byref(count)))
        for i in range(count.value):
            raw = results[i]
            result = Result(
                job=raw.id,
                kind=BatchKind(raw.kind),
                statuses=tuple(raw.statuses[: raw.count]),
                succeeded=raw.succeeded,
                bytes=raw.bytes,
                seconds=raw.duration / 1e9,
            )
            job = self._jobs.pop(result.job, None)
            if job is not None and job.region is not None:
                if raw.memory_in_use:
                    self._late[result.job] = job.region
                else:
                    job.region.close()
            if job is not None and job.waiter is not None:
                job.waiter(result)
            else:
                self._results.append(result)
        check(lib.terrace_store_events(handle, byref(events), byref(count)))
        for i in range(count.value):
            event = events[i]
            if event.kind == 3:  # TERRACE_STORE_MEMORY_FREE
                region = self._late.pop(event.batch, None)
                if region is not None:
                    region.close()
            else:
                self._events.append(Event(EventKind(event.kind), bytes(event.key.bytes)))

    def _unregister(self, region: Region) -> None:
        with self._lock:
            if region._rows is None:
                return
            if self._handle is not None:
                check(lib.terrace_store_unregister(self._handle, region.number))
                del self._regions[region.number]
                _release(region)

    async def _on_loop(self, is_put: bool, key: bytes, buffer: Any) -> Result:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()

        def done(result: Result) -> None:
            if not future.done():
                future.set_result(result)

        with self._lock:
            if self._loop is not loop:
                loop.add_reader(self.fileno(), self._serve)
                self._loop = loop
            job = self._submit(is_put, self._own_job(), [key], buffer, [0], None, None, done)
        try:
            return await future
        except asyncio.CancelledError:
            with self._lock:
                if self._handle is not None and job in self._jobs:
                    lib.terrace_store_cancel(self._handle, job)
            raise

    def _serve(self) -> None:
        with self._lock:
            if self._handle is not None:
                self._collect()


# Buffers that a disk which does not answer may still use.
_kept_for_ever: list[Any] = []


def _release(region: Region | None) -> None:
    if region is not None and region._rows is not None:
        region._rows.release()
        region._rows = None


def check_text(status: int, sentence: str) -> None:
    """As check(), with the sentence that was read right after the call."""
    if status != OK:
        raise error_of(status, sentence)


def wait_until_readable(descriptor: int, nanoseconds: int) -> None:
    """Waits without the lock of the store or cache, and closes the descriptor, which is a copy: another thread may close the store
    or cache meanwhile."""
    try:
        readable = select.poll()
        readable.register(descriptor, select.POLLIN)
        readable.poll(None if nanoseconds == NEVER else min(-(-nanoseconds // 1_000_000), 2**31 - 1))
    finally:
        os.close(descriptor)


def _size(size: int | str) -> str:
    return f"{size}B" if isinstance(size, int) else size


def _nanoseconds(seconds: float | None) -> int:
    return NEVER if seconds is None else max(0, min(int(seconds * 1e9), NEVER - 1))


def _log_function(log: Callable[[int, str], None] | None) -> Any:
    if log is None:
        return None

    def write(_context: Any, level: int, sentence: int, size: int) -> None:
        log(level, ctypes.string_at(sentence, size).decode("utf-8", "replace"))

    return _library.LogFunction(write)
