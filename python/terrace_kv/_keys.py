"""Converts names of blocks to keys of the C interface."""

from __future__ import annotations

import ctypes
from array import array as packed_array
from collections.abc import Iterator, Sequence
from ctypes import byref
from typing import Any, Union, overload

from . import _interface
from ._library import check, lib

KEY_BYTES = 32


class Keys:
    """Keys of blocks, made once and used in several calls. They are made by keys() of a Store or OffloadCache, and by
    prefix_keys(), token_keys() and lone_keys() of an OffloadCache.

    Attributes:
        count: Number of keys.
        alone: True if each key stands alone, even in an OffloadCache in prefix order.
    """

    __slots__ = ("_array", "alone", "count")

    def __init__(self, array: ctypes.Array[ctypes.c_char], count: int, alone: bool = False) -> None:
        self._array = array
        self.count = count
        self.alone = alone

    def __len__(self) -> int:
        return self.count

    @overload
    def __getitem__(self, index: int) -> bytes: ...

    @overload
    def __getitem__(self, index: slice) -> Keys: ...

    def __getitem__(self, index: int | slice) -> bytes | Keys:
        """The 32 bytes of one key, as in events. A slice, as keys[:4], has the Keys of several blocks side by side."""
        if isinstance(index, slice):
            start, stop, step = index.indices(self.count)
            if step != 1:
                raise ValueError(f"a slice of keys has the step {step}, must be 1")
            count = max(0, stop - start)
            return Keys(ctypes.create_string_buffer(self._bytes(start, count), KEY_BYTES * count or 1), count, self.alone)
        if not 0 <= index < self.count:
            raise IndexError(index)
        return self._bytes(index, 1)

    def __iter__(self) -> Iterator[bytes]:
        """The 32 bytes of each key."""
        raw = self._bytes(0, self.count)
        return iter([raw[start : start + KEY_BYTES] for start in range(0, len(raw), KEY_BYTES)])

    def _bytes(self, start: int, count: int) -> bytes:
        return memoryview(self._array)[start * KEY_BYTES : (start + count) * KEY_BYTES].tobytes()


def joined(parts: Sequence[bytes]) -> Keys:
    """Makes one Keys object from the bytes of several keys. The length of each is a multiple of 32."""
    raw = b"".join(parts)
    return Keys(ctypes.create_string_buffer(raw, max(1, len(raw))), len(raw) // KEY_BYTES)


def raw_keys(keys: Keys, first: int, last: int) -> bytes:
    """The bytes of the keys from `first` to before `last`."""
    return keys._array.raw[first * KEY_BYTES : last * KEY_BYTES]


def chosen(keys: Keys, indices: Sequence[int]) -> Keys:
    """The keys at these indices."""
    raw = keys._array.raw
    return joined([raw[i * KEY_BYTES : (i + 1) * KEY_BYTES] for i in indices])


Names = Union[Sequence[bytes], Keys]


def _names(names: Sequence[bytes]) -> tuple[_interface.Names, object]:
    """The names in one buffer, and the object that owns their lengths."""
    try:
        joined = b"".join(names)
    except TypeError:
        wrong = next((name for name in names if not isinstance(name, (bytes, bytearray, memoryview))), names)
        raise TypeError(f"a key is bytes, not {type(wrong).__name__}: {wrong!r}") from None
    lengths = list(map(len, names))
    count = len(lengths)
    if count == 0 or lengths.count(lengths[0]) == count:
        return _interface.Names(joined, None, lengths[0] if count else 0, count), None
    each = (ctypes.c_uint32 * count)(*lengths)
    return _interface.Names(joined, ctypes.addressof(each), 0, count), each


def keys_of_names(key_namespace: bytes, names: Sequence[bytes], alone: bool = False) -> Keys:
    """Keys that each stand for one block, independent of the blocks before it."""
    packed, _kept = _names(names)
    array = ctypes.create_string_buffer(KEY_BYTES * packed.count or 1)
    check(lib.terrace_keys_of_names(key_namespace, len(key_namespace), byref(packed), array))
    return Keys(array, packed.count, alone)


def keys_of_prefix(key_namespace: bytes, names: Sequence[bytes]) -> Keys:
    """Keys of a prefix: each key also stands for all names before it."""
    packed, _kept = _names(names)
    array = ctypes.create_string_buffer(KEY_BYTES * packed.count or 1)
    check(lib.terrace_keys_of_prefix(key_namespace, len(key_namespace), None, byref(packed), array))
    return Keys(array, packed.count)


def keys_of_tokens(key_namespace: bytes, tokens: Any, block_tokens: int) -> Keys:
    """Keys of the full blocks of a prompt. Each key also stands for all tokens before its block."""
    if not 1 <= block_tokens < 1 << 32:
        raise ValueError(f"block_tokens is {block_tokens}, must be from 1 to 2**32 - 1")
    _kept, address, size = token_array(tokens)
    count = size // block_tokens
    array = ctypes.create_string_buffer(KEY_BYTES * count or 1)
    check(lib.terrace_keys_of_tokens(key_namespace, len(key_namespace), None, address, size, block_tokens, array))
    return Keys(array, count)


def token_array(tokens: Any) -> tuple[object, int, int]:
    """Returns an object that owns the tokens as uint32, their address, and their number."""
    if hasattr(tokens, "__array_interface__"):
        if tokens.ndim != 1 or tokens.dtype.kind not in "iu":
            raise TypeError(f"tokens are an array of {tokens.dtype} with {tokens.ndim} dimensions, must be integers in one dimension")
        if getattr(tokens, "mask", False) is not False:
            raise TypeError("tokens are a masked array, which hides some of them; give an array without a mask")
        if tokens.size and (tokens.min() < 0 or tokens.max() >= 1 << 32):
            wrong = next(i for i, token in enumerate(tokens.tolist()) if not 0 <= token < 1 << 32)
            raise ValueError(f"tokens[{wrong}] is {tokens[wrong]}, must be from 0 to 2**32 - 1")
        packed = tokens.astype("=u4", order="C", copy=False)
        if packed.strides != (4,):
            packed = packed.copy()
        return packed, packed.__array_interface__["data"][0], packed.size
    if not hasattr(tokens, "__getitem__"):
        tokens = list(tokens)
    try:
        values = packed_array("I", iter(tokens))  # the values, not the bytes in memory
    except OverflowError:
        wrong = next(i for i, token in enumerate(tokens) if not 0 <= token < 1 << 32)
        raise ValueError(f"tokens[{wrong}] is {tokens[wrong]}, must be from 0 to 2**32 - 1") from None
    address, count = values.buffer_info()
    return values, address, count
