"""Checks of options that several adapters have."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any


def refuse_unknown(where: str, given: Iterable[Any], known: Iterable[str], owner: str) -> None:
    """Raises ValueError for a name that is no option, with the nearest right one. `where`: the place where options are given; a
    message begins with it."""
    names = tuple(known)
    for name in given:
        if name not in names:
            near = difflib.get_close_matches(str(name), names, 1, 0)
            raise ValueError(f"{where}: {name!r} is no option of {owner}; did you mean {near[0]!r}?")


def paths_of(where: str, path: Any) -> tuple[str, ...]:
    """The directories of a store."""
    paths = [path] if isinstance(path, str) else path
    if not isinstance(paths, list) or not paths or not all(isinstance(each, str) and each for each in paths):
        raise ValueError(f'{where}: "path" must be a directory, or a list of directories; for example "path": "/mnt/nvme/kv"')
    return tuple(paths)


def capacity_of(where: str, capacity: Any, whose: str) -> int | str:
    """The disk space of a store: a number of bytes, or a text such as "64GiB"."""
    if isinstance(capacity, bool) or not isinstance(capacity, (int, str)):
        raise ValueError(f'{where}: "capacity" must be the disk space {whose}; for example "capacity": "64GiB"')
    return capacity
