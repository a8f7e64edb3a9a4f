"""The C interface of Terrace (terrace.h) by ctypes: the shared library, its structures and functions, and errors as exceptions.

Everything here is private. Each function of the library is called once for a batch. ctypes releases the GIL while the function
runs.
"""

from __future__ import annotations

import ctypes
import json
import operator
import os
import re
from array import array
from collections.abc import Iterable
from ctypes import POINTER, c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import Any

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


OK = 0
INVALID_ARGUMENT = 1
NO_ROOM = 2
NEVER_FITS = 3
DUPLICATE_REQUEST = 5
NOT_READY = 6
NOT_FOUND = 7
CORRUPT = 8
FULL = 10
IO_FAILED = 11
REFUSED = 13
CANCELLED = 14
DEADLINE_EXCEEDED = 15
IN_USE = 17
STOPPED = 20

_EXCEPTIONS: dict[int, type[TerraceError]] = {
    INVALID_ARGUMENT: InvalidArgument,
    NEVER_FITS: InvalidArgument,
    DUPLICATE_REQUEST: InvalidArgument,
    NO_ROOM: Busy,
    NOT_READY: Busy,
    REFUSED: Busy,
    IN_USE: Busy,
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
_LARGEST = {c_uint8: 0xFF, c_uint16: 0xFFFF, c_uint32: 0xFFFF_FFFF, c_uint64: 0xFFFF_FFFF_FFFF_FFFF}  # ctypes wraps around


def in_range(name: str, value: int, kind: Any) -> int:
    """Returns the integer if it fits an unsigned type of C.

    Raises:
        ValueError: It does not.
    """
    number = operator.index(value)
    if not 0 <= number <= _LARGEST[kind]:
        raise ValueError(f"{name} is {number}, must be from 0 to {_LARGEST[kind]}")
    return number


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


class Checked(ctypes.Structure):
    """A structure whose integers are checked: ctypes itself would let them wrap around."""

    def __init__(self, **fields: Any) -> None:
        for name, kind, *_ in self._fields_:
            if kind in _LARGEST and name in fields:
                fields[name] = in_range("job" if name == "id" else name, fields[name], kind)
        super().__init__(**fields)


class Key(ctypes.Structure):
    _fields_ = [("bytes", c_uint8 * 32)]


class Names(ctypes.Structure):
    _fields_ = [("bytes", c_char_p), ("lengths", c_void_p), ("length", c_uint32), ("count", c_uint32)]


class DeviceRegion(Checked):
    _fields_ = [
        ("rank", c_uint32),
        ("group", c_uint32),
        ("base", c_uint64),
        ("stride", c_uint64),
        ("bytes", c_uint64),
        ("layer", c_uint32),
        ("reserved", c_uint32),
    ]


class HostRows(Checked):
    _fields_ = [("address", c_void_p), ("stride", c_uint64), ("rows", c_uint32), ("pool", c_uint32)]


LogFunction = ctypes.CFUNCTYPE(None, c_void_p, c_int32, c_void_p, c_size_t)


class _Sized(Checked):
    """A structure with its size in a field. All other fields are 0 at first."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(struct_size=ctypes.sizeof(type(self)), **fields)


class OpenOptions(_Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("config", c_char_p),
        ("config_name", c_char_p),
        ("log", LogFunction),
        ("log_context", c_void_p),
        ("regions", POINTER(DeviceRegion)),
        ("region_count", c_size_t),
        ("host_rows", POINTER(HostRows)),
        ("host_rows_count", c_size_t),
    ]


class CloseReport(_Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("closed", c_int32),
        ("batches_left", c_uint32),
        ("error", c_int32),
        ("reserved", c_uint32),
    ]


class Batch(_Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("id", c_uint64),
        ("keys", c_void_p),
        ("rows", c_void_p),
        ("count", c_size_t),
        ("parents", c_void_p),
        ("region", c_uint32),
        ("reserved", c_uint32),
        ("deadline", c_int64),
    ]


class Probe(_Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("id", c_uint64),
        ("keys", c_void_p),
        ("count", c_size_t),
        ("deadline", c_int64),
    ]


class BatchResult(ctypes.Structure):
    _fields_ = [
        ("id", c_uint64),
        ("bytes", c_uint64),
        ("duration", c_uint64),
        ("statuses", POINTER(c_int32)),
        ("count", c_uint32),
        ("succeeded", c_uint32),
        ("kind", c_uint32),
        ("memory_in_use", c_uint32),
    ]


class StoreEvent(ctypes.Structure):
    _fields_ = [("key", Key), ("batch", c_uint64), ("kind", c_uint32), ("reserved", c_uint32)]


def _counters(*names: str) -> list[tuple[str, Any]]:
    return [("struct_size", c_size_t), *((name, c_uint64) for name in names)]


class StoreStatistics(_Sized):
    _fields_ = _counters(
        "gets", "hits", "misses", "corrupt", "get_failures", "gets_cancelled", "gets_late", "puts", "stored", "put_failures",
        "puts_cancelled", "puts_late", "read_bytes", "written_bytes", "unaligned_blocks", "refused", "without_parent",
        "flushes", "flush_failures", "not_flushed", "events_dropped", "batches", "waiting", "under_way", "capacity_blocks",
        "blocks", "evicted", "shared_hits", "shared_misses", "shared_stored", "shared_present", "shared_not_stored",
        "shared_gets", "shared_gets_declined", "shared_puts", "shared_puts_cancelled", "shared_puts_declined", "asked", "found",
    )  # fmt: skip


class Order(_Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("id", c_uint64),
        ("keys", c_void_p),
        ("count", c_size_t),
        ("slots", c_void_p),
        ("memory", c_void_p),
        ("first", c_uint32),
        ("pool", c_uint16),
        ("shared", c_uint16),
        ("tenant", c_uint64),
        ("after", c_uint64),
        ("deadline", c_int64),
        ("urgency", c_uint32),
        ("by_layer", c_uint32),
    ]


class OffloadEvent(ctypes.Structure):
    _fields_ = [
        ("job", c_uint64),
        ("kind", c_uint32),
        ("block", c_uint32),
        ("status", c_int32),
        ("source", c_uint32),
        ("layers", c_uint32),
        ("moved", c_uint32),
        ("failed", c_uint32),
        ("reserved", c_uint32),
    ]


class OffloadStatistics(_Sized):
    _fields_ = _counters(
        "jobs", "refused", "loaded_host", "loaded_storage", "load_misses", "load_failures", "stored", "already_there",
        "store_full", "store_failures", "joined", "late", "unconfirmed", "blocks_in_flight", "host_blocks", "host_free",
        "evicted_host", "dropped_lost", "swapped_out_bytes", "swapped_in_bytes", "storage_read_bytes",
        "storage_written_bytes", "durable_blocks", "loaded_shared", "shared_asked", "shared_there", "shared_written",
        "shared_present", "erasing", "shared_off", "loads", "stores", "asked", "found", "link_down",
    )  # fmt: skip


class CacheEvent(ctypes.Structure):
    _fields_ = [
        ("key", Key),
        ("parent", Key),
        ("tenant", c_uint64),
        ("kind", c_uint32),
        ("source", c_uint32),
        ("depth", c_uint32),
        ("group", c_uint32),
    ]


class WriteBack(_Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("scope", c_uint32),
        ("not_durable", c_uint32),
        ("keys", c_void_p),
        ("count", c_size_t),
        ("tenant", c_uint64),
        ("unused_for", c_int64),
        ("deadline", c_int64),
        ("budget", c_uint64),
        ("target", c_uint32),
        ("reserved", c_uint32),
    ]


class WriteBackProgress(_Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("state", c_uint32),
        ("flush_error", c_int32),
        *((name, c_uint64) for name in (
            "stored", "already_there", "dropped_full", "dropped_gone", "over_budget", "failed", "cancelled", "under_way",
            "written_bytes", "durable_bytes",
        )),
    ]  # fmt: skip


class WriteBackResult(ctypes.Structure):
    _fields_ = [("key", Key), ("outcome", c_uint32), ("status", c_int32)]


_H = c_void_p  # a handle
_STATUS = c_int32
_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "terrace_c_version": (c_uint32, []),
    "terrace_version": (c_char_p, []),
    "terrace_status_text": (c_char_p, [c_int32]),
    "terrace_last_error": (c_char_p, []),
    "terrace_keys_of_names": (_STATUS, [c_char_p, c_size_t, POINTER(Names), c_void_p]),
    "terrace_keys_of_prefix": (_STATUS, [c_char_p, c_size_t, c_void_p, POINTER(Names), c_void_p]),
    "terrace_keys_of_tokens": (_STATUS, [c_char_p, c_size_t, c_void_p, c_void_p, c_size_t, c_uint32, c_void_p]),
    "terrace_store_open": (_STATUS, [POINTER(OpenOptions), POINTER(_H)]),
    "terrace_store_destroy": (None, [_H]),
    "terrace_store_close": (_STATUS, [_H, c_int64, POINTER(CloseReport)]),
    "terrace_store_block_bytes": (c_uint64, [_H]),
    "terrace_store_register": (_STATUS, [_H, c_void_p, c_uint32, c_uint64, POINTER(c_uint32)]),
    "terrace_store_unregister": (_STATUS, [_H, c_uint32]),
    "terrace_store_contains": (_STATUS, [_H, c_void_p, c_size_t, c_void_p]),
    "terrace_store_leading": (_STATUS, [_H, c_void_p, c_size_t, POINTER(c_size_t)]),
    "terrace_store_touch": (_STATUS, [_H, c_void_p, c_size_t]),
    "terrace_store_put": (_STATUS, [_H, POINTER(Batch)]),
    "terrace_store_get": (_STATUS, [_H, POINTER(Batch)]),
    "terrace_store_probe": (_STATUS, [_H, POINTER(Probe)]),
    "terrace_store_flush": (_STATUS, [_H, c_uint64]),
    "terrace_store_cancel": (_STATUS, [_H, c_uint64]),
    "terrace_store_poll": (_STATUS, [_H, POINTER(POINTER(BatchResult)), POINTER(c_size_t)]),
    "terrace_store_events": (_STATUS, [_H, POINTER(POINTER(StoreEvent)), POINTER(c_size_t)]),
    "terrace_store_fd": (c_int, [_H]),
    "terrace_store_next_poll": (c_int64, [_H]),
    "terrace_store_wait": (_STATUS, [_H, c_int64]),
    "terrace_store_remove": (_STATUS, [_H, c_void_p, c_size_t]),
    "terrace_store_clear": (_STATUS, [_H]),
    "terrace_store_resume_shared": (_STATUS, [_H, c_char_p]),
    "terrace_store_stop": (None, [_H]),
    "terrace_store_drain": (_STATUS, [_H, c_int64]),
    "terrace_store_read_statistics": (_STATUS, [_H, POINTER(StoreStatistics)]),
    "terrace_store_health": (_STATUS, [_H, POINTER(c_int32), POINTER(c_char_p)]),
    "terrace_store_io": (c_char_p, [_H]),
    "terrace_offload_open": (_STATUS, [POINTER(OpenOptions), POINTER(_H)]),
    "terrace_offload_destroy": (c_int32, [_H, c_int64]),
    "terrace_offload_block_bytes": (c_uint64, [_H, c_uint16]),
    "terrace_offload_look_up": (_STATUS, [_H, c_uint16, c_void_p, c_size_t, c_void_p]),
    "terrace_offload_leading": (_STATUS, [_H, c_uint16, c_void_p, c_size_t, POINTER(c_size_t)]),
    "terrace_offload_find": (_STATUS, [_H, c_uint16, c_void_p, c_size_t, POINTER(c_size_t), POINTER(c_int32)]),
    "terrace_offload_contains": (_STATUS, [_H, c_uint16, c_void_p, c_size_t, c_void_p]),
    "terrace_offload_load": (_STATUS, [_H, POINTER(Order)]),
    "terrace_offload_store": (_STATUS, [_H, POINTER(Order)]),
    "terrace_offload_cancel": (_STATUS, [_H, c_uint64]),
    "terrace_offload_pin": (_STATUS, [_H, c_uint64, c_uint16, c_void_p, c_size_t, POINTER(c_uint32)]),
    "terrace_offload_pin_slots": (_STATUS, [_H, c_void_p, c_void_p]),
    "terrace_offload_unpin": (_STATUS, [_H, c_uint64]),
    "terrace_offload_touch": (_STATUS, [_H, c_uint16, c_void_p, c_size_t]),
    "terrace_offload_reserve": (_STATUS, [_H, POINTER(Order), c_void_p, POINTER(c_uint32)]),
    "terrace_offload_publish": (_STATUS, [_H, c_uint64, c_int32]),
    "terrace_offload_poll": (_STATUS, [_H, POINTER(POINTER(OffloadEvent)), POINTER(c_size_t)]),
    "terrace_offload_fd": (c_int, [_H]),
    "terrace_offload_next_poll": (c_int64, [_H]),
    "terrace_offload_wait": (_STATUS, [_H, c_int64]),
    "terrace_offload_stop": (None, [_H]),
    "terrace_offload_pause_idle_service": (_STATUS, [_H, c_int64]),
    "terrace_offload_drain": (_STATUS, [_H, c_int64]),
    "terrace_offload_signal": (_STATUS, [_H, c_void_p, c_uint32, POINTER(c_uint64)]),
    "terrace_offload_await": (_STATUS, [_H, c_uint64, c_uint32, c_void_p, c_uint32]),
    "terrace_offload_clear": (_STATUS, [_H, c_uint32]),
    "terrace_offload_resume_shared": (_STATUS, [_H, c_char_p]),
    "terrace_offload_resize": (_STATUS, [_H, c_uint32, c_uint32, c_uint16]),
    "terrace_offload_read_statistics": (_STATUS, [_H, POINTER(OffloadStatistics)]),
    "terrace_offload_record_events": (_STATUS, [_H]),
    "terrace_offload_events": (_STATUS, [_H, POINTER(POINTER(CacheEvent)), POINTER(c_size_t)]),
    "terrace_offload_event_expiries": (_STATUS, [_H, POINTER(POINTER(c_int64)), POINTER(c_size_t)]),
    "terrace_write_back_start": (_STATUS, [_H, POINTER(WriteBack), POINTER(c_uint64)]),
    "terrace_write_back_pause": (_STATUS, [_H, c_uint64]),
    "terrace_write_back_resume": (_STATUS, [_H, c_uint64]),
    "terrace_write_back_cancel": (_STATUS, [_H, c_uint64]),
    "terrace_write_back_read": (_STATUS, [_H, c_uint64, POINTER(WriteBackProgress)]),
    "terrace_write_back_results": (_STATUS, [_H, c_uint64, POINTER(POINTER(WriteBackResult)), POINTER(c_size_t)]),
}


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
    for name, (result, arguments) in _FUNCTIONS.items():
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
    return text.decode("utf-8", "replace")


def check(status: int) -> None:
    """Raises the exception of a status that is not OK."""
    if status != OK:
        raise error_of(status, _NOT_OF_THE_CALLER.sub("", last_error()))


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
