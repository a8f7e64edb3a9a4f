"""Blocking reads and writes of batches of blocks, for the threads on which SGLang calls a storage back end."""

from __future__ import annotations

import ctypes
import mmap
import secrets
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Protocol

from .._keys import KEY_BYTES, Keys, joined, keys_of_names, raw_keys
from .._interface import CORRUPT, NOT_FOUND, OK
from .._library import Busy, TerraceError, status_text
from .._memory import Rows
from .._staging import Call
from ..store import Region, Result, Store
from .report import Report

_NO_KEY = bytes(KEY_BYTES)
STAGING_BYTES = 16 << 20
"""Size of a staging memory, or one page if that is larger."""
_JOB_BLOCKS = 4096  # a Store has at most 65536 blocks under way, for all callers together


class Lent(Protocol):
    """Staging memory that is lent for a `with` block."""

    address: int
    rows: int

    def read(self, keys: Keys) -> list[bool]:
        """Reads blocks into the first rows, and waits. Returns for each block whether its row has the bytes."""


class Blocks(Protocol):
    """The source of blocks: the store of this process, or the store of the process that writes for several ranks."""

    def contains(self, keys: Keys) -> list[bool]:
        """For each key, whether a read would find the block."""

    def lend(self, rows: int) -> AbstractContextManager[Lent | None]:
        """Lends staging memory of at least `rows` blocks; None if reads are not possible now."""


def address_of(memory: mmap.mmap) -> int:
    """The address of mapped memory."""
    rows = Rows(memory, len(memory))
    try:
        return rows.address
    finally:
        rows.release()


class _LocalLent:
    """Staging memory that is a region of a store."""

    def __init__(self, blocks: LocalBlocks, rows: int) -> None:
        self._blocks = blocks
        self._memory = mmap.mmap(-1, rows * blocks.store.block_bytes)
        self.address = address_of(self._memory)
        self.rows = rows
        self.region = blocks.store.register(self._memory)

    def read(self, keys: Keys) -> list[bool]:
        return [status == 0 for status in self._blocks.read(keys, self.region, range(keys.count))]

    def write(self, keys: Keys, parents: Keys | None) -> list[bool]:
        """Stores the blocks in the first rows, and waits. Returns for each block whether it is stored."""
        return [status == 0 for status in self._blocks.write(keys, self.region, range(keys.count), parents)]


