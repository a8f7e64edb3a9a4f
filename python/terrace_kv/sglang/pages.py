"""Pages of SGLang's host pools: the addresses of their bytes, for every memory layout.

A page is the KV of `page_size` tokens. A pool gives the page's pieces by address and size (get_page_buffer_meta), or passes whole
pages (get_data_page, set_from_flat_data_page). In a store, the pieces of a page are stored one after the other, in blocks of one
size.
"""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sglang.srt.mem_cache.hicache_storage import PoolHitPolicy

from ..store import Region, Store

_ALIGNMENT = 4096  # block sizes of a store are multiples of this
_BLOCK_MAX = 512 << 20
_SMALL_BLOCK = 64 << 10
_LARGE_BLOCK = 1 << 20
_PADDING_MAX = 1 / 16  # fraction of the bytes of all pools


def memory_of(array: Any) -> tuple[int, int]:
    """Address and size of a contiguous tensor of torch or array of numpy."""
    if hasattr(array, "data_ptr"):
        if not array.is_contiguous():
            raise ValueError("the tensor does not lie in one piece")
        return int(array.data_ptr()), int(array.numel()) * int(array.element_size())
    if not array.flags.c_contiguous:
        raise ValueError("the array does not lie in one piece")
    return int(array.__array_interface__["data"][0]), int(array.nbytes)


@dataclass(frozen=True)
class Buffer:
    """Memory of a pool, kept by its owner."""

    address: int
    size: int
    owner: Any


