"""The shared library of Terrace, and its errors as exceptions. Its functions and structures are in _interface.py.

Everything here is private. Each function of the library is called once for a batch. ctypes releases the GIL while the function
runs.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
from array import array
from collections.abc import Iterable
from ctypes import c_uint32
from pathlib import Path

from ._interface import (
    DEADLINE_EXCEEDED,
    DUPLICATE_REQUEST,
    FULL,
    FUNCTIONS,
    INVALID_ARGUMENT,
    IN_USE,
    IO_FAILED,
    NEVER_FITS,
    NOT_FOUND,
    NOT_READY,
    NO_ROOM,
    OK,
    PAUSED,
    REFUSED,
    STOPPED,
)
from ._structures import in_range

NEVER = (1 << 63) - 1
ABI_MAJOR = 0
ABI_MINOR = 1


class TerraceError(Exception):
    """A call has failed. `status` is the number of terrace.h: positive for Terrace's own codes, negative for an errno."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class InvalidArgument(TerraceError, ValueError):
    """The arguments are wrong. The call has changed nothing."""


class Busy(TerraceError):
    """Too much work is under way, or something is in use. The same call may succeed later."""


class Paused(TerraceError):
    """The cache is being cleared, or has been cleared and waits to be resumed. It is no Busy, because the end of other work does not
    help: until it is resumed, an engine computes everything, or holds its requests back."""


class NotFound(TerraceError, LookupError):
    """There is no such thing."""


class Stopped(TerraceError):
    """The store or cache is closing, and accepts no more work."""


class DeadlineExceeded(TerraceError, TimeoutError):
    """The time is over."""


class StorageError(TerraceError, OSError):
    """The disk or the system has failed. `errno` is set if there is an errno."""

    def __init__(self, status: int, sentence: str) -> None:
        TerraceError.__init__(self, status, sentence)
        self.errno = -status if status < 0 else None

    def __str__(self) -> str:
        return str(self.args[0])


_EXCEPTIONS: dict[int, type[TerraceError]] = {
    INVALID_ARGUMENT: InvalidArgument,
    NEVER_FITS: InvalidArgument,
    DUPLICATE_REQUEST: InvalidArgument,
    NO_ROOM: Busy,
    NOT_READY: Busy,
    REFUSED: Busy,
    IN_USE: Busy,
    PAUSED: Paused,
    NOT_FOUND: NotFound,
    STOPPED: Stopped,
    DEADLINE_EXCEEDED: DeadlineExceeded,
    IO_FAILED: StorageError,
    FULL: StorageError,
}


def error_of(status: int, sentence: str) -> TerraceError:
    """Makes the exception for a status."""
    kind = _EXCEPTIONS.get(status, StorageError if status < 0 else TerraceError)
    return kind(status, sentence)


GENERATED = "generated"
"""The name of a configuration that this package has written."""
# Removed from messages: the function of the C interface, and the line in a configuration that this package has made.
_NOT_OF_THE_CALLER = re.compile(rf"^terrace_\w+: (?:{GENERATED}:\d+: )?")
def row_numbers(name: str, numbers: Iterable[int]) -> array[int]:
    """Makes an array of uint32_t.

    Raises:
        ValueError: A number does not fit.
    """
    given = numbers if isinstance(numbers, (list, tuple, range)) else list(numbers)
    try:
        return array("I", given)
    except OverflowError:
        for i, number in enumerate(given):
            in_range(f"{name}[{i}]", number, c_uint32)
        raise


def _find() -> str:
    """The path of the library in this package. TERRACE_LIBRARY names another one, for tests of the package in a source tree."""
    named = os.environ.get("TERRACE_LIBRARY")
    if named:
        return named
    return str(Path(__file__).parent / "lib" / "libterrace.so")


def _load() -> ctypes.CDLL:
    path = _find()
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(f"terrace_kv: {error}") from error
    for name, (result, arguments) in FUNCTIONS.items():
        function = getattr(library, name, None)
        if function is None:
            raise ImportError(f"terrace_kv: {path} has no function {name}: it is older than this package")
        function.restype = result
        function.argtypes = arguments
    version = library.terrace_c_version()
    if version >> 16 != ABI_MAJOR or version & 0xFFFF < ABI_MINOR:
        raise ImportError(
            f"terrace_kv: {path} has version {version >> 16}.{version & 0xFFFF} of the C interface; "
            f"this package needs {ABI_MAJOR}.{ABI_MINOR}"
        )
    return library


lib = _load()


def last_error() -> str:
    """The message of the last failure on this thread."""
    text: bytes = lib.terrace_last_error()
    return _NOT_OF_THE_CALLER.sub("", text.decode("utf-8", "replace"))


def check(status: int) -> None:
    """Raises the exception of a status that is not OK."""
    if status != OK:
        raise error_of(status, last_error())


def status_text(status: int) -> str:
    """A short text for a status."""
    text: bytes = lib.terrace_status_text(status)
    return text.decode("utf-8", "replace")


def cuda_built() -> bool:
    """True if the library was built with the CUDA device. The driver is found at run time; `terrace doctor` reports it.

    Raises:
        FileNotFoundError: TERRACE_LIBRARY names a library without the file libterrace.json that a build puts beside it.
    """
    return bool(json.loads(Path(_find()).with_name("libterrace.json").read_text())["cuda"])