class LocalBlocks:
    """Blocks of a Store of this process. Several threads may call at a time."""

    def __init__(self, store: Store, probe_timeout: float = 0.02) -> None:
        self.store = store
        self.probe_timeout = probe_timeout
        """The longest time in seconds that a look-up waits for the shared store, if there is one."""
        self._reports = {False: Report("reading from the store"), True: Report("writing to the store")}
        # Writes have their own memory, so that they do not wait for reads.
        self._lent: dict[bool, _LocalLent | None] = {False: None, True: None}
        self._lent_locks = {False: threading.Lock(), True: threading.Lock()}
        self._salt = b""  # added to the keys since a clear
        self._lock = store._lock

    def contains(self, keys: Keys) -> list[bool]:
        """For each block, whether a read would find it. The shared store is asked for the blocks from the first one that is not
        here; it counts those that follow without a gap."""
        keys = self._named(keys)
        found = self.store.contains_many(keys)
        if self.store.shares and False in found:
            gap = found.index(False)
            for i in range(gap, gap + self.store.leading_shared(keys[gap:], self.probe_timeout)):
                found[i] = True
        return found

    def clear(self) -> None:
        """Removes all blocks. From now on the keys of this object have other names, which no other process can find, and a shared
        store is not used: the weights may have changed, and the keys do not show that."""
        with self._lock:
            self._salt = secrets.token_bytes(16)
            self.store.clear()

    def _named(self, keys: Keys) -> Keys:
        """The names of the keys in the store. A key of zeros is not changed."""
        if not self._salt:
            return keys
        salted = keys_of_names(self._salt, list(keys))
        return joined([salted[i] if key != _NO_KEY else key for i, key in enumerate(keys)])

    def touch(self, keys: Keys) -> None:
        """Records a use of the blocks, so that they are evicted later."""
        self.store.touch(self._named(keys))

    def read(self, keys: Keys, region: Region, rows: Sequence[int]) -> list[int]:
        return self._run(False, keys, region, rows, None)

    def write(self, keys: Keys, region: Region, rows: Sequence[int], parents: Keys | None = None) -> list[int]:
        """Stores the blocks in these rows, and waits. Returns the status of each: 0 if it is stored. A block is evicted before
        its parent; a key of zeros stands for no parent.
        """
        return self._run(True, keys, region, rows, parents)

    @contextmanager
    def lend(self, rows: int) -> Iterator[_LocalLent]:
        with self._lend(False, rows) as lent:
            yield lent

    @contextmanager
    def lend_for_writing(self, rows: int) -> Iterator[_LocalLent]:
        """Lends staging memory of at least `rows` blocks for writes."""
        with self._lend(True, rows) as lent:
            yield lent

    @contextmanager
    def _lend(self, is_put: bool, rows: int) -> Iterator[_LocalLent]:
        with self._lent_locks[is_put]:
            lent = self._lent[is_put]
            if lent is None or lent.rows < rows:
                if lent is not None:
                    self._lent[is_put] = None
                    lent.region.close()
                lent = self._lent[is_put] = _LocalLent(self, max(rows, STAGING_BYTES // self.store.block_bytes))
            try:
                yield lent
            except BaseException:
                # A job whose number was lost may still use the memory, so it is not lent again. The store keeps it.
                self._lent[is_put] = None
                with suppress(TerraceError):
                    lent.region.close()
                raise

    def close(self) -> None:
        """Releases the staging memory. The store is closed, or nothing is under way."""
        for lent in self._lent.values():
            if lent is not None:
                lent.region.close()
        self._lent = {False: None, True: None}

    def _run(self, is_put: bool, keys: Keys, region: Region, rows: Sequence[int], parents: Keys | None) -> list[int]:
        calls: deque[Call] = deque()
        statuses: list[int] = []
        try:
            for first in range(0, keys.count, _JOB_BLOCKS):
                last = min(first + _JOB_BLOCKS, keys.count)
                call = None
                while call is None:
                    arrived = self.store._arrivals
                    call = self._submit(is_put, keys, region, rows, parents, first, last)
                    if call is not None:
                        calls.append(call)
                    elif calls:
                        statuses += self._finish(calls.popleft()).statuses
                    else:  # wait for jobs of other threads
                        self.store._until(lambda: self.store._arrivals != arrived)
        finally:
            # After any failure, the rows must not be used again before the disk has finished with them.
            while calls:
                statuses += self._finish(calls.popleft()).statuses
        self.store.events()  # take them: a Store keeps them until they are taken
        self._judge(is_put, statuses)
        return statuses

    def _judge(self, is_put: bool, statuses: Sequence[int]) -> None:
        """Reports success or failure of the disk. A miss or a damaged block shows neither."""
        failures = [status for status in statuses if status not in (OK, NOT_FOUND, CORRUPT)]
        if failures:
            reason = self.store.health()[1] or status_text(failures[0])
            self._reports[is_put].failed(f"{len(failures)} of {len(statuses)} blocks: {reason}")
        elif OK in statuses:
            self._reports[is_put].well()

    def _submit(
        self, is_put: bool, keys: Keys, region: Region, rows: Sequence[int], parents: Keys | None, first: int, last: int
    ) -> Call | None:
        """Starts a job. Returns None if too much work is under way.

        Raises:
            Busy: The store refuses the job although nothing is under way.
        """
        with self._lock:
            part = self._named(joined([raw_keys(keys, first, last)]))
            before = None if parents is None else self._named(joined([raw_keys(parents, first, last)]))
            is_alone = self.store._is_idle()
            try:
                return self.store._start(is_put, part, region, rows[first:last], before)
            except Busy:
                if is_alone:
                    raise
                return None

    def _finish(self, call: Call) -> Result:
        return self.store._finish(call)
