"""Terrace in the place of vLLM's KVCacheManager."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from vllm.logger import init_logger
from vllm.v1.core.kv_cache_manager import KVCacheBlocks, KVCacheManager
from vllm.v1.request import RequestStatus

from .._interface import NEVER_FITS, PAUSED
from .._keys import KEY_BYTES, Keys
from .._library import Busy, TerraceError
from .._report import Report
from ..cache import Cache
from .gpu_blocks import FOUND, NULL_BLOCK, GpuBlocks, GpuPool, Group, Lease, joined
from .gpu_windows import Boundaries

logger = init_logger("vllm." + __name__)

_PASS_MAX = 10.0  # longest pass of the scheduler, in seconds


class GpuCoordinator:
    """What vLLM's scheduler and manager call of a coordinator. It knows which request has which blocks.

    Args:
        own: vLLM's coordinator, for the groups and the numbers that vLLM has derived from its options.
        options: Options of the cache (docs/configuration.md), such as {"policy": "lru"}.

    An error of the cache is a miss, or no room, or something that is not shared; a Report counts it. Only the numbers of blocks
    must be right: the call that reads them raises.

    Threads: vLLM's scheduler.
    """

    enable_partial_hash_hits = False

    def __init__(self, own: Any, options: Mapping[str, Any]) -> None:
        sizes = [each.block_size for each in own.single_type_managers]
        self._unit = math.gcd(*sizes)
        self._ratio = max(1, self._unit // own.block_pool.hash_block_size)
        self.single_type_managers = tuple(Group(each, self._unit) for each in own.single_type_managers)
        self.groups = self.single_type_managers
        self.eagle_group_ids = own.eagle_group_ids
        self.num_reprefillable_tokens = own.num_reprefillable_tokens
        self.scheduler_block_size = own.scheduler_block_size
        self._caching = own.block_pool.enable_caching
        self._windows = [group for group in self.groups if group.window]
        self._pool_units = (own.block_pool.num_gpu_blocks - 1) * max(group.units for group in self.groups)
        alignment = math.lcm(*sizes)
        self._aligned_units = alignment // self._unit
        dropped = alignment if own.eagle_group_ids else 0
        self._boundaries = Boundaries(self._unit, self._ratio, alignment, self._pool_units, dropped)
        # The blocks are in the workers' memory, which Terrace never touches here: a device without bytes gives out their numbers.
        self.cache = Cache(
            {
                "caching": self._caching,
                **options,
                "device": {"reserve-max": 0, **options.get("device", {})},
                "pool": [
                    {"block-bytes": 1, "device-blocks": own.block_pool.num_gpu_blocks, "host-blocks": 0, "null-block": True}
                ],
                "group": [
                    {
                        "kind": "sliding-window" if group.window else "full",
                        "block-tokens": group.block_size,
                        "span-tokens": group.window,
                    }
                    for group in self.groups
                ],
            }
        )
        self._finding = Report(logger, "vLLM", "Terrace: looking blocks up")
        self._giving = Report(logger, "vLLM", "Terrace: giving out blocks")
        self._sharing = Report(logger, "vLLM", "Terrace: sharing blocks")
        self.block_pool = GpuPool(own.block_pool, self.cache, self.groups, self._giving)
        self.leases: dict[str, Lease] = {}
        self._wrong: set[int] = set()  # slots whose bytes are wrong, and which a request still holds
        self._planned: list[Lease] = []  # leases whose `planned` tokens this pass of the scheduler has planned
        self.zero = any(group.records_new_block_ids for group in self.groups)

    # ---- what a request finds

    def find_longest_cache_hit(
        self, block_hashes: Sequence[bytes], max_cache_hit_length: int
    ) -> tuple[tuple[list[Any], ...], int, int]:
        """Number of cached leading tokens, with as many stand-ins for their blocks."""
        self.share_planned()  # vLLM takes nothing back any more in a pass in which it looks for hits
        most = max_cache_hit_length // self._unit
        # A draft model needs the hidden states of the last block that was found, which is computed again. With several groups,
        # this may be the block of the token that is computed in any case, as in vLLM.
        drops = bool(self.eagle_group_ids)
        units = min(most + (self._aligned_units if drops and len(self.groups) > 1 else 0), len(block_hashes) // self._ratio)
        found = 0
        if units > 0 and not self._evict_wrong():
            raw = joined(block_hashes, 0, units, self._ratio)
            found = self._match(raw)
            if found and drops:
                found = self._match(raw[: KEY_BYTES * min(found - 1, most)])
        tokens = found * self._unit
        return tuple([FOUND] * (tokens // group.block_size) for group in self.groups), tokens, 0

    def _match(self, raw: bytes) -> int:
        keys = Keys(raw, len(raw) // KEY_BYTES)  # type: ignore[arg-type]
        return self._finding.attempt(0, lambda: self.cache.match(keys).device) if raw else 0

    # ---- a request gets blocks

    def acquire(self, request: Any, hit_tokens: int, room_left: int) -> Lease | None:
        """Gives the request its hits, and no other block yet. None: then so many blocks would not be left."""
        lease = Lease(request, self.groups, self._unit, self._ratio)
        names = min(len(request.block_hashes) // self._ratio, self._pool_units) if self._caching else 0
        hits = hit_tokens // self._unit
        try:
            lease.held = self.cache.acquire(
                lease.name_units(names),
                units=max(1, names),
                hit_units_max=hits,
                new_units_max=0,
                room_left=room_left,
                preempted=request.num_preemptions > 0,
            )
            if hits and (got := lease.held.info.device) != hits:
                raise RuntimeError(f"of {hits} blocks that were found, {request.request_id} has got {got}")
        except (TerraceError, RuntimeError) as error:
            lease.release(self._giving)
            self._no_room(error)
            return None
        if hits:
            self._grown(lease, hits)
        if self._windows:
            lease.advance_at, lease.shared_late = self._next_advance(0), True
        if self._caching:
            self._committed(lease, hits)
            lease.boundaries = self._boundaries.of(request) if self._windows else []
        self.leases[request.request_id] = lease
        return lease

    def give_back(self, lease: Lease) -> None:
        """The request is not admitted after all."""
        del self.leases[lease.request.request_id]
        lease.release(self._giving)

    def counts(self, tokens: int) -> list[int]:
        """Blocks of each group that so many tokens fill."""
        return [tokens // group.block_size for group in self.groups]

    def lacks(self, have: Sequence[int], tokens: int, computed: int, whole: bool = False) -> int:
        """Blocks that a sequence with so many blocks of each group needs for so many tokens (Group.lacks)."""
        return sum(group.lacks(count, tokens, computed, whole=whole) for group, count in zip(self.groups, have))

    def extend(self, lease: Lease, tokens: int, computed: int = 0, unzeroed: Sequence[int] = ()) -> tuple[list[int], ...] | None:
        """Adds blocks for so many tokens. Returns the new ones by group, or None if there is no room. What a connector fills
        comes piece by piece (`computed`), so that a window never has more blocks than it needs."""
        assert lease.held is not None
        had = lease.counts
        try:
            if computed > lease.capacity and self._windows:
                self._extend_computed(lease, computed)
            units = -(-tokens // self._unit)
            if units > lease.units:
                lease.held.extend(units - lease.units)
                self._grown(lease, units)
        except TerraceError as error:
            self._no_room(error)
            return None
        new = tuple([lease.held.slots_from(have, g) if lease.counts[g] > have else [] for g, have in enumerate(had)])
        if self.zero:
            for g, ids in enumerate(new):
                if self.groups[g].records_new_block_ids and g not in unzeroed:
                    self.groups[g].new_block_ids += [number for number in ids if number != NULL_BLOCK]
        return new

    def _no_room(self, error: Exception) -> None:
        """vLLM waits, or preempts a request. That is usual if too few blocks are free, if all of them are too few, or if an
        operator has cleared the cache until it is resumed."""
        if not isinstance(error, Busy) and getattr(error, "status", None) not in (NEVER_FITS, PAUSED):
            self._giving.failed(error)

    def _extend_computed(self, lease: Lease, computed: int) -> None:
        assert lease.held is not None
        piece = max(1, min(group.window for group in self._windows) // self._unit)
        while lease.capacity < computed:
            lease.held.extend(min(piece, -(-computed // self._unit) - lease.units))
            self._grown(lease, min(lease.units + piece, -(-computed // self._unit)))
            self._advance(lease, min(computed, lease.capacity))

    def _grown(self, lease: Lease, units: int) -> None:
        lease.units = units
        lease.capacity = units * self._unit
        lease.counts = [-(-units // group.units) for group in self.groups]

    def _advance(self, lease: Lease, computed: int) -> None:
        assert lease.held is not None
        self._giving.attempt(None, lease.held.advance, computed)
        lease.advance_at = self._next_advance(computed)

    def _next_advance(self, computed: int) -> int:
        return min((group.skipped(computed) + 1) * group.block_size + group.window - 1 for group in self._windows)

    def commit(self, lease: Lease, tokens: int) -> None:
        """Other requests can hit the blocks of so many tokens.

        They may be written by a step that will certainly run: vLLM's steps run one after another, so a later one finds them
        written, and so does a request of the same step, because a layer writes before it reads. For the same reason a block that
        is released can be given out at once: vLLM itself waits (pop_blocks_for_free) where a connector may write out of order.
        """
        units = min((tokens - self.num_reprefillable_tokens) // self._unit, len(lease.request.block_hashes) // self._ratio)
        begin = lease.committed
        if units > begin:
            assert lease.held is not None
            if self._sharing.attempt(True, lease.held.commit, lease.name_units(units)) is not None:
                return
            self._committed(lease, units)
            if self._windows:
                self._boundaries.note(lease.request.block_hashes, begin, units)
            self.block_pool.note_commit(lease, begin, units)

    def plan(self, lease: Lease, tokens: int) -> None:
        """This pass of the scheduler has planned so many tokens. It may still preempt the request, so nothing is shared yet."""
        if not lease.planned:
            self._planned.append(lease)
        lease.planned = tokens

    def share_planned(self) -> None:
        """The pass takes back nothing of what it has planned so far: shares it."""
        if not self._planned:
            return
        planned, self._planned = self._planned, []
        for lease in planned:
            tokens, lease.planned = lease.planned, 0
            if tokens >= lease.commit_at:
                self.commit(lease, tokens)

    def _committed(self, lease: Lease, units: int) -> None:
        lease.committed = units
        lease.commit_at = (units + 1) * self._unit + self.num_reprefillable_tokens

    def settle(self, lease: Lease, computed: int) -> None:
        """So many tokens are computed, in steps that have ended. Shares blocks, and gives up those that windows have left behind:
        these stay cached only before a boundary, because what is given up before it is shared is forgotten."""
        if lease.loads:
            return
        computed = min(computed, lease.capacity)
        while lease.boundaries and lease.boundaries[0] + self.num_reprefillable_tokens <= computed:
            place = lease.boundaries.pop(0)
            if place > lease.committed_tokens:
                self._advance(lease, place)
                self.commit(lease, place + self.num_reprefillable_tokens)
        if computed >= lease.advance_at:
            self._advance(lease, computed)
        if computed >= lease.commit_at:
            self.commit(lease, min(computed, lease.request.num_tokens))

    def settle_all(self, lease: Lease) -> None:
        """The same for what vLLM knows to be computed."""
        self.settle(lease, lease.request.num_computed_tokens - lease.request.num_in_flight_tokens)

    # ---- what the scheduler and vLLM's manager call

    def get_num_blocks_to_allocate(
        self, request_id: str, num_tokens: int, total_computed_tokens: int = 0, apply_admission_cap: bool = False, **_others: Any
    ) -> int:
        """Blocks that the request needs in addition to those that it has."""
        lease = self.leases.get(request_id)
        return self.lacks(
            self.counts(0) if lease is None else lease.counts, num_tokens, total_computed_tokens, apply_admission_cap
        )

    def cache_blocks(self, request: Any, num_computed_tokens: int) -> None:
        """The first tokens are computed."""
        lease = self.leases.get(request.request_id)
        if lease is None:
            return
        lease.loads = False
        if self._windows or num_computed_tokens >= lease.commit_at:
            self.settle(lease, num_computed_tokens)

    def remove_skipped_blocks(
        self, request_id: str, processed_computed_tokens: int, num_prompt_tokens: int | None = None
    ) -> None:
        """Gives up the blocks that windows have left behind."""
        lease = self.leases.get(request_id)
        if lease is not None and self._windows:
            self.settle(lease, processed_computed_tokens)

    def free(self, request_id: str) -> None:
        """Ends the request's hold of its blocks."""
        self.block_pool.free_blocks(self.pop_blocks_for_free(request_id))

    def pop_blocks_for_free(self, request_id: str) -> list[Lease]:
        """What block_pool.free_blocks() takes when the blocks may be used again: one object for all of them."""
        lease = self.leases.pop(request_id, None)
        if lease is None:
            return []
        lease.planned = 0  # if this pass has planned it, the step does not compute it
        self.settle_all(lease)
        return [lease]

    def get_blocks(self, request_id: str) -> GpuBlocks:
        """All blocks of a request."""
        lease = self.leases.get(request_id)
        return GpuBlocks(tuple([] if lease is None else lease.table(g) for g in range(len(self.groups))), lease)

    def emit_cached_block_events(self, request: Any, computed_blocks: tuple[list[Any], ...]) -> None:
        """Events of hits, for a request that wants them."""
        for number, (group, blocks) in enumerate(zip(self.groups, computed_blocks)):
            self.block_pool.emit_cached_block_events(request, len(blocks), group.block_size, number)

    def evict_blocks(self, block_ids: set[int]) -> None:
        """The bytes of these blocks are wrong: nobody finds them, nor what follows them."""
        self._wrong |= block_ids
        self._evict_wrong()

    def _evict_wrong(self) -> bool:
        """Evicts wrong blocks. True if a request still holds one: until it has ended, nothing is found."""
        if self._wrong:
            wrong = sorted(self._wrong)
            self._wrong = set(self._finding.attempt((0, wrong), self.cache.evict, wrong)[1])
        return bool(self._wrong)

    def reset_prefix_cache(self) -> bool:
        """Forgets everything, if no request has blocks."""
        try:
            self.cache.reset()
        except TerraceError as error:
            if not isinstance(error, Busy):
                self._finding.failed(error)
            logger.warning("Failed to reset prefix cache because some blocks are not freed yet")
            return False
        self._wrong.clear()
        logger.info("Successfully reset prefix cache")
        return True

    def new_step_starts(self) -> None:
        """Lets the cache do what became due. From now on, a hit stays a hit until pass_ends()."""
        self._finding.attempt(None, self.cache.poll)
        self._finding.attempt(None, self.cache.pause_idle_service, _PASS_MAX)

    def pass_ends(self) -> None:
        """The scheduler has planned a step, which will run. While vLLM idles, the cache serves operators itself."""
        self.share_planned()
        self._finding.attempt(None, self.cache.pause_idle_service, 0)


