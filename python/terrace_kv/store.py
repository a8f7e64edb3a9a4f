"""A store of blocks on disk, which finds its blocks again after a restart."""

from __future__ import annotations

import asyncio
import ctypes
import os
import struct
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from ctypes import byref, c_char_p, c_int32, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any

from . import _interface, _library
from ._interface import OK
from ._keys import Keys, Names, keys_of_names
from ._library import check, error_of, lib, row_numbers
from ._memory import Kept, Rows
from ._polling import LONGEST_WAIT, Polled, Returned, end_of, nanoseconds
from ._staging import Call, Row, Staging
from ._store_types import BatchKind, Event, EventKind, Health, Result
from ._toml import Value, table

__all__ = ["BatchKind", "Event", "EventKind", "Health", "Names", "Region", "Result", "Store"]


_EVENT = struct.Struct("<32sQII")  # terrace_store_event: key, batch, kind, reserved
_OWN_JOBS = 1 << 63  # job numbers from here on are used for put() and get()
_NO_REGION = 0xFFFF_FFFF


class Region:
    """Registered memory in rows of one block each. It keeps the buffer until close()."""

    def __init__(self, store: Store, rows: Rows) -> None:
        self._store = store
        self._rows: Rows | None = rows
        self._number = c_uint32(_NO_REGION)
        self.count = rows.count
        """Number of rows."""

    @property
    def number(self) -> int:
        """The number of the region in the library."""
        return self._number.value

    def close(self) -> None:
        """Ends the registration, and releases the buffer. Raises Busy while a job uses it. A second call does nothing."""
        self._store._unregister(self)

    def __enter__(self) -> Region:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class _Job:
    """A job that the library may have: the memory that it holds, and the call that waits for it (None: poll() returns the
    result)."""

    __slots__ = ("call", "region", "row")

    def __init__(self, region: Region | None = None, row: Row | None = None, call: Call | None = None) -> None:
        self.region = region
        """A region for this job alone, which ends when its memory is free."""
        self.row = row
        """The row of the store that is returned when its memory is free."""
        self.call = call


