"""Copies objects between LMCache's memory and the store, through memory of this package.

The disk never uses LMCache's memory, which LMCache may free at any time after a task has ended. So a disk that does not answer
costs a task its deadline and nothing else. Objects need no alignment, and their size need not be a multiple of a block.
"""

from __future__ import annotations

import ctypes
import mmap
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from .._interface import CORRUPT, DEADLINE_EXCEEDED, NOT_FOUND, OK, STOPPED
from .._keys import Keys
from .._library import Busy, TerraceError
from .._memory import Rows
from ..store import BatchKind, EventKind, Region, Result, Store

STAGING_BYTES = 16 << 20
"""Memory for each direction, or 4 blocks if that is more."""
_JOB_BYTES = 2 << 20
_BUSY_SECONDS = 0.02


Part = tuple[int, int]
"""The bytes of one block in LMCache's memory: address and size."""


@dataclass
class Move:
    """Blocks that are stored, or loaded into LMCache's memory."""

    is_put: bool
    keys: Keys
    parts: Sequence[Part]
    parents: Keys | None
    """For a store: by block, the key of the block before it in its object; zeros for the first one. None: no block has one."""
    owner: object
    """Keeps the memory of the parts."""
    deadline: float
    """A time of time.monotonic(). Blocks that have not moved by then fail."""
    ended: Callable[[Move], None]
    """Called once, when no block is under way any more."""
    moved: list[bool] = field(default_factory=list)
    """By block: whether it is stored, or loaded."""
    error: int = 0
    """The status of the first block that failed; a miss is none."""
    _next: int = 0
    _left: int = 0

    def __post_init__(self) -> None:
        self.moved = [False] * len(self.parts)
        self._left = len(self.parts)


@dataclass
class _Job:
    move: Move
    first: int
    rows: list[int]


