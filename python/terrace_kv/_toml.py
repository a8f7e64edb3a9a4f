"""Writes the few values of TOML that this package makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Union

Value = Union[str, int, float, bool, Sequence[str]]


def value_of(value: Value) -> str:
    """One value. A text is quoted, and characters that TOML does not allow in it are escaped."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, str):
        escaped = "".join(
            f"\\u{ord(c):04x}" if ord(c) < 0x20 or ord(c) == 0x7F else "\\" + c if c in '"\\' else c for c in value
        )
        return f'"{escaped}"'
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"{value!r} is no value of a configuration; give a text, a number, True, False, or a list of texts")
    return "[" + ", ".join(value_of(each) for each in value) + "]"


def table(heading: str, values: Mapping[str, Value | None]) -> str:
    """A table with its values. Values that are None are left out."""
    lines = [heading] if heading else []
    lines += [f"{name} = {value_of(value)}" for name, value in values.items() if value is not None]
    return "\n".join(lines) + "\n"


def document(values: Mapping[str, Any]) -> str:
    """A document: plain values first, then mappings as tables, and lists of mappings as arrays of tables."""
    plain: dict[str, Value | None] = {}
    tables = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            tables.append(table(f"[{name}]", value))
        elif isinstance(value, (list, tuple)) and value and all(isinstance(each, Mapping) for each in value):
            tables += [table(f"[[{name}]]", each) for each in value]
        else:
            plain[name] = value
    return (table("", plain) if plain else "") + "".join(tables)
