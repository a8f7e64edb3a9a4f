"""The objects in the store, as LMCache names them."""

from __future__ import annotations

import heapq
import threading
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple


class Resident(NamedTuple):
    """An object that is in the store."""

    key: Any
    """LMCache's ObjectKey."""
    size: int


class Residents:
    """By the key of its last block, each object that this process knows to be in the store: those that it has stored, found or
    loaded. The store has only hashes of names, so objects of an earlier process are not known until they are found. Takes about
    360 bytes for each object. Threads: any.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all: dict[bytes, Resident] = {}
        self._locks: Counter[Any] = Counter()

    def __len__(self) -> int:
        return len(self._all)

    def add(self, found: Iterable[tuple[bytes, Resident]]) -> list[Resident]:
        """Adds objects. Returns those that were not known."""
        with self._lock:
            new = [(block, each) for block, each in found if block not in self._all]
            self._all.update(new)
        return [each for _block, each in new]

    def remove(self, blocks: Iterable[bytes]) -> list[Resident]:
        """Removes objects by their last blocks. Returns those that were known."""
        with self._lock:
            removed = [self._all.pop(block, None) for block in blocks]
        return [each for each in removed if each is not None]

    def known(self, blocks: Iterable[bytes]) -> list[bytes]:
        """Those of the blocks that are the last ones of known objects."""
        with self._lock:
            return [block for block in blocks if block in self._all]

    def page(self, model: str | None, count: int, after: bytes) -> tuple[list[tuple[bytes, Resident]], bool]:
        """The next `count` objects (of one model, or None: of all) in the order of their blocks, and whether there are more."""
        with self._lock:
            wanted = (block for block, each in self._all.items() if block > after and model in (None, each.key.model_name))
            blocks = heapq.nsmallest(count + 1, wanted)
            return [(block, self._all[block]) for block in blocks[:count]], len(blocks) > count

    # ---- locks of LMCache, which keep an object from delete()

    def lock(self, keys: Iterable[Any]) -> None:
        """Locks objects once more."""
        with self._lock:
            self._locks.update(keys)

    def unlock(self, keys: Iterable[Any]) -> None:
        """Takes back one lock of each object. Objects without a lock are ignored."""
        with self._lock:
            for key in keys:
                left = self._locks.get(key, 0) - 1
                if left > 0:
                    self._locks[key] = left
                else:
                    self._locks.pop(key, None)

    def unlocked(self, keys: Iterable[Any]) -> list[Any]:
        """Those of the objects that nobody has locked."""
        with self._lock:
            return [key for key in keys if key not in self._locks]

    @property
    def locked(self) -> int:
        """Number of locked objects."""
        return len(self._locks)
