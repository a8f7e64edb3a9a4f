"""Rows that a Store owns. put() and get() move each block through one of them, so that the library never uses a caller's memory.

A row is used again only when both the caller and the library have finished with it. Even if the caller's call ends early, the
library may use the row until the disk has answered.
"""

from __future__ import annotations

import asyncio
import mmap
import weakref
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from ._library import TerraceError
from ._polling import Waiter

if TYPE_CHECKING:
    from ._store_types import Result
    from .store import Region

BYTES_MAX = 16 << 20
"""Upper bound of the bytes of all rows of a store, unless 8 rows need more."""
ROWS_MAX = 256
"""Upper bound of the rows of a store, and so of the reads or writes that the disk has under way."""


def rows_max(block_bytes: int) -> int:
    """The largest number of rows of a store with blocks of this size."""
    return min(ROWS_MAX, max(8, BYTES_MAX // block_bytes))


class Call(Waiter):
    """A call of put(), get() or leading_shared(), or of one of their coroutines."""

    __slots__ = ("__weakref__", "closed", "ended", "job", "result", "row")

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        super().__init__(loop)
        self.job: int | None = None
        self.row: Row | None = None
        self.result: Result | None = None
        self.closed = False
        """True if the store was closed before the result came."""
        self.ended = False
        """True if the caller has finished."""


class Row:
    """Memory of one block, at a multiple of 4096."""

    __slots__ = ("address", "caller", "index", "job", "memory", "region")

    def __init__(self, region: Region, memory: mmap.mmap, address: int, index: int) -> None:
        self.region = region
        self.memory = memory  # kept while the row is in use
        self.address = address
        self.index = index
        self.caller: weakref.ref[Call] | None = None  # a call that an exception has ended may be gone without end()
        self.job: int | None = None
        """The job of the library that may use the memory."""

    def is_free(self) -> bool:
        """True if neither a caller nor the library uses the row."""
        caller = None if self.caller is None else self.caller()
        return self.job is None and (caller is None or caller.ended or caller.row is not self)


class Staging:
    """The rows of a store. It takes memory when it needs it. Threads: the lock of the store is held."""

    def __init__(self, block_bytes: int, register: Callable[[mmap.mmap], Region]) -> None:
        self._block_bytes = block_bytes
        self._register = register
        self._rows: dict[int, Row] = {}  # by the address of an object, of all rows
        self._free: dict[int, Row] = {}
        self._wanting: deque[Call] = deque()

    def ask(self, call: Call) -> None:
        """Gives the call a row, now or when one is free; then it is woken. Calls get rows in order."""
        self._wanting.append(call)
        if not self._free:  # after an exception, a free row may be missing in _free
            self._free.update((key, row) for key, row in self._rows.items() if row.is_free())
        if not self._free:
            try:
                self._grow()
            except (TerraceError, OSError):
                if not self._rows:
                    raise  # if there is no memory for more rows, the existing ones are enough
        self._serve()

    def end(self, call: Call) -> None:
        """The caller has finished with its row, or does not need one any more."""
        call.ended = True
        if call.row is not None:
            self._free_if_unused(call.row)
        self._serve()

    def memory_is_free(self, row: Row, job: int) -> None:
        """The job of the library has finished with the row. It may be called twice, if an exception has interrupted the first
        call."""
        if row.job == job:
            row.job = None
            self._free_if_unused(row)
        self._serve()

    def wake_all(self) -> None:
        """Wakes the calls that wait for a row: the store is closed."""
        for call in self._wanting:
            call.wake()

    def _free_if_unused(self, row: Row) -> None:
        if row.is_free():
            self._free[id(row)] = row

    def _serve(self) -> None:
        while self._wanting:
            call = self._wanting[0]
            if not call.ended and call.row is None:
                row = next((row for row in self._free.values() if row.is_free()), None)
                if row is None:
                    return
                row.caller = weakref.ref(call)  # an exception may interrupt these lines: a row in _free need not be free
                call.row = row
                del self._free[id(row)]
            call.wake()
            self._wanting.popleft()

    def _grow(self) -> None:
        """Doubles the number of rows, up to the largest number."""
        count = min(max(1, len(self._rows)), rows_max(self._block_bytes) - len(self._rows))
        if count <= 0:
            return
        memory = mmap.mmap(-1, count * self._block_bytes)
        region = self._register(memory)
        rows = region._rows
        assert rows is not None
        for index in range(count):
            row = Row(region, memory, rows.address + index * self._block_bytes, index)
            self._rows[id(row)] = row
            self._free[id(row)] = row