class PoolPages:
    """The pages of one host pool.

    Args:
        name: The name of the pool: "kv", "mamba", ...
        pool: SGLang's host pool.

    Raises:
        ValueError: The pool has neither interface for its pages.
    """

    def __init__(self, name: str, pool: Any) -> None:
        self.name = name
        self.pool = pool
        self.page_tokens = int(getattr(pool, "logical_page_size", None) or getattr(pool, "page_size", None) or 1)
        """Number of indices that SGLang passes for one page."""
        self.sizes: tuple[int, ...] = ()
        """Bytes of each piece. A pool without addresses has one piece, which is copied."""
        self.buffers: tuple[Buffer, ...] = ()
        self.has_addresses = False
        self._order: list[int] = []
        self._buffer_of: list[int] = []
        refusal: Exception | None = None
        try:
            meta = pool.get_page_buffer_meta(_indices(self.page_tokens))
        except (AttributeError, NotImplementedError, ValueError) as error:
            refusal = error
        else:
            if meta is not None:
                self._take_pieces(*meta)
        if refusal is not None:
            self._take_flat_page(refusal)
        self.bytes = sum(self.sizes)
        """Bytes of a page; 0 if the pool has only indices, and its pages are represented by other pools."""

    def _take_pieces(self, addresses: Sequence[int], sizes: Sequence[int]) -> None:
        self.buffers = tuple(_buffers(self.pool))
        # Sorted by address: so the pieces one after the other are the flat page, in any order of the pool.
        found = [self._find(address, size) for address, size in zip(addresses, sizes)]
        self._order = sorted(
            range(len(addresses)), key=lambda i: (found[i], addresses[i] if found[i] < len(self.buffers) else i)
        )
        self.sizes = tuple(int(sizes[i]) for i in self._order)
        self._buffer_of = [found[i] for i in self._order]
        self.has_addresses = True

    def _take_flat_page(self, refusal: Exception) -> None:
        try:
            self.pool.get_data_page(0, flat=True)
            self.sizes = (memory_of(self.pool.get_dummy_flat_data_page())[1],)
        except (AttributeError, NotImplementedError, ValueError) as error:
            kind, layout = type(self.pool).__name__, getattr(self.pool, "layout", None)
            reason = str(error) if str(error) == str(refusal) else f"{refusal}; {error}"
            raise ValueError(
                f"the host pool {self.name!r} ({kind}, layout {layout}) gives its pages to no storage back end: {reason}"
            ) from error

    def _find(self, address: int, size: int) -> int:
        """The number of the buffer with this memory; the number after the last one if there is no such buffer."""
        for number, buffer in enumerate(self.buffers):
            if buffer.address <= address and address + size <= buffer.address + buffer.size:
                return number
        return len(self.buffers)

    # ---- pieces

    def addresses(self, host_indices: Any, pages: int) -> list[list[int]]:
        """The addresses of the pieces of each page, in the order of `sizes`."""
        addresses, sizes = self.pool.get_page_buffer_meta(host_indices)
        count = len(self.sizes)
        if len(addresses) != pages * count or len(sizes) != len(addresses):
            raise ValueError(f"pool {self.name!r} has {len(addresses)} pieces for {pages} pages of {count}")
        return [[int(addresses[page * count + i]) for i in self._order] for page in range(pages)]

    def lies_in_blocks(self, block_bytes: int) -> bool:
        """True if each piece is a whole number of blocks in a known buffer, so that blocks are read and written in place."""
        return (
            self.has_addresses
            and bool(self.sizes)
            and all(size % block_bytes == 0 for size in self.sizes)
            and max(self._buffer_of) < len(self.buffers)
        )

    def rows(self, page: Sequence[int], block_bytes: int) -> list[tuple[int, int]]:
        """By block of a page that lies in blocks: the number of its buffer, and its row there.

        Raises:
            ValueError: A piece is not where the pool's other pages are.
        """
        found: list[tuple[int, int]] = []
        for address, size, number in zip(page, self.sizes, self._buffer_of):
            buffer = self.buffers[number]
            offset = address - buffer.address
            if offset % block_bytes or not 0 <= offset <= buffer.size - size:
                raise ValueError(f"pool {self.name!r}: a page at {address:#x} does not lie in blocks of its buffer")
            first = offset // block_bytes
            found.extend((number, row) for row in range(first, first + size // block_bytes))
        return found

    # ---- copies

    def gather(self, into: int, page: Sequence[int] | None, index: int) -> None:
        """Copies a page to an address."""
        if page is None:
            flat = self.pool.get_data_page(index, flat=True)
            address, size = memory_of(flat)
            if size != self.bytes:
                raise ValueError(f"pool {self.name!r}: a page has {size} bytes, and the first one had {self.bytes}")
            ctypes.memmove(into, address, size)
            return
        for address, size in zip(page, self.sizes):
            ctypes.memmove(into, address, size)
            into += size

    def scatter(self, source: int, page: Sequence[int] | None, index: int) -> None:
        """Copies a page from an address to its place."""
        if page is None:
            flat = self.pool.get_dummy_flat_data_page()
            address, size = memory_of(flat)
            ctypes.memmove(address, source, size)
            self.pool.set_from_flat_data_page(index, flat)
            return
        for address, size in zip(page, self.sizes):
            ctypes.memmove(address, source, size)
            source += size

    def blocks(self, block_bytes: int) -> int:
        """Number of blocks of a page."""
        return -(-self.bytes // block_bytes)


def register(store: Store, buffer: Buffer) -> Region:
    """Registers the whole blocks of a buffer. The caller must keep the buffer until the region is closed."""
    size = buffer.size // store.block_bytes * store.block_bytes
    return store.register((ctypes.c_char * size).from_address(buffer.address))


def block_bytes_for(pools: Iterable[PoolPages]) -> int:
    """The size of the blocks of a store for these pools.

    The pieces of the first pool are whole blocks if they have 64 KiB or more and are multiples of 4 KiB: then they are read and
    written in place. Otherwise a page is copied, and cut into equal blocks of 1 MiB or less. Large blocks are few blocks; but the
    padding of the last block of each page is at most a sixteenth of all bytes, if that is possible. Example: pages of two pieces
    of 4 MiB give blocks of 4 MiB. With a second pool of 200 KiB a page, at most 537,088 bytes may be padding: 512 KiB.
    """
    filled = [pool for pool in pools if pool.bytes]
    if not filled:
        return _SMALL_BLOCK
    total = sum(pool.bytes for pool in filled)

    def padding(block: int) -> float:
        return max(_PADDING_MAX, sum(pool.blocks(block) * block for pool in filled) / total - 1)

    units = math.gcd(*filled[0].sizes) // _ALIGNMENT
    if units * _ALIGNMENT == math.gcd(*filled[0].sizes):
        for divisor in range(1, units + 1):
            block = units // divisor * _ALIGNMENT
            if units % divisor == 0 and _SMALL_BLOCK <= block <= _BLOCK_MAX and padding(block) <= _PADDING_MAX:
                return block
    parts = range(1, filled[0].bytes // _ALIGNMENT + 2)
    cuts = (-(-filled[0].bytes // (part * _ALIGNMENT)) * _ALIGNMENT for part in parts)
    return min((block for block in cuts if block <= _LARGE_BLOCK), key=lambda block: (padding(block), -block))


def _indices(count: int) -> Any:
    """The indices of the first page, as SGLang passes them."""
    torch = sys.modules.get("torch")
    if torch is not None:
        return torch.arange(count)
    import numpy

    return numpy.arange(count)


def _buffers(pool: Any) -> list[Buffer]:
    """The memory of a pool, each part once."""
    owners: list[Any] = []
    whole = getattr(pool, "kv_buffer", None)
    if isinstance(whole, (list, tuple)):
        owners += whole
    elif whole is not None:
        owners.append(whole)
    if hasattr(pool, "get_hybrid_pool_buffer"):
        owners += pool.get_hybrid_pool_buffer()
    found: list[Buffer] = []
    for owner in owners:
        if owner is None:
            continue
        try:
            address, size = memory_of(owner)
        except ValueError:
            continue  # a view of a larger buffer
        inside = any(each.address <= address and address + size <= each.address + each.size for each in found)
        if size and not inside:
            found.append(Buffer(address, size, owner))
    return found


def prefix_ends(there: Sequence[bool], hit_policy: Any, window: int, pool: str) -> set[int]:
    """The numbers of leading pages at which a pool has all that a hit needs.

    Args:
        there: For each page of the KV, whether the pool has its page.
        hit_policy: SGLang's PoolHitPolicy: all pages up to the end, or those of a window before it.
        window: The pages of the window.
        pool: Its name.

    Raises:
        ValueError: The policy is not supported.
    """
    if hit_policy == PoolHitPolicy.ALL_PAGES:
        return set(range(1, (list(there).index(False) if False in there else len(there)) + 1))
    if hit_policy == PoolHitPolicy.TRAILING_PAGES:
        return {end for end in range(1, len(there) + 1) if all(there[max(0, end - max(1, window)) : end])}
    raise ValueError(f"pool {pool!r}: the hit policy {hit_policy} is not supported")
