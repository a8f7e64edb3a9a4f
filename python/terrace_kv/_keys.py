"""Names of blocks as keys of the C interface."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import byref

from ._library import Key, Names, check, lib

KEY_BYTES = 32


class Keys:
    """Keys of blocks, made once and used in several calls. It is made by Store.keys() or OffloadCache.keys()."""

    __slots__ = ("_array", "count")

    def __init__(self, array: ctypes.Array[ctypes.c_char], count: int) -> None:
        self._array = array
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> bytes:
        """The 32 bytes of one key, as in events."""
        if not 0 <= index < self.count:
            raise IndexError(index)
        return self._array.raw[index * KEY_BYTES : (index + 1) * KEY_BYTES]


def _names(names: Sequence[bytes]) -> tuple[Names, object]:
    """Names side by side, and what keeps their lengths in memory."""
    lengths = list(map(len, names))
    count = len(lengths)
    joined = b"".join(names)
    if count == 0 or lengths.count(lengths[0]) == count:
        return Names(joined, None, lengths[0] if count else 0, count), None
    each = (ctypes.c_uint32 * count)(*lengths)
    return Names(joined, ctypes.addressof(each), 0, count), each


def keys_of_names(key_namespace: bytes, names: Sequence[bytes]) -> Keys:
    """Keys that stand for one block each, wherever it stands."""
    packed, _kept = _names(names)
    array = ctypes.create_string_buffer(KEY_BYTES * packed.count or 1)
    check(lib.terrace_keys_of_names(key_namespace, len(key_namespace), byref(packed), array))
    return Keys(array, packed.count)


def keys_of_prefix(key_namespace: bytes, names: Sequence[bytes]) -> Keys:
    """Keys of which each stands for all names before it, too."""
    packed, _kept = _names(names)
    array = ctypes.create_string_buffer(KEY_BYTES * packed.count or 1)
    check(lib.terrace_keys_of_prefix(key_namespace, len(key_namespace), None, byref(packed), array))
    return Keys(array, packed.count)


def zero_key(key: Key) -> bool:
    """True for the key that stands for none."""
    return not any(key.bytes)