class _Lane:
    """One direction: its staging memory, and the moves that wait for it."""

    def __init__(self, store: Store) -> None:
        count = max(4, STAGING_BYTES // store.block_bytes)
        self._memory = mmap.mmap(-1, count * store.block_bytes)
        rows = Rows(self._memory, store.block_bytes)
        self.address = rows.address
        rows.release()
        self.region: Region = store.register(self._memory)
        self.free = list(range(count))
        self.waiting: deque[Move] = deque()


class Transfers:
    """Moves under way. Threads: one thread calls all members.

    Args:
        store: Nothing else submits jobs to it.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._block_bytes = store.block_bytes
        self._job_blocks = max(1, _JOB_BYTES // store.block_bytes)
        self._loads, self._stores = _Lane(store), _Lane(store)
        self._jobs: dict[int, _Job] = {}
        self._late: dict[int, tuple[_Lane, list[int]]] = {}
        self._number = 0
        self._is_refused = False

    def start(self, move: Move) -> None:
        """Queues a move. step() begins it."""
        if move.parts:
            self._lane(move.is_put).waiting.append(move)
        else:
            move.ended(move)

    def is_idle(self) -> bool:
        """True if no move is queued or under way."""
        return not self._jobs and not self._loads.waiting and not self._stores.waiting

    def stop(self) -> None:
        """Ends what the disk has not begun."""
        for lane in (self._loads, self._stores):
            while lane.waiting:
                self._give_up(lane, STOPPED)

    def abandon(self) -> None:
        """Ends everything after an error of this class, without waiting for the disk. Its memory is not used again."""
        self.stop()
        jobs, self._jobs = self._jobs, {}
        for job in jobs.values():
            job.move.error = job.move.error or STOPPED
            self._count_down(job.move, len(job.rows))

    def seconds_left(self) -> float | None:
        """The time after which step() must be called even if the store has nothing new. None: no limit."""
        if self._is_refused:
            return _BUSY_SECONDS
        ends = [lane.waiting[0].deadline for lane in (self._loads, self._stores) if lane.waiting]
        ends += [job.move.deadline for job in self._jobs.values()]
        return max(0.0, min(ends) - time.monotonic()) if ends else None

    def step(self) -> list[bytes]:
        """Takes the results of the store, and starts what can be started; loads first. Returns the keys of blocks that the store
        has given up."""
        for result in self._store.poll():
            self._take(result)
        gone: list[bytes] = []
        for event in self._store.events():
            if event.kind is EventKind.MEMORY_FREE:
                lane, rows = self._late.pop(event.job)
                lane.free += rows
            elif event.kind is not EventKind.STORED:
                gone.append(event.key)
        self._is_refused = False
        for lane in (self._loads, self._stores):
            self._fill(lane)
        return gone

    # ---- inside

    def _lane(self, is_put: bool) -> _Lane:
        return self._stores if is_put else self._loads

    def _fill(self, lane: _Lane) -> None:
        while lane.waiting:
            if time.monotonic() >= lane.waiting[0].deadline:
                self._give_up(lane, DEADLINE_EXCEEDED)
            elif not lane.free or not self._submit(lane, lane.waiting[0]):
                return

    def _submit(self, lane: _Lane, move: Move) -> bool:
        """Starts a job with blocks of this move. Returns False if the store has too much under way."""
        first = move._next
        count = min(len(move.parts) - first, self._job_blocks, len(lane.free))
        rows = lane.free[-count:]
        if move.is_put:
            for row, (address, size) in zip(rows, move.parts[first : first + count]):
                at = lane.address + row * self._block_bytes
                ctypes.memmove(at, address, size)
                if size < self._block_bytes:
                    ctypes.memset(at + size, 0, self._block_bytes - size)
        self._number += 1
        keys = move.keys[first : first + count]
        timeout = max(0.001, move.deadline - time.monotonic())
        try:
            if move.is_put:
                parents = None if move.parents is None else move.parents[first : first + count]
                self._store.submit_put(self._number, keys, lane.region, rows, parents=parents, timeout=timeout)
            else:
                self._store.submit_get(self._number, keys, lane.region, rows, timeout=timeout)
        except Busy:
            self._is_refused = True
            return False
        except TerraceError as error:
            self._give_up(lane, error.status)
            return True
        del lane.free[-count:]
        self._jobs[self._number] = _Job(move, first, rows)
        move._next += count
        if move._next == len(move.parts):
            lane.waiting.popleft()
        return True

    def _give_up(self, lane: _Lane, status: int) -> None:
        """Fails the blocks of the first move that are not under way."""
        move = lane.waiting.popleft()
        move.error = move.error or status
        left = len(move.parts) - move._next
        move._next = len(move.parts)
        self._count_down(move, left)

    def _take(self, result: Result) -> None:
        """Copies what has come, and counts it. After an exception the job is still there, so that abandon() ends it."""
        job = self._jobs[result.job]
        move, lane = job.move, self._lane(result.kind is BatchKind.PUT)
        # After the deadline, LMCache may have given the memory of a load to others, although the read was in time.
        is_late = not move.is_put and time.monotonic() > move.deadline
        for i, (row, status) in enumerate(zip(job.rows, result.statuses), job.first):
            if status != OK or is_late:
                move.error = move.error or (DEADLINE_EXCEEDED if is_late else _failure(status))
                continue
            if not move.is_put:
                address, size = move.parts[i]
                ctypes.memmove(address, lane.address + row * self._block_bytes, size)
            move.moved[i] = True
        if result.memory_in_use:
            self._late[result.job] = (lane, job.rows)
        else:
            lane.free += job.rows
        del self._jobs[result.job]
        self._count_down(move, len(job.rows))

    def _count_down(self, move: Move, blocks: int) -> None:
        move._left -= blocks
        if move._left == 0:
            move.ended(move)


def _failure(status: int) -> int:
    """The status, or 0 if it only means that the block is not there."""
    return 0 if status in (NOT_FOUND, CORRUPT) else status
