"""The positions of SGLang's pages in the prefix tree of a cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice

from .._keys import Keys
from .._offload_types import State
from ..offload import OffloadCache

_ROOT = ""  # the name before the first page of a prefix
_CACHED = (State.HOST, State.PENDING)


class Run:
    """Neighbouring pages that one order of the cache can name.

    Attributes:
        before: The pages before them in the tree.
        first: The index of the first page in the list that was given.
        pages: The pages.
    """

    __slots__ = ("before", "first", "pages")

    def __init__(self, before: list[str], first: int, pages: list[str]) -> None:
        self.before = before
        self.first = first
        self.pages = pages


class PageChains:
    """Finds the page before a page, so that the cache knows prefixes.

    SGLang's name of a page, a chained hash, stands for all tokens up to the end of the page. But a call may begin in the middle of
    a prompt, and does not tell which page is before: a look-up begins after the pages that the device has, and an offload has the
    pages of one node of SGLang's tree. So the order of the pages is taken from the lists of all calls. If no list has shown which
    page is before the first one of an offload, or if that page has no host copy, this page begins a prefix of its own in the
    cache's tree. A prompt then consists of several such pieces; a look-up and a load follow from one to the next.

    Both memories are bounded. If a page is forgotten, it is a miss unless it begins a piece.

    Threads: one at a time.

    Args:
        cache: A cache in prefix order. The pages are in its first pool.
        make_keys: Makes keys of names.
        pages_max: Number of pages that are remembered; at most twice as many.
    """

    def __init__(self, cache: OffloadCache, make_keys: Callable[[Sequence[str]], Keys], pages_max: int) -> None:
        self._cache = cache
        self._make_keys = make_keys
        self._before = _Recent(pages_max)  # the page before, as lists have shown
        self._placed = _Recent(pages_max)  # the page before in the cache's tree, or _ROOT

    def forget(self) -> None:
        """All names have another meaning from now on."""
        self._before.clear()
        self._placed.clear()

    def note(self, names: Sequence[str]) -> None:
        """The pages are neighbours in a prompt."""
        for before, name in zip(names, names[1:]):
            self._before.put(name, before)

    def leading(self, names: Sequence[str]) -> int:
        """The number of leading pages that have a copy in the cache. Has no side effect on the cache."""
        found = 0
        while found < len(names):
            more = self._run_from(names[found:])
            if more == 0:
                break
            found += more
        return found

    def _run_from(self, names: Sequence[str]) -> int:
        """The number of leading pages that are cached one after the other in the tree."""
        before = self._chain_before(names[0])
        count = self._cached(before, names) if before is not None else 0
        if count == 0 and before != []:
            before, count = [], self._cached([], names)
        if count and before is not None:
            self._place(before[-1] if before else _ROOT, names[:count])
        return count

    def runs(self, names: Sequence[str]) -> list[Run]:
        """Splits pages that leading() has found, for loads."""
        runs: list[Run] = []
        for index, name in enumerate(names):
            if index and self._placed.get(name) == names[index - 1]:
                runs[-1].pages.append(name)
            else:
                runs.append(Run(self._chain_before(name) or [], index, [name]))
        return runs

    def runs_to_store(self, names: Sequence[str]) -> list[Run]:
        """Splits the pages of an offload, and chooses where those go that are not cached yet."""
        runs: list[Run] = []
        for index, name in enumerate(names):
            placed = self._placed.get(name)
            if index:
                if placed in (None, names[index - 1]) or not self._is_cached(name):
                    runs[-1].pages.append(name)
                    continue
            before = self._chain_before(name) if index or self._is_cached(name) else self._place_after(name)
            runs.append(Run(before or [], index, [name]))
        for run in runs:
            self._place(run.before[-1] if run.before else _ROOT, run.pages)
        return runs

    def _place_after(self, name: str) -> list[str]:
        """The pages before a new page in the tree, if the last of them has a host copy; otherwise none."""
        parent = self._before.get(name)
        if parent is None:
            return []
        before = self._chain_before(parent)
        if before is None:
            return []
        chain = [*before, parent]
        return chain if self._cache.look_up(self._make_keys(chain))[-1] in _CACHED else []

    def _is_cached(self, name: str) -> bool:
        before = self._chain_before(name)
        return before is not None and self._cached(before, [name]) == 1

    def _cached(self, before: list[str], names: Sequence[str]) -> int:
        return max(0, self._cache.leading(self._make_keys([*before, *names])) - len(before))

    def _chain_before(self, name: str) -> list[str] | None:
        """The pages before this one in the tree, from the first one on. None: the position is not known."""
        chain: list[str] = []
        while (before := self._placed.get(name)) != _ROOT:
            if before is None:
                return None
            chain.append(before)
            name = before
        chain.reverse()
        return chain

    def _place(self, before: str, names: Sequence[str]) -> None:
        for name in names:
            self._placed.put(name, before)
            before = name


class _Recent:
    """A mapping that forgets what was put long ago."""

    def __init__(self, entries_max: int) -> None:
        self._entries_max = entries_max
        self._entries: dict[str, str] = {}

    def get(self, name: str) -> str | None:
        return self._entries.get(name)

    def put(self, name: str, value: str) -> None:
        self._entries.pop(name, None)
        self._entries[name] = value
        if len(self._entries) > 2 * self._entries_max:
            for old in list(islice(self._entries, self._entries_max)):
                del self._entries[old]

    def clear(self) -> None:
        self._entries.clear()
