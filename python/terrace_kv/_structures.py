"""The bases of the structures of the C interface: integers that do not fit are refused."""

from __future__ import annotations

import ctypes
import operator
from ctypes import c_char_p, c_uint8, c_uint16, c_uint32, c_uint64
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


def c_text(name: str, text: str | None) -> bytes | None:
    """Returns the text as a string of C.

    Raises:
        ValueError: It has a NUL character, at which it would end: two different texts would be the same.
    """
    if text is None:
        return None
    if "\0" in text:
        raise ValueError(f"{name} has a NUL character: {text!r}")
    return text.encode()


class Uncopied:
    """The base of objects that own a handle of the library: a copy would release it a second time."""

    __slots__ = ()

    def _make_once(self) -> None:
        """Refuses a second call of __init__(), which would lose the handle of the first one."""
        if getattr(self, "_handle", None) is not None:
            raise TypeError(f"this {type(self).__name__} is made already")

    def __reduce__(self) -> Any:
        raise TypeError(f"a {type(self).__name__} cannot be copied or pickled")


class Checked(ctypes.Structure):
    """A structure whose named integers and texts are checked: ctypes itself would let integers wrap around, and texts end at a
    NUL. Bytes have their number in another field."""

    def __init__(self, *values: Any, **fields: Any) -> None:
        for name, kind, *_ in self._fields_:
            if kind in _LARGEST and name in fields:
                fields[name] = in_range("job" if name == "id" else name, fields[name], kind)
            elif kind is c_char_p and isinstance(fields.get(name), str):
                fields[name] = c_text(name, fields[name])
        super().__init__(*values, **fields)


class Sized(Checked):
    """A structure with its size in a field. All other fields are 0 at first."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(struct_size=ctypes.sizeof(type(self)), **fields)
