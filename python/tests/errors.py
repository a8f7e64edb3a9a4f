"""The errors of the library."""

from __future__ import annotations

from terrace_kv import _interface

STATUSES = [
    *range(_interface.INVALID_ARGUMENT, _interface.STOPPED + 1),
    _interface.UNAVAILABLE,
    _interface.NO_MEMORY,
    _interface.INTERNAL,
    -5,
]
"""Every status of a call that fails: those of terrace.h, and an errno."""
