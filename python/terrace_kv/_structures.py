"""The bases of the structures of the C interface: integers that do not fit are refused."""

from __future__ import annotations

import ctypes
import operator
from ctypes import c_uint8, c_uint16, c_uint32, c_uint64
from typing import Any

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


class Checked(ctypes.Structure):
    """A structure whose named integers are checked: ctypes itself would let them wrap around."""

    def __init__(self, *values: Any, **fields: Any) -> None:
        for name, kind, *_ in self._fields_:
            if kind in _LARGEST and name in fields:
                fields[name] = in_range("job" if name == "id" else name, fields[name], kind)
        super().__init__(*values, **fields)


class Sized(Checked):
    """A structure with its size in a field. All other fields are 0 at first."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(struct_size=ctypes.sizeof(type(self)), **fields)
