"""The common part of Store and OffloadCache: a handle of the library, and threads and event loops that wait for its one
descriptor.

An exception may interrupt any line here, because Python raises KeyboardInterrupt and the time-outs of signal handlers at any
place. So each step leaves a state from which the next call can continue: a result of the library is taken again from its
beginning (Returned), and a call that may or may not have reached the library is checked later (Attempts).
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import select
import threading
import time
import weakref
from collections.abc import Callable
from ctypes import POINTER, byref, c_size_t, c_void_p
from types import TracebackType
from typing import Any, ClassVar, Protocol, TypeVar

from . import _interface, _library
from ._keys import Keys, Names, keys_of_names
from ._library import NEVER, TerraceError, check, error_of, lib
from ._structures import Uncopied, c_text

Self = TypeVar("Self", bound="Closing")


class Returned:
    """An array that a function of the library returns, and that stays valid until the next call of this function."""

    __slots__ = ("_array", "_call", "_count", "_function")

    def __init__(self, function: Any, item: type[ctypes.Structure]) -> None:
        self._function = function
        self._array = POINTER(item)()
        self._count = c_size_t()
        self._call = 0

    def collect(self, handle: c_void_p, take: Callable[[int, Any, int], None]) -> None:
        """Calls the function, and take(number of this call, array, count) if the array is not empty. If an exception interrupts
        `take`, the next collect() calls it again with the same arguments first."""
        self._take(take)
        self._call += 1
        check(self._function(handle, byref(self._array), byref(self._count)))
        self._take(take)

    def _take(self, take: Callable[[int, Any, int], None]) -> None:
        if self._count.value:
            take(self._call, self._array, self._count.value)
            self._count.value = 0


class Attempt:
    """A call of the library that creates something. `undo` is called if it is not known to have succeeded."""

    __slots__ = ("ended", "undo")

    def __init__(self, undo: Callable[[], None]) -> None:
        self.undo = undo
        self.ended = False


class Attempts:
    """Calls of the library that are not known to have succeeded. Threads: the lock of the store or cache is held."""

    __slots__ = ("_unsure",)

    def __init__(self) -> None:
        self._unsure: list[Attempt] = []

    def make(self, call: Callable[[], int], undo: Callable[[], None]) -> None:
        """Calls `call`, which returns a status. If it fails, calls `undo` and raises the error. If an exception interrupts it,
        `undo` is called by the next settle(); it checks what the library has."""
        attempt = Attempt(undo)
        self._unsure.append(attempt)
        try:
            status = call()
            sentence = _library.last_error() if status != _interface.OK else ""
            if status != _interface.OK:
                undo()
            self._unsure.remove(attempt)
        finally:
            attempt.ended = True
        if status != _interface.OK:
            raise error_of(status, sentence)

    def settle(self) -> None:
        """Undoes the calls that an exception has interrupted."""
        for attempt in [each for each in self._unsure if each.ended]:
            attempt.undo()
            self._unsure.remove(attempt)


class Waiter:
    """A waiter on an event loop or (without one) on a thread. It waits until another thread or task calls wake()."""

    __slots__ = ("_future", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._loop = loop
        self._future: asyncio.Future[None] | None = None

    def wake(self) -> None:
        """Ends a wait on the event loop, from any thread. If the loop is closed, there is no wait."""
        if self._loop is not None:
            try:
                self._loop.call_soon_threadsafe(self._wake)
            except RuntimeError:
                pass

    def _wake(self) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    async def until(self, done: Callable[[], bool]) -> None:
        """Waits on the event loop until `done`."""
        assert self._loop is not None
        while True:
            self._future = self._loop.create_future()  # made before `done` is called: a later wake() ends the wait
            if done():
                return
            await self._future


class Closing(Uncopied):
    """The base of objects whose handle of the library ends by close()."""

    _handle: c_void_p | None

    def close(self) -> None:
        """Ends all work, and releases everything. A second call does nothing."""
        raise NotImplementedError

    def __enter__(self: Self) -> Self:
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

    @property
    def closed(self) -> bool:
        """True after close(), and in a child process that a fork has made."""
        return self._handle is None


class Polled(Closing):
    """A handle of the library that threads and event loops poll: what a Store and an OffloadCache share.

    Threads: `_lock` guards everything, and is not held during a wait. Each waiting thread polls for all threads, and rings the
    bells of the others if there are results. An event loop polls when the descriptor is readable, or when a deadline has come.
    (Locks of `threading` that are written in Python, such as Condition, may stay locked after an exception of a signal handler.
    RLock is written in C, and `with` takes and releases it without a gap for an exception.)
    """

    _what: ClassVar[str]  # "store" or "cache", in errors
    _prefix: ClassVar[str]  # prefix of the library's functions

    def __init__(self, namespace: bytes, log: Callable[[int, str], None] | None) -> None:
        self.namespace = bytes(namespace)
        self._log = _log_function(log)
        self._handle: c_void_p | None = None
        self._lock = threading.RLock()
        self._sleepers: set[_Bell] = set()
        self._arrivals = 0  # a number that grows with each arrival
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._attempts = Attempts()
        self._end = f"the {self._what} is closed"
        self._process = os.getpid()
        self._fd = getattr(lib, self._prefix + "_fd")
        self._next_poll = getattr(lib, self._prefix + "_next_poll")
        tell_of_forks(self)

    def _collect(self) -> None:
        """Takes the results of the library, and increases _arrivals. The lock is held, and the handle is open."""
        raise NotImplementedError

    def _has_news(self) -> bool:
        """True if poll() would return something although the library has nothing new. The lock is held."""
        raise NotImplementedError

    def _has_work(self) -> bool:
        """True if a task of an event loop waits for a job. The lock is held."""
        raise NotImplementedError

    def _let_go(self) -> None:
        """Releases all memory. The library does not use it in this process."""
        raise NotImplementedError

    def _open(self) -> c_void_p:
        if self._handle is None:
            raise error_of(_interface.STOPPED, self._end)
        return self._handle

    def _options(self, config: str, name: str) -> _interface.OpenOptions:
        given = _interface.OpenOptions(config=config, config_name=name)
        if self._log is not None:
            given.log = self._log
        return given

    def _keys(self, keys: Names) -> Keys:
        return keys if isinstance(keys, Keys) else keys_of_names(self.namespace, keys)

    def _read(self, function: Any, value: ctypes.Structure, *which: int) -> dict[str, int]:
        """What a function of the library fills in."""
        with self._lock:
            check(function(self._open(), *which, byref(value)))
        return {field: getattr(value, field) for field, *_ in value._fields_ if field != "struct_size"}

    def resume_shared(self, weights_revision: str | None = None) -> None:
        """Uses the shared store again, for weights of this revision from now on. None: the names of blocks have the same meaning
        as before the clear."""
        revision = c_text("weights_revision", weights_revision)
        with self._lock:
            check(getattr(lib, self._prefix + "_resume_shared")(self._open(), revision))

    # ---- threads

    def _poll(self) -> None:
        """Collects the results for all threads. The lock is held."""
        self._open()
        before = self._arrivals
        self._collect()
        if self._arrivals != before:
            self._wake_threads()

    def _wake_threads(self) -> None:
        """Wakes all waiting threads, so that they check their conditions. The lock is held."""
        for bell in list(self._sleepers):  # one of them may be collected meanwhile
            bell.ring()

    def _until(self, done: Callable[[], bool], end: float | None = None) -> bool:
        """Polls until `done`, until the time `end` (of time.monotonic()), or until the handle is closed. Returns done()."""
        while True:
            with self._lock:
                if self._handle is not None:
                    self._poll()
                left = None if end is None else end - time.monotonic()
                if done():
                    return True
                if self._handle is None or (left is not None and left <= 0):
                    return False
                sleep = self._sleep(left)
            sleep()

    def _sleep(self, seconds: float | None) -> Callable[[], None]:
        """Returns a function that waits for the descriptor, a bell, the next deadline or this time. The lock is held now, and
        must not be held when the function is called."""
        time_left = min(self._next_poll(self._open()), nanoseconds(seconds))
        return _Sleep(self, _Bell(self._fd(self._open())), time_left)

    def fileno(self) -> int:
        """A descriptor that is readable when poll() has something."""
        with self._lock:
            return int(self._fd(self._open()))

    def wait(self, timeout: float | None = None) -> None:
        """Waits until poll() has something to do, or until the time is over. `timeout` is in seconds."""
        with self._lock:
            self._open()
            if self._has_news():
                return
            sleep = self._sleep(timeout)
        sleep()

    # ---- event loops

    def _serve_on(self, loop: asyncio.AbstractEventLoop) -> None:
        """Polls on this loop from now on. The lock is held."""
        if self._loop is not loop:
            self._stop_serving()
            loop.add_reader(self._fd(self._open()), self._serve)
            self._loop = loop

    def _serve(self) -> None:
        """Polls for the event loop, and sets a timer for the next deadline."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if self._handle is None or self._loop is None:
                return
            self._poll()
            wait = self._next_poll(self._handle)
            if wait != NEVER and self._has_work():
                self._timer = self._loop.call_later(wait / 1e9, self._serve)

    def _stop_serving(self) -> None:
        """Removes the descriptor from its event loop. The lock is held, and the handle is open."""
        loop, self._loop = self._loop, None
        if loop is None or loop.is_closed():
            return
        descriptor = self._fd(self._handle)
        if loop.is_running() and loop is not asyncio._get_running_loop():
            loop.call_soon_threadsafe(loop.remove_reader, descriptor)  # the loop of another thread
        else:
            loop.remove_reader(descriptor)

    # ---- the end

    def _forked(self) -> None:
        """In a child process: the store or cache continues only in the parent. The library has closed its descriptors here."""
        self._lock = threading.RLock()
        self._sleepers = set()
        self._handle = None
        self._end = f"the {self._what} belongs to process {self._process}, which was forked; this process must open one of its own"
        self._let_go()


