"""What vLLM's scheduler reads of blocks, of the block pool and of the coordinator, when Terrace owns the blocks of the GPU."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from vllm.distributed.kv_events import AllBlocksCleared, BlockRemoved
from vllm.logger import init_logger
from vllm.v1.core.block_pool import BlockPool
from vllm.v1.core.kv_cache_manager import KVCacheBlocks
from vllm.v1.core.kv_cache_utils import (
    KVCacheBlock,
    generate_block_hash_extra_keys,
    make_block_hash_with_group_id,
    maybe_convert_block_hash,
)

from .._keys import KEY_BYTES, Keys
from .._offload_types import ChangeKind
from .._report import Report
from ..cache import Cache, Request
from .hints import HintReader

logger = init_logger("vllm." + __name__)
HINTS = HintReader(lambda line: logger.warning("Terrace: %s", line))
NULL_BLOCK = 0
FOUND = KVCacheBlock(block_id=-1)
"""Stands for a block that a look-up has found: its number is known when the request gets it."""


class GpuBlocks(KVCacheBlocks):
    """Numbers of blocks, by group. vLLM's blocks are made of them only if somebody reads `blocks`."""

    def __init__(self, ids: tuple[list[int], ...], lease: Lease | None = None) -> None:
        self._ids = ids
        self._lease = lease

    @property
    def blocks(self) -> tuple[Sequence[KVCacheBlock], ...]:
        """Blocks as vLLM's own, with the hashes of those that other requests can hit."""
        return tuple(
            [self._block(group, index, number) for index, number in enumerate(ids)] for group, ids in enumerate(self._ids)
        )

    def _block(self, group: int, index: int, number: int) -> KVCacheBlock:
        block = KVCacheBlock(block_id=number, is_null=number == NULL_BLOCK)
        if self._lease is not None and not block.is_null and (name := self._lease.name(group, index)) is not None:
            block.set_block_hash(make_block_hash_with_group_id(name, group))
        return block

    def get_block_ids(self, allow_none: bool = False, *, group_ids: Sequence[int] | None = None) -> tuple[list[int], ...] | None:
        """The numbers."""
        ids = self._ids if group_ids is None else tuple(self._ids[group] for group in group_ids)
        return None if allow_none and not any(ids) else ids


class Group:
    """A KV cache group: what the scheduler reads of vLLM's manager of one type of attention."""

    def __init__(self, own: Any, unit: int) -> None:
        self.kv_cache_spec = own.kv_cache_spec
        self.kv_cache_group_id = own.kv_cache_group_id
        self.block_size: int = own.block_size
        self.records_new_block_ids = own.records_new_block_ids
        self.units: int = own.block_size // unit
        self.window: int = 0
        """Tokens that a token attends to, itself included; 0: all before it."""
        if (window := getattr(own, "sliding_window", None)) is not None:
            self.window = window + own.extra_retained_tokens
        self._blocks_max = own.max_admission_blocks_per_request
        self.new_block_ids: list[int] = []

    def blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.block_size)

    def skipped(self, tokens: int) -> int:
        """Leading blocks to which no token after so many computed ones attends."""
        return max(0, tokens - self.window + 1) // self.block_size if self.window else 0

    def lacks(self, have: int, tokens: int, computed: int, *, whole: bool) -> int:
        """Blocks that a sequence with so many blocks needs for so many tokens. For the whole sequence, a window counts as long as
        its blocks are used again."""
        needed = self.blocks_for(tokens)
        if whole and self._blocks_max is not None:
            needed = min(needed, self._blocks_max)
        return max(0, needed - max(have, self.skipped(computed)))

    def take_new_block_ids(self) -> list[int]:
        """New blocks that the worker fills with zeros."""
        ids, self.new_block_ids = self.new_block_ids, []
        return ids


class Lease:
    """The blocks of one vLLM request."""

    __slots__ = (
        "_groups", "_ratio", "_unit", "advance_at", "boundaries", "capacity", "commit_at", "committed", "counts", "held", "keys",
        "loads", "planned", "request", "shared_late", "units"
    )  # fmt: skip

    def __init__(self, request: Any, groups: Sequence[Group], unit: int, ratio: int) -> None:
        self.request = request
        self.held: Request | None = None
        self.units = 0
        """Hash units that have blocks."""
        self.capacity = 0
        """The same in tokens."""
        self.counts = [0] * len(groups)
        """Blocks by group."""
        self.committed = 0
        """Leading units that other requests can hit."""
        self.commit_at = sys.maxsize
        """Computed tokens at which another unit is full. Without caching, never."""
        self.advance_at = sys.maxsize
        """Computed tokens at which a window leaves its next block behind."""
        self.boundaries: list[int] = []
        """Places (Boundaries) that are not computed yet."""
        self.loads = False
        """True while a connector fills blocks."""
        self.planned = 0
        """Leading tokens that others can hit once it is certain that the step of this pass computes them."""
        self.shared_late = False
        """True if nothing is shared before the step that computes it has ended."""
        self.keys = Keys(ctypes.create_string_buffer(1), 0)
        self._groups, self._unit, self._ratio = groups, unit, ratio

    def name_units(self, units: int) -> Keys:
        """The keys of the leading units: vLLM's hashes, which name a block and all before it, salt, adapter and media included.
        Those that are not committed are read again, because a session of streamed input may have changed them."""
        keys, begin = self.keys, self.committed
        if units * KEY_BYTES > len(keys._array):
            grown = ctypes.create_string_buffer(KEY_BYTES * max(units, 2 * begin))
            ctypes.memmove(grown, keys._array, KEY_BYTES * begin)
            keys._array = grown
        new = joined(self.request.block_hashes, begin, units, self._ratio)
        ctypes.memmove(ctypes.addressof(keys._array) + KEY_BYTES * begin, new, len(new))
        keys.count = units
        return keys

    def name(self, group: int, index: int) -> bytes | None:
        """The hash of a block that other requests can hit."""
        end = (index + 1) * self._groups[group].units
        return self.request.block_hashes[end * self._ratio - 1] if end <= self.committed else None

    def release(self, report: Report) -> None:
        """Ends the hold of the blocks, and tells what the end of the request says of its session."""
        if self.held is None:
            return
        if not self.request.is_finished():
            report.attempt(None, self.held.release, 0)
            return
        hints = HINTS.read(self.request, self.request.request_id)
        held, written = self.held, self.request.num_output_tokens
        report.attempt(
            None, lambda: held.release(0, output_tokens=written, ended=hints.ended, returns_in=hints.returns_in)
        )

    @property
    def committed_tokens(self) -> int:
        return self.committed * self._unit

    def table(self, group: int) -> list[int]:
        return [] if self.held is None else self.held.slots_from(0, group)


