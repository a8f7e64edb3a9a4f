"""Memory of the caller as rows of one block each: objects with the buffer protocol, and tensors of torch."""

from __future__ import annotations

import ctypes
import re
from typing import Any

_PyBUF_RECORDS_RO = 0x0018 | 0x0004  # strides and format; read-only memory is allowed
_GetBuffer = ctypes.pythonapi.PyObject_GetBuffer
_Release = ctypes.pythonapi.PyBuffer_Release


class _PyBuffer(ctypes.Structure):
    """Py_buffer, which is part of CPython's stable ABI."""

    _fields_ = [
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.POINTER(ctypes.c_ssize_t)),
        ("strides", ctypes.POINTER(ctypes.c_ssize_t)),
        ("suboffsets", ctypes.POINTER(ctypes.c_ssize_t)),
        ("internal", ctypes.c_void_p),
    ]


_IncRef = ctypes.pythonapi.Py_IncRef
_DecRef = ctypes.pythonapi.Py_DecRef
_IncRef.argtypes = _DecRef.argtypes = [ctypes.py_object]
_IncRef.restype = _DecRef.restype = None
_GetBuffer.argtypes = [ctypes.py_object, ctypes.POINTER(_PyBuffer), ctypes.c_int]
_GetBuffer.restype = ctypes.c_int
_Release.argtypes = [ctypes.POINTER(_PyBuffer)]
_Release.restype = None


class Rows:
    """Rows of a buffer. Holds the buffer until release(). Until then a numpy array cannot be resized, and an mmap cannot be
    closed."""

    __slots__ = ("_buffer", "_owner", "address", "count", "readonly", "stride")

    def __init__(self, owner: Any, block_bytes: int) -> None:
        self._buffer: _PyBuffer | None = None
        self._owner: Any = owner
        if hasattr(owner, "data_ptr"):
            if owner.device.type != "cpu":
                raise ValueError(f"the tensor is on {owner.device}; a tensor in host memory is needed")
            item = owner.element_size()
            shape = tuple(owner.shape)
            strides = tuple(step * item for step in owner.stride())
            self.address = int(owner.data_ptr())
            self.readonly = False
        else:
            # Assigned before the call, so that an exception cannot lose the buffer. Releasing an empty buffer does nothing.
            buffer = self._buffer = _PyBuffer()
            if _GetBuffer(owner, ctypes.byref(buffer), _PyBUF_RECORDS_RO) != 0:  # raises an exception itself
                raise BufferError("the object gives no buffer")
            item = buffer.itemsize
            shape = tuple(buffer.shape[: buffer.ndim])
            # Arrays of ctypes report no strides, although they are requested. They are contiguous.
            strides = tuple(buffer.strides[: buffer.ndim]) if buffer.strides else _strides_in_one_piece(shape, item)
            self.address = int(buffer.buf or 0)
            if _has_pointers(buffer.format or b""):
                self.release()
                raise ValueError(f"the buffer holds references of Python or C (format {buffer.format!r}); it must hold plain bytes")
            self.readonly = bool(buffer.readonly)
        try:
            self.count, self.stride = _rows_of(shape, strides, item, block_bytes)
        except ValueError:
            self.release()
            raise

    def release(self) -> None:
        """Releases the buffer. A second call does nothing."""
        if self._buffer is not None:
            _Release(ctypes.byref(self._buffer))
            self._buffer = None
        self._owner = None

    def __del__(self) -> None:
        if getattr(self, "_buffer", None) is not None:
            self.release()


class Kept:
    """Keeps objects alive until end(), even at the exit of Python: a thread of the library may use them until then, even if their
    store or cache does not exist any more."""

    def __init__(self, *objects: object) -> None:
        self._objects = objects
        _IncRef(self)

    def end(self) -> None:
        """The library does not use the objects any more."""
        _DecRef(self)


def _has_pointers(item_format: bytes) -> bool:
    """True if items are objects or pointers: their bytes have no meaning in another process, and cannot be read back. Names of
    fields stand between colons; Z stands for a complex number before f, d and g, and for a pointer otherwise."""
    return re.search(rb"[OPXz&]|Z(?![fdg])", re.sub(rb":[^:]*:", b"", item_format)) is not None


def _strides_in_one_piece(shape: tuple[int, ...], item: int) -> tuple[int, ...]:
    strides = [item]
    for size in reversed(shape[1:]):
        strides.insert(0, strides[0] * size)
    return tuple(strides[: len(shape)])


def _rows_of(shape: tuple[int, ...], strides: tuple[int, ...], item: int, block_bytes: int) -> tuple[int, int]:
    """The number of rows, and the distance between them in bytes. If there are several dimensions, the first one counts rows."""
    within = item
    for size, stride in reversed(list(zip(shape, strides))[1:]):
        if size != 1 and stride != within:
            raise ValueError("each row of the buffer must lie in one piece")
        within *= size
    if len(shape) <= 1:
        total = item * (shape[0] if shape else 1)
        if shape and shape[0] > 1 and strides[0] != item:
            raise ValueError("the buffer must lie in one piece")
        if total == 0 or total % block_bytes != 0:
            raise ValueError(f"the buffer has {total} bytes, which are no whole number of blocks of {block_bytes}")
        return total // block_bytes, block_bytes
    if within != block_bytes:
        raise ValueError(f"a row of the buffer has {within} bytes, and a block has {block_bytes}")
    if shape[0] > 1 and strides[0] < within:
        raise ValueError("the rows of the buffer overlap, or run backwards")
    return shape[0], strides[0] if shape[0] > 1 else within