class Store(Polled):
    """A flat store of blocks of one size on disk, by keys of any bytes.

    `put` and `get` move one block and wait. `submit_put` and `submit_get` name a batch of blocks and rows of a buffer, and do not
    wait; `poll` returns their results, and `fileno()` is readable when there is one. Each block that is read is verified; a
    damaged block is a miss. A full store evicts the block that was used least recently.

    Args:
        path: The directory of the store, or several directories, each on its own disk. It is created if its parent exists.
        capacity: The disk space of all directories: a number of bytes, or a text such as "4GiB".
        block_bytes: The size of a block, a multiple of 4096.
        namespace: The meaning of the keys: model, weights, layout, rank. Equal keys of two namespaces name different blocks.
        name: The store's own directory inside `path`.
        fingerprint: 32 bytes that identify the contents; a store with another one is refused.
        log: Called with a level (0 info, 1 warning, 2 error) and a sentence, on a thread of the library.
        admin: The options of the table [admin]: {"listen": "unix:"} opens an endpoint for operators (docs/admin.md).
        idle_service: A thread of the library continues the store's work if no call was made for 100 ms. Without it, results and
            the commands of operators wait for the next call.
        shared: The options of the table [shared]: {"url": "redis://kv@cache:6379"} adds a store that several machines share
            behind this one (docs/shared.md). Blocks that are not here are read from it, and new blocks are written to it, too.
        options: More options of the table [storage] of docs/configuration.md, with "_" for "-": io="threads",
            flush_interval="1s", floor="10GiB", label="my engine, model M" (the owner, shown by `terrace store stat`).

    Raises:
        InvalidArgument: An option is wrong; the sentence says which, and what would be right.
        Busy: Another process has the store.
        StorageError: The directory cannot be used.

    `put`, `get`, `put_async` and `get_async` copy the block through memory of the store: at most 16 MiB, or 8 blocks if these are
    larger. Even if such a call ends early (Ctrl-C, a time-out, a cancelled task), the caller's memory is not used after it. The
    `submit_` calls copy nothing: the disk uses the buffer itself until the result, or (Result.memory_in_use) until the event
    MEMORY_FREE. The store keeps the buffer until then.

    Threads: any. A thread or event loop that waits for a block does not block the others; remove(), clear() and close() do, while
    they wait for the disk. In a child process made by os.fork() the store is closed, and raises Stopped; the store of the parent
    continues. Close the store, or use it as a context manager: then all stored blocks survive a power failure.
    """

    _what = "store"
    _prefix = "terrace_store"

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
        idle_service: bool = True,
        shared: Mapping[str, Value | None] | None = None,
        **options: Value | None,
    ) -> None:
        self._make_once()
        super().__init__(namespace, log)
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
        general: dict[str, Value | None] = {
            "fingerprint": None if fingerprint is None else fingerprint.hex(),
            "idle-service": idle_service,
        }
        text = table("", general) + table("[storage]", storage) + table("[[pool]]", {"block-bytes": _size(block_bytes)})
        if admin is not None:
            text += table("[admin]", admin)
        if shared is not None:
            text += table("[shared]", shared)
        self.shares = shared is not None
        """True if there is a shared store behind this one."""
        self._jobs: dict[int, _Job] = {}
        self._late: dict[int, _Job] = {}  # jobs that have ended, but whose memory is still in use
        self._results: dict[int, list[Result]] = {}  # results for poll(), by the call that returned them
        self._events: dict[int, list[Event]] = {}
        self._returned_results = Returned(lib.terrace_store_poll, _interface.BatchResult)
        self._returned_events = Returned(lib.terrace_store_events, _interface.StoreEvent)
        self._own_jobs = _OWN_JOBS
        self._regions: set[Region] = set()
        self._buffers: set[Rows] = set()  # buffers of the regions
        given = self._options(text, _library.GENERATED)
        handle = c_void_p()
        try:
            check(lib.terrace_store_open(byref(given), byref(handle)))
            self.block_bytes: int = lib.terrace_store_block_bytes(handle)
            """The size of a block."""
            self._staging = Staging(self.block_bytes, self.register)
            # If the disk does not answer at the end, the memory that it may still use is kept after this object.
            self._kept = Kept(self._buffers, self._log)
            self._handle = handle
        except BaseException:
            self._handle = None
            lib.terrace_store_destroy(handle)
            raise

    # ---- one block

    def put(self, key: bytes, buffer: Any) -> None:
        """Stores a block, and waits until it can be read. `buffer` has exactly one block. If an exception ends the call, the block
        may be stored or not; it is never stored with other bytes.

        Raises:
            StorageError: The disk is full or fails.
            Busy: Too much work is under way, or the block was removed while the disk still writes it for a job whose time-out is
                over. Try again.
        """
        _check_put(self._move(True, key, buffer))

    def get(self, key: bytes, into: Any) -> bool:
        """Reads a block into a buffer of exactly one block. Returns False if the block is not there, or if it is damaged. `into`
        is changed only if the result is True.

        Raises:
            StorageError: The disk fails.
        """
        return _is_hit(self._move(False, key, into))

    async def put_async(self, key: bytes, buffer: Any) -> None:
        """The same as put(), on the running event loop. Only one loop at a time can serve a store. Do not change `buffer` before
        the coroutine ends; a cancelled coroutine has ended."""
        _check_put(await self._move_async(True, key, buffer))

    async def get_async(self, key: bytes, into: Any) -> bool:
        """The same as get(), on the running event loop."""
        return _is_hit(await self._move_async(False, key, into))

    # ---- what is there

    def keys(self, names: Sequence[bytes]) -> Keys:
        """Makes keys once, for several calls."""
        return keys_of_names(self.namespace, names)

    def contains(self, key: bytes) -> bool:
        """True if a get would find the block. Does not use the disk."""
        return self.contains_many([key])[0]

    def contains_many(self, keys: Names) -> list[bool]:
        """For each key, whether a get would find the block. Does not use the disk."""
        made = self._keys(keys)
        count = made.count
        words = (c_uint64 * ((count + 63) // 64 or 1))()
        with self._lock:
            check(lib.terrace_store_contains(self._open(), made._array, count, words))
        bits = int.from_bytes(bytes(words), "little")
        return [digit == "1" for digit in reversed(f"{bits:0{count}b}"[-count:])] if count else []

    def leading(self, keys: Names) -> int:
        """Returns the number of leading keys whose blocks are all there."""
        made = self._keys(keys)
        leading = c_size_t()
        with self._lock:
            check(lib.terrace_store_leading(self._open(), made._array, made.count, byref(leading)))
        return leading.value

    def leading_shared(self, keys: Names, timeout: float = 0.02) -> int:
        """Returns the number of leading keys whose blocks are all in this store or in the shared store behind it. Waits at most
        `timeout` seconds for the shared store: blocks without an answer count as missing. Without a shared store it is the same
        as leading().
        """
        made = self._keys(keys)
        here = self.leading(made)
        if not self.shares or here == made.count:
            return here
        call = Call()
        try:
            with self._lock:
                self._probe(self._own_job(call), made, timeout, call)
            return self._finish(call).succeeded
        finally:
            self._end_call(call)

    def touch(self, keys: Names) -> None:
        """Records a use of the blocks, so that they are evicted later. Keys that are not there are ignored."""
        made = self._keys(keys)
        with self._lock:
            check(lib.terrace_store_touch(self._open(), made._array, made.count))

    def remove(self, keys: Names) -> None:
        """Removes blocks, and the blocks below them (`parents` of submit_put), and waits until this is durable: they are not
        there after a kill or a power failure. Puts of these keys that are under way end with CANCELLED and store nothing; gets
        are misses. A shared store is asked to remove the named blocks, too.

        Raises:
            TerraceError: The disk did not confirm it within 30 seconds, or the flush has failed. The blocks are not served any
                more, but may be there again after a crash. Call it again to retry.
        """
        made = self._keys(keys)
        with self._lock:
            check(lib.terrace_store_remove(self._open(), made._array, made.count))

    def clear(self) -> None:
        """Removes all blocks, and waits until this is durable, as remove() does. After that, a shared store is not used until
        resume_shared(), because it is not known for which weights its blocks are."""
        with self._lock:
            check(lib.terrace_store_clear(self._open()))

    # ---- jobs

    def register(self, buffer: Any) -> Region:
        """Registers memory for jobs: a buffer of several blocks, or of several dimensions of which the first counts rows. Jobs
        over registered memory start faster. Rows at multiples of 4096 bytes are read and written without a copy.
        """
        region = Region(self, Rows(buffer, self.block_bytes))
        self._register(region)
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
            job: A number below 2**63 that the caller chooses. No other job under way may have it.
            parents: By key, the block that comes before it. A block is evicted before its parent.
            timeout: In seconds; blocks that are not stored by then fail with DEADLINE_EXCEEDED. The disk may still use their rows:
                see Result.memory_in_use.

        Raises:
            Busy: Too much is under way, or another job uses a row. Try again when jobs have ended.
        """
        self._submit_user(True, job, keys, buffer, rows, parents, timeout)

    def submit_get(
        self, job: int, keys: Names, buffer: Any, rows: Sequence[int], *, timeout: float | None = None
    ) -> None:
        """Reads blocks into these rows of the buffer. Does not wait; otherwise as submit_put(). Do not use the rows until the
        result, or until the event MEMORY_FREE if Result.memory_in_use is True.
        """
        self._submit_user(False, job, keys, buffer, rows, None, timeout)

    def submit_probe(self, job: int, keys: Names, *, timeout: float = 0.02) -> None:
        """Asks this store and the shared store behind it. Does not wait; Result.succeeded is the number of leading keys whose
        blocks are all there. The result comes within `timeout` seconds.

        Raises:
            InvalidArgument: There is no shared store; use leading(), which answers at once.
        """
        with self._lock:
            self._probe(self._user_job(job), self._keys(keys), timeout, None)

    def submit_flush(self, job: int) -> None:
        """Makes all blocks durable whose results poll() has returned. The job ends in one result."""
        with self._lock:
            handle = self._open()
            self._begin(self._user_job(job), _Job(), lambda: lib.terrace_store_flush(handle, job))

    def cancel(self, job: int) -> None:
        """Ends the blocks of the job that the disk has not begun; they have the status CANCELLED.

        Raises:
            NotFound: There is no such job.
        """
        with self._lock:
            check(lib.terrace_store_cancel(self._open(), self._checked_job(job)))

    def poll(self) -> list[Result]:
        """Returns the results of jobs that have ended."""
        with self._lock:
            self._poll()
            results, self._results = self._results, {}
        return [result for each in results.values() for result in each]

    def events(self) -> list[Event]:
        """Returns the events since the last call: blocks that have become readable or were removed, and jobs whose memory has
        become free. poll() collects these events."""
        with self._lock:
            events, self._events = self._events, {}
        return [event for each in events.values() for event in each]

    def drain(self, timeout: float | None = LONGEST_WAIT) -> None:
        """Waits until no job is under way. The next poll() returns the results.

        Raises:
            DeadlineExceeded: The time is over, in seconds; None: it never is.
        """
        with self._lock:
            self._open()
        if not self._until(self._is_idle, end_of(timeout)):
            self._open()
            raise error_of(_interface.DEADLINE_EXCEEDED, "drain: jobs are still under way")

    # ---- how it is

    def statistics(self) -> dict[str, int]:
        """Counts since the store was opened, by the names of terrace_store_statistics in terrace.h. Sizes are in bytes."""
        return self._read(lib.terrace_store_read_statistics, _interface.StoreStatistics())

    def health(self) -> tuple[Health, str]:
        """The state of the disk, and a sentence with the reason if it does not work ("" while it works)."""
        state = c_int32()
        reason = c_char_p()
        with self._lock:
            check(lib.terrace_store_health(self._open(), byref(state), byref(reason)))
            return Health(state.value), (reason.value or b"").decode("utf-8", "replace")

    def io(self) -> str:
        """A text for people: the method of I/O."""
        with self._lock:
            return str(lib.terrace_store_io(self._open()).decode("utf-8", "replace"))

    # ---- the end

    def close(self, timeout: float | None = LONGEST_WAIT) -> None:
        """Ends all jobs, makes everything durable, and releases all buffers. Calls and coroutines that wait for a block get their
        results. A second call does nothing. If an exception interrupts it, the store takes no more jobs; call it again.

        Raises:
            DeadlineExceeded: A disk has not answered within `timeout` seconds. The store is closed nevertheless, and the buffers
                of its jobs are kept for the rest of the process, because the disk may still use them.
            StorageError: The last flush has failed, so a power failure may lose stored blocks.
        """
        end = end_of(timeout)
        with self._lock:
            if self._handle is None:
                return
            lib.terrace_store_stop(self._handle)
        self._until(self._is_idle, end)
        with self._lock:
            handle = self._handle
            if handle is None:
                return
            self._stop_serving()
            report = _interface.CloseReport()
            left = None if end is None else max(0.0, end - time.monotonic())
            status = lib.terrace_store_close(handle, nanoseconds(left), byref(report))
            sentence = _library.last_error()
            self._handle = None
            for job in self._jobs.values():
                if job.call is not None:
                    job.call.closed = True
                    job.call.wake()
            self._staging.wake_all()
            self._wake_threads()
            if report.closed:
                lib.terrace_store_destroy(handle)
                self._let_go()
                self._kept.end()
        if status != OK:
            raise error_of(status, sentence)
        if not report.closed:
            raise error_of(_interface.DEADLINE_EXCEEDED, "close: a disk has not answered in time")
        if report.error != OK:
            raise error_of(report.error, f"close: the last flush has failed: {_library.status_text(report.error)}")

    # ---- inside

    def _let_go(self) -> None:
        for region in list(self._regions):
            self._release(region)

    def _has_news(self) -> bool:
        return bool(self._results)

    def _has_work(self) -> bool:
        return bool(self._jobs)

    def _is_idle(self) -> bool:
        return not self._jobs and not self._late

    # -- jobs

    def _own_job(self, call: Call) -> int:
        self._own_jobs += 1
        call.job = self._own_jobs
        return self._own_jobs

    @staticmethod
    def _checked_job(job: int) -> int:
        if not 0 <= job < _OWN_JOBS:
            raise ValueError(f"job is {job}, must be from 0 to 2**63 - 1")
        return job

    def _user_job(self, job: int) -> int:
        """Checks the number of a new job."""
        if self._checked_job(job) in self._jobs or job in self._late:
            raise error_of(_interface.DUPLICATE_REQUEST, f"job {job} is under way, or its memory is in use; choose another number")
        return job

    def _begin(self, number: int, job: _Job, submit: Callable[[], int]) -> None:
        """Submits a job to the library. The memory of the job is recorded before the call."""

        def enter() -> int:
            self._jobs[number] = job
            if job.row is not None:
                job.row.job = number
            return submit()

        self._attempts.make(enter, lambda: self._drop(number))

    def _drop(self, number: int) -> None:
        """Removes a job that the library does not have, and cancels a job that it has; the result of that job comes as usual."""
        job = self._jobs.get(number)
        if job is not None and lib.terrace_store_cancel(self._open(), number) == _interface.NOT_FOUND:
            self._free_memory(number, job)
            self._jobs.pop(number, None)

    def _free_memory(self, number: int, job: _Job) -> None:
        """The library does not use the memory of a job any more."""
        if job.region is not None:
            job.region.close()
        if job.row is not None:
            self._staging.memory_is_free(job.row, number)

    def _submit_user(
        self,
        is_put: bool,
        job: int,
        keys: Names,
        buffer: Any,
        rows: Iterable[int],
        parents: Names | None,
        timeout: float | None,
    ) -> None:
        made = self._keys(keys)
        before = None if parents is None else self._keys(parents)
        if before is not None and before.count != made.count:
            raise ValueError(f"there are {made.count} keys and {before.count} parents")
        numbers = row_numbers("rows", rows)
        if len(numbers) != made.count:
            raise ValueError(f"there are {made.count} keys and {len(numbers)} rows")
        deadline = 0 if timeout is None else max(1, nanoseconds(timeout))
        with self._lock:
            self._user_job(job)
            temporary = None if isinstance(buffer, Region) else Region(self, Rows(buffer, self.block_bytes))
            try:
                if temporary is not None:
                    self._register(temporary)
                region = buffer if temporary is None else temporary
                if not is_put and region._rows is not None and region._rows.readonly:
                    raise ValueError("the buffer is read-only")
                self._submit(is_put, job, _Job(temporary), made, region, numbers, before, deadline)
            except BaseException:
                if temporary is not None and job not in self._jobs:
                    temporary.close()
                raise

    def _submit(
        self,
        is_put: bool,
        number: int,
        job: _Job,
        keys: Keys,
        region: Region,
        rows: Any,
        parents: Keys | None = None,
        deadline: int = 0,
    ) -> None:
        handle = self._open()
        batch = _interface.Batch(
            id=number,
            keys=ctypes.addressof(keys._array),
            rows=rows.buffer_info()[0],
            count=keys.count,
            region=region.number,
            deadline=deadline,
        )
        if parents is not None:
            batch.parents = ctypes.addressof(parents._array)
        submit = lib.terrace_store_put if is_put else lib.terrace_store_get
        self._begin(number, job, lambda: submit(handle, byref(batch)))

    def _probe(self, number: int, made: Keys, timeout: float, call: Call | None) -> None:
        handle = self._open()
        asked = _interface.Probe(id=number, keys=ctypes.addressof(made._array), count=made.count, deadline=nanoseconds(timeout) or 1)
        self._begin(number, _Job(call=call), lambda: lib.terrace_store_probe(handle, byref(asked)))

    # -- jobs whose results poll() does not return, for adapters that wait on threads

    def _start(
        self, is_put: bool, keys: Keys, region: Region, rows: Sequence[int], parents: Keys | None = None
    ) -> Call:
        """Submits a job. _finish() of this call gets its result."""
        call = Call()
        with self._lock:
            self._submit(is_put, self._own_job(call), _Job(call=call), keys, region, row_numbers("rows", rows), parents)
        return call

    def _finish(self, call: Call) -> Result:
        """Waits for the result of a call."""
        self._until(lambda: call.result is not None or call.closed)
        return self._result_of(call)

    # -- one block through a row of the store

    def _move(self, is_put: bool, key: bytes, buffer: Any) -> int:
        """Puts or gets one block, and waits. Returns its status."""
        made = self._keys([key])
        rows = self._one_row(is_put, buffer)
        call = Call()
        try:
            with self._lock:
                self._open()
                self._staging.ask(call)
            self._until(lambda: call.row is not None)
            self._submit_row(is_put, call, made, rows)
            self._until(lambda: call.result is not None or call.closed)
            return self._finish_row(is_put, call, rows)
        finally:
            self._end_call(call)
            rows.release()

    async def _move_async(self, is_put: bool, key: bytes, buffer: Any) -> int:
        """The same on the running event loop."""
        made = self._keys([key])
        rows = self._one_row(is_put, buffer)
        call = Call(asyncio.get_running_loop())
        try:
            with self._lock:
                self._open()
                self._serve_on(asyncio.get_running_loop())
                self._staging.ask(call)
            await call.until(lambda: call.row is not None or self.closed)
            self._submit_row(is_put, call, made, rows)
            self._serve()
            await call.until(lambda: call.result is not None or call.closed)
            return self._finish_row(is_put, call, rows)
        finally:
            self._end_call(call)
            rows.release()

    def _one_row(self, is_put: bool, buffer: Any) -> Rows:
        rows = Rows(buffer, self.block_bytes)
        wrong = (
            f"the buffer has {rows.count} blocks; {'put() stores' if is_put else 'get() reads'} one" if rows.count != 1
            else "the buffer is read-only" if rows.readonly and not is_put
            else None
        )  # fmt: skip
        if wrong is not None:
            rows.release()
            raise ValueError(wrong)
        return rows

    def _submit_row(self, is_put: bool, call: Call, keys: Keys, rows: Rows) -> None:
        row = call.row
        if row is not None and is_put:
            ctypes.memmove(row.address, rows.address, self.block_bytes)
        with self._lock:
            self._open()
            assert row is not None
            self._submit(is_put, self._own_job(call), _Job(None, row, call), keys, row.region, row_numbers("rows", [row.index]))

    def _finish_row(self, is_put: bool, call: Call, rows: Rows) -> int:
        """Copies a block that was read to the caller, and returns its status."""
        status = self._result_of(call).statuses[0]
        if not is_put and status == OK:
            assert call.row is not None
            ctypes.memmove(rows.address, call.row.address, self.block_bytes)
        return status

    def _result_of(self, call: Call) -> Result:
        if call.result is None:
            raise error_of(_interface.STOPPED, self._end)
        return call.result

    def _end_call(self, call: Call) -> None:
        """The caller has finished. If an exception has ended its call, the library may use the row until its job has ended."""
        with self._lock:
            if call.result is None and call.job in self._jobs and self._handle is not None:
                lib.terrace_store_cancel(self._handle, call.job)
            self._staging.end(call)
            self._wake_threads()  # one of them may have got the row

    # -- what the library returns

    def _collect(self) -> None:
        handle = self._open()
        self._returned_results.collect(handle, self._take_results)
        self._returned_events.collect(handle, self._take_events)
        self._attempts.settle()

    def _take_results(self, number: int, results: Any, count: int) -> None:
        for_poll: list[Result] = []
        for i in range(count):
            raw = results[i]
            result = Result(
                job=raw.id,
                kind=BatchKind(raw.kind),
                statuses=tuple(raw.statuses[: raw.count]),
                succeeded=raw.succeeded,
                bytes=raw.bytes,
                seconds=raw.duration / 1e9,
                memory_in_use=bool(raw.memory_in_use),
            )
            if result.job < _OWN_JOBS:
                for_poll.append(result)
            job = self._jobs.get(result.job)
            if job is None:
                continue
            if result.memory_in_use:
                self._late[result.job] = job
            else:
                self._free_memory(result.job, job)
            if job.call is not None:
                job.call.result = result
                job.call.wake()
            del self._jobs[result.job]
        if for_poll:
            self._results[number] = for_poll
        self._arrivals += 1

    def _take_events(self, number: int, events: Any, count: int) -> None:
        told: list[Event] = []
        for key, batch, kind, _reserved in _EVENT.iter_unpack(ctypes.string_at(events, count * _EVENT.size)):
            if kind != EventKind.MEMORY_FREE:
                told.append(Event(EventKind(kind), key))
                continue
            if batch < _OWN_JOBS:
                told.append(Event(EventKind.MEMORY_FREE, key, batch))
            job = self._late.get(batch)
            if job is not None:
                self._free_memory(batch, job)
                del self._late[batch]
        if told:
            self._events[number] = told
        self._arrivals += 1

    def _register(self, region: Region) -> None:
        with self._lock:
            handle, rows = self._open(), region._rows
            assert rows is not None

            def enter() -> int:
                self._regions.add(region)
                self._buffers.add(rows)
                return int(lib.terrace_store_register(handle, rows.address, rows.count, rows.stride, byref(region._number)))

            self._attempts.make(enter, region.close)

    def _unregister(self, region: Region) -> None:
        with self._lock:
            if region._rows is None or (self._handle is None and region in self._regions):
                return  # a disk that has not answered may still use it
            if self._handle is not None and region.number != _NO_REGION:
                status = lib.terrace_store_unregister(self._handle, region.number)
                if status != _interface.NOT_FOUND:
                    check(status)
            self._release(region)

    def _release(self, region: Region) -> None:
        if region._rows is not None:
            region._rows.release()
            self._buffers.discard(region._rows)
            region._rows = None
        self._regions.discard(region)


def _check_put(status: int) -> None:
    if status != OK:
        raise error_of(status, f"put: {_library.status_text(status)}")


def _is_hit(status: int) -> bool:
    if status in (_interface.NOT_FOUND, _interface.CORRUPT):
        return False
    if status != OK:
        raise error_of(status, f"get: {_library.status_text(status)}")
    return True


def _size(size: int | str) -> str:
    return f"{size}B" if isinstance(size, int) else size