class Forkable(Protocol):
    """An object that a child process gets a copy of."""

    def _forked(self) -> None:
        """Called in a child process, before any other code. The object of the parent continues."""


_living: weakref.WeakSet[Forkable] = weakref.WeakSet()


def tell_of_forks(each: Forkable) -> None:
    """Calls _forked() in child processes while the object exists."""
    _living.add(each)


def _after_fork() -> None:
    for each in list(_living):
        each._forked()


os.register_at_fork(after_in_child=_after_fork)


class _Sleep:
    """The wait of one thread. The bell is rung only while this object exists, also if an exception comes before the wait."""

    __slots__ = ("_bell", "_polled", "_time_left")

    def __init__(self, polled: Polled, bell: _Bell, time_left: int) -> None:
        self._polled, self._bell, self._time_left = polled, bell, time_left
        polled._sleepers.add(bell)

    def __call__(self) -> None:
        self._bell.wait(self._time_left)

    def __del__(self) -> None:
        if hasattr(self, "_bell"):
            with self._polled._lock:
                self._polled._sleepers.discard(self._bell)


class _Bell:
    """Lets one thread wait for a descriptor, and wakes it. Its descriptors are closed with it."""

    _watched = _own = -1

    def __init__(self, descriptor: int) -> None:
        self._watched = os.dup(descriptor)  # another thread may close the handle during the wait
        self._own = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def ring(self) -> None:
        os.eventfd_write(self._own, 1)

    def wait(self, time_left: int) -> None:
        """`time_left` is in nanoseconds."""
        readable = select.poll()
        readable.register(self._watched, select.POLLIN)
        readable.register(self._own, select.POLLIN)
        readable.poll(None if time_left == NEVER else min(-(-time_left // 1_000_000), 2**31 - 1))

    def __del__(self) -> None:
        for descriptor in (self._watched, self._own):
            if descriptor >= 0:
                os.close(descriptor)


def _log_function(log: Callable[[int, str], None] | None) -> Any:
    if log is None:
        return None

    def write(_context: Any, level: int, sentence: int, size: int) -> None:
        log(level, ctypes.string_at(sentence, size).decode("utf-8", "replace"))

    return _interface.LogFunction(write)


LONGEST_WAIT = 300.0
"""The time-out in seconds of calls that wait until something has ended, if their caller names none. With None they wait without
end."""
_LONGEST = 9e9
"""Seconds that the library can count, 285 years."""


def nanoseconds(seconds: float | None, name: str = "timeout") -> int:
    """Converts a time of Python to one of the library.

    Raises:
        ValueError: It is negative or no number.
    """
    if seconds is None:
        return NEVER
    if not seconds >= 0:
        raise ValueError(f"{name} is {seconds} seconds, must be at least 0")
    return int(min(seconds, _LONGEST) * 1e9)


def end_of(timeout: float | None) -> float | None:
    """The time of time.monotonic() at which a time-out in seconds is over. Raises ValueError as nanoseconds() does."""
    return None if timeout is None else time.monotonic() + nanoseconds(timeout) / 1e9