def joined(hashes: Sequence[bytes], begin: int, end: int, ratio: int) -> bytes:
    """The keys of the units from `begin` to `end`, side by side. Hashes that are shorter than a key are filled with zeros."""
    some = hashes[begin:end] if ratio == 1 else [hashes[i] for i in range((begin + 1) * ratio - 1, end * ratio, ratio)]
    if some and len(some[0]) != KEY_BYTES:
        some = [each.ljust(KEY_BYTES, b"\0") for each in some]
    return b"".join(some)


class GpuPool(BlockPool):
    """The part of vLLM's block pool that the scheduler uses, and the events of what is cached. Terrace's tree has the rest."""

    def __init__(self, own: BlockPool, cache: Cache, groups: Sequence[Group], report: Report) -> None:
        self.num_gpu_blocks = own.num_gpu_blocks
        self.enable_caching = own.enable_caching
        self.hash_block_size = own.hash_block_size
        self.medium = own.medium
        self.null_block = KVCacheBlock(block_id=NULL_BLOCK, is_null=True)
        self.metrics_collector = None
        self.enable_kv_cache_events = own.enable_kv_cache_events
        self.kv_event_queue: list[Any] = []
        self._cache, self._groups, self._report = cache, groups, report
        self._hash_bytes = KEY_BYTES
        if self.enable_kv_cache_events:
            cache.record_changes()

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"TerraceScheduler: there is no {name} of a block pool, because Terrace has the blocks")

    def get_num_free_blocks(self) -> int:
        """Blocks that are free, or cached and not in use."""
        return self._report.attempt(0, self._cache.device_room)

    def free_blocks(self, ordered_blocks: Iterable[Any]) -> None:
        """Ends what pop_blocks_for_free() has returned."""
        for each in ordered_blocks:
            each.release(self._report)

    def take_events(self) -> list[Any]:
        """The changes of what is cached since the last call."""
        if not self.enable_kv_cache_events:
            return []
        self.note_changes()
        events, self.kv_event_queue = self.kv_event_queue, []
        return events

    def note_changes(self) -> set[tuple[int, bytes]]:
        """Makes events of evictions. Returns the groups and keys of blocks that are new."""
        stored: set[tuple[int, bytes]] = set()
        for change in self._report.attempt([], self._cache.changes):
            if change.kind is ChangeKind.STORED:
                stored.add((change.group, change.key))
            elif change.kind is ChangeKind.REMOVED:
                name = maybe_convert_block_hash(change.key[: self._hash_bytes])
                self.kv_event_queue.append(BlockRemoved(block_hashes=[name], medium=self.medium, group_idx=change.group))
            else:
                self.kv_event_queue.append(AllBlocksCleared())
        return stored

    def note_commit(self, lease: Lease, begin: int, end: int) -> None:
        """Makes events of the units from `begin` to `end`, which have been committed: one for each run of new blocks."""
        if not self.enable_kv_cache_events:
            return
        self._hash_bytes = len(lease.request.block_hashes[0])
        stored = self.note_changes()
        for number, group in enumerate(self._groups):
            run: list[int] = []
            for block in range(begin // group.units, end // group.units):
                name = lease.name(number, block)
                assert name is not None
                if (number, name.ljust(KEY_BYTES, b"\0")) in stored:
                    run.append(block)
                elif run:
                    self._note_run(lease, number, run)
                    run = []
            if run:
                self._note_run(lease, number, run)

    def _note_run(self, lease: Lease, number: int, run: list[int]) -> None:
        size, request = self._groups[number].block_size, lease.request
        extra, media = [], 0
        for block in run:
            keys, media = generate_block_hash_extra_keys(request, block * size, (block + 1) * size, media)
            extra.append(keys)
        self.kv_event_queue.append(
            self._build_block_stored_event(
                request,
                block_hashes=[maybe_convert_block_hash(lease.name(number, block)) for block in run],
                parent_block_hash=maybe_convert_block_hash(lease.name(number, run[0] - 1)) if run[0] else None,
                start_token_idx=run[0] * size,
                end_token_idx=(run[-1] + 1) * size,
                block_size=size,
                kv_cache_group_id=number,
                extra_keys_list=extra,
            )
        )
