"""Pages of one host pool in a store: their keys, and their copies from the pool to the disk and back."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from .._keys import Keys, chosen, joined, keys_of_names, raw_keys
from ..store import Region
from .blocks import Blocks, LocalBlocks
from .pages import PoolPages, memory_of

_KEY_ZERO = bytes(32)


class StoredPool:
    """A host pool whose pages are stored.

    Args:
        pages: The pool's memory.
        key_namespace: The meaning of the pages.
        block_bytes: The size of a block.
        blocks: The source from which pages are read.
        local: The store to which pages are written; None if another rank writes them.
        regions: The pool's buffers as regions of the store, if pages are whole blocks there; otherwise pages are copied.
    """

    def __init__(
        self,
        pages: PoolPages,
        key_namespace: bytes,
        block_bytes: int,
        blocks: Blocks,
        local: LocalBlocks | None,
        regions: Sequence[Region] | None,
    ) -> None:
        self.pages = pages
        self._namespace = key_namespace
        self._block_bytes = block_bytes
        self._blocks = blocks
        self._local = local
        self._regions = regions
        self._count = pages.blocks(block_bytes)

    # ---- what is there

    def there(self, page_keys: Sequence[str]) -> list[bool]:
        """For each page, whether a read would find it."""
        return self._whole(self._blocks.contains(self._keys(page_keys)))

    def _keys(self, page_keys: Sequence[str]) -> Keys:
        count = self._count
        return keys_of_names(self._namespace, [b"%s/%06x" % (key.encode(), i) for key in page_keys for i in range(count)])

    def _whole(self, by_block: Sequence[bool]) -> list[bool]:
        """For each page, whether all its blocks are true."""
        count = self._count
        return [all(by_block[first : first + count]) for first in range(0, len(by_block), count)]

    # ---- pages of the pool

    def read(self, page_keys: Sequence[str], host_indices: Any) -> list[bool]:
        """Reads pages into the host pool. Returns for each page whether the pool has it."""
        keys = self._keys(page_keys)
        places, starts = self._places(host_indices, len(page_keys))
        if self._regions is not None and self._local is not None and places is not None:
            return self._whole(self._in_place(False, keys, places, range(keys.count), None))

        def take(address: int, page: int) -> None:
            self.pages.scatter(address, None if places is None else places[page], starts[page])

        return self._read_staged(keys, len(page_keys), take)

    def write(self, page_keys: Sequence[str], host_indices: Any, before: str | None) -> list[bool]:
        """Stores pages of the host pool that are not stored yet. Returns for each page whether it is stored now.

        Args:
            before: The page before the first one in its prefix, or None. A page is evicted before its predecessor.
        """
        places, starts = self._places(host_indices, len(page_keys))
        if self._regions is not None and places is not None:
            return self._write(page_keys, before, places, None)

        def give(address: int, page: int) -> None:
            self.pages.gather(address, None if places is None else places[page], starts[page])

        return self._write(page_keys, before, None, give)

    def _places(self, host_indices: Any, count: int) -> tuple[list[list[int]] | None, list[int]]:
        """The addresses of the pieces of each page, if the pool gives them; and the index of its first token."""
        numbers = [] if host_indices is None else host_indices.tolist()
        tokens = self.pages.page_tokens
        if len(numbers) != count * tokens:
            raise ValueError(f"pool {self.pages.name!r}: {len(numbers)} indices for {count} pages of {tokens} tokens")
        places = self.pages.addresses(host_indices, count) if self.pages.has_addresses else None
        return places, numbers[::tokens]

    # ---- pages elsewhere

    def read_into(self, page_keys: Sequence[str], targets: Sequence[Any]) -> list[bool]:
        """Reads pages into tensors of one page each."""
        memories = [self._memory_of_page(target) for target in targets]

        def take(address: int, page: int) -> None:
            ctypes.memmove(memories[page], address, self.pages.bytes)

        return self._read_staged(self._keys(page_keys), len(page_keys), take)

    def write_from(self, page_keys: Sequence[str], sources: Sequence[Any]) -> list[bool]:
        """Stores pages from tensors of one page each."""
        memories = [self._memory_of_page(source) for source in sources]

        def give(address: int, page: int) -> None:
            ctypes.memmove(address, memories[page], self.pages.bytes)

        return self._write(page_keys, None, None, give)

    def _memory_of_page(self, tensor: Any) -> int:
        address, size = memory_of(tensor)
        if size != self.pages.bytes:
            raise ValueError(f"the tensor has {size} bytes, and a page of pool {self.pages.name!r} has {self.pages.bytes}")
        return address

    # ---- inside

    def _read_staged(self, keys: Keys, pages: int, take: Any) -> list[bool]:
        results: list[bool] = []
        with self._blocks.lend(self._count) as lent:
            if lent is None:
                return [False] * pages
            at_once = lent.rows // self._count
            for first in range(0, pages, at_once):
                last = min(first + at_once, pages)
                whole = self._whole(lent.read(joined([raw_keys(keys, first * self._count, last * self._count)])))
                for page, there in enumerate(whole, first):
                    if there:
                        take(lent.address + (page - first) * self._count * self._block_bytes, page)
                results += whole
        return results

    def _write(self, page_keys: Sequence[str], before: str | None, places: list[list[int]] | None, give: Any) -> list[bool]:
        local = self._local
        if local is None:
            return [True] * len(page_keys)  # the rank that writes has the same bytes
        keys = self._keys(page_keys)
        stored = self._whole(local.contains(keys))
        local.touch(chosen(keys, self._of_pages([page for page, there in enumerate(stored) if there])))
        missing = [page for page, there in enumerate(stored) if not there]
        if not missing:
            return stored
        parents = self._parents(keys, before)
        if places is not None:
            blocks = self._of_pages(missing)
            written = self._whole(self._in_place(True, keys, places, blocks, parents))
        else:
            written = self._write_staged(local, keys, parents, missing, give)
        for page, ok in zip(missing, written):
            stored[page] = ok
        return stored

    def _write_staged(self, local: LocalBlocks, keys: Keys, parents: Keys, missing: list[int], give: Any) -> list[bool]:
        written: list[bool] = []
        with local.lend_for_writing(self._count) as lent:
            at_once = lent.rows // self._count
            for first in range(0, len(missing), at_once):
                part = missing[first : first + at_once]
                for place, page in enumerate(part):
                    give(lent.address + place * self._count * self._block_bytes, page)
                blocks = self._of_pages(part)
                written += self._whole(lent.write(chosen(keys, blocks), chosen(parents, blocks)))
        return written

    def _in_place(
        self, is_put: bool, keys: Keys, places: list[list[int]], blocks: Sequence[int], parents: Keys | None
    ) -> list[bool]:
        """Moves blocks (numbers in `keys`) between disk and the pool's own memory; a job for each buffer of the pool."""
        assert self._regions is not None and self._local is not None
        by_buffer: dict[int, tuple[list[int], list[int]]] = {}
        found = [row for page in places for row in self.pages.rows(page, self._block_bytes)]
        for position, block in enumerate(blocks):
            number, row = found[block]
            positions, rows = by_buffer.setdefault(number, ([], []))
            positions.append(position)
            rows.append(row)
        moved = [False] * len(blocks)
        for number, (positions, rows) in by_buffer.items():
            part = [blocks[position] for position in positions]
            if is_put:
                before = None if parents is None else chosen(parents, part)
                statuses = self._local.write(chosen(keys, part), self._regions[number], rows, before)
            else:
                statuses = self._local.read(chosen(keys, part), self._regions[number], rows)
            for position, status in zip(positions, statuses):
                moved[position] = status == 0
        return moved

    def _of_pages(self, pages: Sequence[int]) -> list[int]:
        """The numbers of the blocks of pages."""
        return [page * self._count + i for page in pages for i in range(self._count)]

    def _parents(self, keys: Keys, before: str | None) -> Keys:
        """By block, the same block of the page before it."""
        first = _KEY_ZERO * self._count if before is None else raw_keys(self._keys([before]), 0, self._count)
        return joined([first, raw_keys(keys, 0, keys.count - self._count)])
