"""The positions of SGLang's pages in the prefix tree of a cache."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from .._caches import CHANGE
from .._keys import joined
from .._offload_types import ChangeKind, State
from ..offload import OffloadCache

_STORED, _REMOVED, _CLEARED = int(ChangeKind.STORED), int(ChangeKind.REMOVED), int(ChangeKind.CLEARED)
_HOST, _STORAGE = int(State.HOST), int(State.STORAGE)
_ROOT = bytes(32)  # the key before the first page of a prefix
_SHOWN_MIN = 1 << 16


class Run:
    """Neighbouring pages that one order of the cache can name.

    Attributes:
        keys: The keys of the prefix up to the last page.
        before: How many of them are before the first page.
        first: The index of the first page in the list that was given.
    """

    __slots__ = ("before", "first", "keys")

    def __init__(self, before: list[bytes], first: int, pages: list[bytes]) -> None:
        self.keys = [*before, *pages]
        self.before = len(before)
        self.first = first

    @property
    def count(self) -> int:
        """The number of pages."""
        return len(self.keys) - self.before


class PageChains:
    """Knows which pages are cached, and which page is before each in the cache's tree, so that the cache sees prefixes.

    SGLang's name of a page, a chained hash, stands for all tokens up to the end of the page. But a call may begin in the middle
    of a prompt, and does not tell which page is before: a look-up begins after the pages that the device has, and an offload has
    the pages of one node of SGLang's tree. So the order of new pages is taken from the lists of earlier calls. If no list has shown
    which page is before the first one of an offload, or if that page has no host copy, this page begins a prefix of its own. A
    prompt then consists of several such pieces. Each page has one place in the cache's tree as long as it is cached.

    It follows the changes of the cache, so it takes about 200 bytes for each page in host memory and for each on the disk. At the
    start, the cache reports the pages on the disk once more.

    Threads: one at a time.

    Args:
        cache: A cache in prefix order that has no other user of changes().
        has_storage: Whether the cache may have pages from before.
    """

    def __init__(self, cache: OffloadCache, has_storage: bool) -> None:
        self._cache = cache
        # By page, the page before it in the tree, or _ROOT: pages with copies in each tier, and those that are being stored.
        self._host: dict[bytes, bytes] = {}
        self._stored: dict[bytes, bytes] = {}
        self._storing: dict[bytes, bytes] = {}
        self._shown: dict[bytes, bytes] = {}  # by page, the page before it, as a list has shown
        self.lost = False
        """Whether the last follow() has seen that a copy has gone."""
        cache.record_changes()
        if has_storage:
            cache.clear(keep_storage=True)
            cache.poll()
        self.follow()

    def follow(self) -> None:
        """Takes the changes of the cache."""
        self.lost = False
        for key, parent, _tenant, kind, source, _depth, _group in self._cache._raw_changes(CHANGE):
            if kind == _CLEARED:
                self._host.clear()
                self._stored.clear()
                continue
            tier = self._host if source == _HOST else self._stored
            if kind == _STORED and source in (_HOST, _STORAGE):
                other = self._stored if tier is self._host else self._host
                tier[key] = other.get(key, parent)
            elif kind == _REMOVED:
                tier.pop(key, None)
                self.lost = True

    def forget(self) -> None:
        """All names have another meaning from now on."""
        self._shown.clear()

    def show(self, keys: Sequence[bytes]) -> None:
        """The pages are neighbours in a prompt."""
        shown = self._shown
        shown.update(zip(keys[1:], keys))
        kept = max(_SHOWN_MIN, len(self._host) + len(self._stored))
        if len(shown) > 2 * kept:
            for old in list(islice(shown, len(shown) - kept)):
                del shown[old]

    # ---- what is there

    def leading(self, keys: Sequence[bytes]) -> int:
        """The number of leading pages that have a copy in the cache."""
        found = next((index for index, key in enumerate(keys) if not self._is_cached(key)), len(keys))
        for run in self.runs(keys[:found]):
            there = self._cache.leading(joined(run.keys)) - run.before
            if there < run.count:
                return run.first + max(0, there)
        return found

    def runs(self, keys: Sequence[bytes]) -> list[Run]:
        """Splits cached pages, for loads."""
        starts = [index for index, key in enumerate(keys) if index == 0 or self._before(key) != keys[index - 1]]
        ends = [*starts[1:], len(keys)]
        return [Run(self._chain_before(keys[start]), start, list(keys[start:end])) for start, end in zip(starts, ends)]

    # ---- what is stored

    def runs_to_store(self, keys: Sequence[bytes]) -> list[Run]:
        """Splits the pages of an offload. Pages that are cached stay where they are. Call stored() at the end of each store."""
        runs: list[Run] = []
        start = 0
        for index, key in enumerate(keys):
            before = self._before(key)
            if before is None:
                before = keys[index - 1] if index else self._place(key)
                self._storing[key] = before
            if index and before != keys[index - 1]:
                runs.append(Run(self._chain_before(keys[start]), start, list(keys[start:index])))
                start = index
        if keys:
            runs.append(Run(self._chain_before(keys[start]), start, list(keys[start:])))
        return runs

    def stored(self, keys: Sequence[bytes]) -> None:
        """The store of these pages has ended, or nobody has ordered it."""
        for key in keys:
            self._storing.pop(key, None)

    def _place(self, key: bytes) -> bytes:
        """The page after which a new page is stored."""
        before = self._shown.get(key, _ROOT)
        return before if before in self._host or before in self._storing else _ROOT

    # ---- inside

    def _is_cached(self, key: bytes) -> bool:
        return key in self._host or key in self._stored

    def _before(self, key: bytes) -> bytes | None:
        """The page before this one in the tree, or _ROOT. None: the page is not cached."""
        for pages in (self._host, self._stored, self._storing):
            if (before := pages.get(key)) is not None:
                return before
        return None

    def _chain_before(self, key: bytes) -> list[bytes]:
        """The pages before this one in the tree, from the first one on. If one of them has gone, so has this one."""
        chain: list[bytes] = []
        while (before := self._before(key)) not in (None, _ROOT):
            assert before is not None
            chain.append(before)
            key = before
        chain.reverse()
        return chain