class GpuManager(KVCacheManager):
    """vLLM's manager with Terrace's blocks: Terrace's tree and eviction policy decide what GPU memory keeps.

    A look-up returns stand-ins of blocks (FOUND), because a request learns the numbers of its blocks when it gets them.

    Args:
        own: vLLM's manager, made from vLLM's options. Its blocks are not used.
        options: Options of the cache (docs/configuration.md).

    Threads: vLLM's scheduler.
    """

    def __init__(self, own: KVCacheManager, options: Mapping[str, Any] | None = None) -> None:
        self.__dict__.update(own.__dict__)
        self.coordinator = GpuCoordinator(own.coordinator, options or {})
        self.block_pool = self.coordinator.block_pool
        self.retained_hit_group_ids = ()
        self.empty_kv_cache_blocks = GpuBlocks(tuple([] for _ in self.coordinator.groups))
        self._leases = self.coordinator.leases

    def allocate_slots(
        self,
        request: Any,
        num_new_tokens: int,
        num_new_computed_tokens: int = 0,
        new_computed_blocks: KVCacheBlocks | None = None,
        num_lookahead_tokens: int = 0,
        num_external_computed_tokens: int = 0,
        delay_cache_blocks: bool = False,
        num_encoder_tokens: int = 0,
        full_sequence_must_fit: bool = False,
        reserved_blocks: int = 0,
        has_scheduled_reqs: bool = True,
        skip_zeroing_group_ids: tuple[int, ...] = (),
    ) -> GpuBlocks | None:
        """Blocks for the next tokens of a request, as KVCacheManager.allocate_slots. Returns the new ones, or None."""
        if not (num_new_tokens or num_external_computed_tokens or num_new_computed_tokens):
            raise ValueError("num_new_tokens must be greater than 0 when there are no computed tokens to adopt")
        coordinator = self.coordinator
        lease = self._leases.get(request.request_id)
        longest = self.max_model_len
        computed = request.num_computed_tokens + num_new_computed_tokens + num_external_computed_tokens
        computed = computed if computed < longest else longest  # faster than min()
        main = computed + num_new_tokens
        needed = main + num_lookahead_tokens
        needed = needed if needed < longest else longest
        is_new = lease is None
        if lease is not None and lease.shared_late:
            coordinator.settle(lease, computed - request.num_in_flight_tokens)
        if is_new or request.status is not RequestStatus.RUNNING:
            have = coordinator.counts(num_new_computed_tokens) if lease is None else lease.counts
            tokens = min(request.num_tokens, longest) if full_sequence_must_fit else 0
            lacks = max(
                coordinator.lacks(have, needed, computed) + reserved_blocks, coordinator.lacks(have, tokens, computed, True)
            )
            if has_scheduled_reqs and request.status in (RequestStatus.WAITING, RequestStatus.PREEMPTED):
                lacks += self.watermark_blocks
            if lacks > self.block_pool.get_num_free_blocks():
                return None
            if lease is None:
                lease = coordinator.acquire(request, num_new_computed_tokens, lacks)
                if lease is None:
                    return None
        assert lease is not None
        new: GpuBlocks = self.empty_kv_cache_blocks
        if needed > lease.capacity:
            ids = coordinator.extend(lease, needed, computed, skip_zeroing_group_ids)
            if ids is None:
                if is_new:
                    coordinator.give_back(lease)
                return None
            new = GpuBlocks(ids)
        if delay_cache_blocks:
            lease.loads = True
        else:
            lease.shared_late |= num_external_computed_tokens > 0  # a connector loads them in this step, and may fail
            if main >= lease.commit_at and not lease.shared_late:
                coordinator.plan(lease, min(main, request.num_tokens))
        return new

    def get_blocks(self, request_id: str) -> GpuBlocks:
        """All blocks of a request."""
        return self.coordinator.get_blocks(request_id)

    def evict_blocks(self, block_ids: set[int]) -> None:
        """The bytes of these blocks are wrong."""
        self.coordinator.evict_blocks(block_ids)

    def estimate_cached_tokens(self, request: Any) -> int:
        """Leading tokens of the request that others can hit."""
        lease = self._leases.get(request.request_id)
        if lease is None:
            return 0
        self.coordinator.settle_all(lease)
        return lease.committed_tokens

    def record_blocks_for_zeroing(self, request_id: str, start_token: int) -> None:
        """Fills the blocks of the request from this token on with zeros, in the next step."""
        lease = self._leases[request_id]
        for number, group in enumerate(self.coordinator.groups):
            if group.records_new_block_ids:
                ids = lease.table(number)[start_token // group.block_size :]
                group.new_block_ids += [block for block in ids if block != NULL_BLOCK]

    def take_kv_cache_block_copies(self) -> tuple[list[Any], list[Any]]:
        """None: no request continues a block that others have."""
        return [], []

    def take_boundary_state_offloads(self) -> dict[str, list[tuple[int, int, int]]]:
        """None: there are no groups of states."""
        return {}

    def finalize_partial_tail_offloads(self, request: Any) -> list[tuple[int, int, int]]:
        """None: there are no groups of states."""
        return []

    def close(self) -> None:
        """Ends the cache."""
        self.coordinator.cache.close()
