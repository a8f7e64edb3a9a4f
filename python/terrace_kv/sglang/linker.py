"""TerraceLinker, an external linker of SGLang: pages move by layer between device memory and the tiers of Terrace."""

from __future__ import annotations

import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch
from sglang.srt.mem_cache.hicache_storage import HiCacheStorageConfig, PoolName
from sglang.srt.mem_cache.unified_cache.unified_cache_linker import UnifiedCacheLinker

from .._keys import Keys, joined, keys_of_names
from .._library import Busy, DeadlineExceeded, NotFound, TerraceError
from .._minute import Minute
from .._offload_types import JobEvent, State
from ..identity import namespace
from ..offload import OffloadCache
from . import identity, linker_options
from .device_pools import DevicePool, device_pools, pool_group
from .linker_cache import cache_config
from .linker_work import LayerCounter, LoadBatch, Offload, Order, QueuedLoad, Ready
from .page_chains import PageChains
from .pages import prefix_ends
from .report import Report, log_of_store, logger

_CLOSE_SECONDS = 60.0
_TURN_SECONDS = 0.05  # the longest pause between two polls
_EVENT_SECONDS = 0.001  # the same while an event of the device is waited for
_REPORT_SECONDS = 30.0
_POLLS_MAX = 4
_STEP_SECONDS = 10.0  # longest time in which SGLang plans a batch
_LOOK_UP, _KEEP, _FETCH = "looking pages up", "keeping pages for loads", "reading pages ahead"
_LOAD, _STORE, _CLEAR, _POLL = "loading pages", "storing pages", "dropping all pages", "asking the cache for results"
_UNDER_WAY_MAX = 32768  # pages of all offloads; the cache has at most 65536 blocks under way


class TerraceLinker(UnifiedCacheLinker):  # type: ignore[misc]
    """Keeps pages of SGLang's device pools in Terrace's host memory and on disk, without HiCache between.

    SGLang makes one in each scheduler process, by its factory for dynamic linkers; docs/sglang.md has the flags. It reads and
    writes the pages of SGLang's pools, whose memory stays SGLang's. It owns all else, until close().

    A page that is missing is computed, and an error of the cache is a miss: no error of it ends SGLang's scheduler. If a page cannot be loaded after a look-up has found it, because its bytes on the disk are
    damaged or the disk is late, finish_layer_wise_loading() returns False, and SGLang aborts the requests of that batch.

    Threads: SGLang's scheduler makes all calls; the layers of a batch may be waited for on another thread.

    Args:
        server_args: Not used; the configuration in effect is read.
        params: SGLang's CacheInitParams.
        components: The kinds of SGLang's tree components.
        extra_config: The options (LinkerOptions).
        forward_stream: The stream on which the forward pass writes the pages.

    Raises:
        ValueError: An option is wrong, a pool of the model is not supported, or the weights cannot be named.
        Busy: Another process has the store.
    """

    def __init__(
        self,
        server_args: Any,
        params: Any,
        *,
        components: Any,
        extra_config: dict[str, Any] | None = None,
        forward_stream: Any = None,
    ) -> None:
        self._options = linker_options.parse(extra_config)
        self.forward_stream = forward_stream
        group = pool_group(params, components)
        self.pools = group.entry_map
        self._layers = int(group.num_layers)
        self._page_tokens = int(params.page_size)
        self._pools: list[DevicePool] = device_pools(group, padded=bool(self._options.path))
        self._numbers = {pool.source: number for number, pool in enumerate(self._pools)}
        config = _config_of(params)
        base = identity.base_fields(config, self._options.weights_revision)
        self._weights = identity.weights_now()
        self._namespace = namespace(
            "sglang-linker",
            {
                **base,
                "pools": [pool.geometry() for pool in self._pools],
                "page_tokens": self._page_tokens,
                "bigram": bool(params.is_eagle),
                "tp_rank": config.tp_rank,
            },
        )
        given = cache_config(self._options, self._pools, config, identity.store_label(base, config))
        regions = [region for number, pool in enumerate(self._pools) for region in pool.device_regions(number)]
        self._cache = OffloadCache(given, regions=regions, log=log_of_store)
        self._chains = PageChains(self._cache, bool(self._options.path))
        self._lock = threading.RLock()
        self._last_job = 0
        self._queued: dict[str, QueuedLoad] = {}  # by request
        self._to_unpin: set[int] = set()
        self._batches: dict[int, LoadBatch] = {}
        self._last_batch = -1
        self._offloads: deque[Offload] = deque()  # in the order of the calls
        self._by_job: dict[int, LoadBatch | Offload] = {}
        self._minute = Minute(logger.info, "pages")
        self._reports = {what: Report(what) for what in (_LOOK_UP, _KEEP, _FETCH, _LOAD, _STORE, _CLEAR, _POLL)}
        self._planning = False  # between the first look-up of a batch and its start
        self._clear_owed = False  # a clear has failed
        self._closed = False
        self.layer_done_counter = LayerCounter(self._wait_for_layer)
        if PoolName.MAMBA in self.pools:
            params.req_to_token_pool.register_layer_transfer_counter(self.layer_done_counter)
        sizes = ", ".join(f"{pool.name} {pool.slots} pages of {pool.block_bytes} bytes" for pool in self._pools)
        logger.info("Terrace links the pools %s; weights %s, namespace %s", sizes, base["weights"], self._namespace.hex()[:12])

    # ---- what is there

    def lookup(self, rid: str, transfers: list[Any]) -> list[int]:
        """Returns every number of leading pages that can be restored."""
        by_source = {transfer.name: transfer for transfer in transfers}
        if not set(self._numbers) <= set(by_source):
            return []
        with self._lock:
            return self._reports[_LOOK_UP].attempt([], self._restorable, by_source) if self._serves() else []

    def _restorable(self, by_source: dict[Any, Any]) -> list[int]:
        names = list(by_source[PoolName.KV].keys or ())
        self._plan()
        keys = self._kv_keys(names)
        self._chains.show(keys)
        ends = set(range(1, self._chains.leading(keys) + 1))
        for source, number in self._numbers.items():
            if number and ends:
                transfer = by_source[source]
                states = self._cache.look_up(self._lone_keys(number, names[: max(ends)]), number)
                there = [state is not State.MISS for state in states]
                ends &= prefix_ends(there, transfer.hit_policy, len(transfer.keys or ()), self._pools[number].name)
        return sorted(ends)

    # ---- loads

    def load(self, rid: str, transfers: list[Any]) -> bool:
        """Queues a load, and keeps the host copies of its pages. The result depends on the transfers alone, as it must be equal
        on all ranks.

        Raises:
            ValueError: A load of this request is queued already.
        """
        wanted = [transfer for transfer in transfers if transfer.keys and transfer.name in self._numbers]
        if not wanted:
            return False
        with self._lock:
            if rid in self._queued:
                raise ValueError(f"a load of the request {rid} is queued already")
            orders: list[Order] = []
            for place, transfer in enumerate(wanted):
                number = self._numbers[transfer.name]
                if number:
                    orders.append(Order(self._new_job(), number, self._lone_keys(number, transfer.keys), 0, place, 0))
                    continue
                # The last piece first: so the first one is the newest, and is evicted last.
                runs = reversed(self._chains.runs(self._kv_keys(transfer.keys)))
                orders += [Order.of(self._new_job(), run, place) for run in runs]
            for order in orders:
                self._reports[_KEEP].attempt(None, self._keep, order)
            sizes = [(self._numbers[transfer.name], len(transfer.keys)) for transfer in wanted]
            ready = Ready([transfer.device_indices for transfer in wanted], self.record_offload_ready)
            self._queued[rid] = QueuedLoad(ready, sizes, orders)
        return True

    def _keep(self, order: Order) -> None:
        self._cache.touch(order.keys, order.pool)  # the disk does not evict them now to make room for others
        try:
            self._cache.pin(order.job, order.keys, order.pool)
        except (NotFound, Busy):
            pass  # only the disk has them, or there are too many pins; if a page goes until the load, the load fails

    def cancel_queued_load(self, rid: str) -> bool:
        """Cancels a load that has not started yet. Returns whether there was one."""
        with self._lock:
            load = self._queued.pop(rid, None)
            if load is not None:
                self._unpin(load)
        return load is not None

    def start_layer_wise_loading(self) -> int:
        """Starts the queued loads. Returns the number of their batch, or -1 if there are none."""
        with self._lock:
            if not self._queued:
                self._end_plan()
                return -1
            self._last_batch += 1
            batch = LoadBatch(self._layers, time.monotonic() + self._options.load_timeout)
            batch.waiting = list(self._queued.values())
            self._queued = {}
            self._batches[self._last_batch] = batch
            for load in batch.waiting:
                if not load.ready:
                    self._fetch(load)
            self._start(batch)
            self._end_plan()
            return self._last_batch

    def finish_layer_wise_loading(self, counter_index: int) -> bool:
        """Waits until nothing writes to the pages of the batch any more. Returns whether all pages have arrived."""
        batch = self._batches.get(counter_index)
        if batch is None:
            return True
        self._until(lambda: batch.ended, "a load to end", [batch])
        with self._lock:
            del self._batches[counter_index]
            if batch.error is None:
                self._reports[_LOAD].well()
            else:
                logger.error("a load has failed, and SGLang aborts its requests: %s", batch.error)
                self._reports[_LOAD].failed(batch.error)
            came = batch.pages if batch.error is None else 0
            self._minute.loaded(batch.pages, came, came * self._page_tokens)
        return batch.error is None

    def _plan(self) -> None:
        """From the first look-up of a batch to its start, the contents of the cache do not change, so that what was found can be
        loaded. The lock is held."""
        if self._planning:
            return
        self._planning = True
        self._cache.pause_idle_service(_STEP_SECONDS)
        self._pump()
        for _ in range(_POLLS_MAX):  # a poll may start writes; what these evict from the disk is reported by the next one
            self._pump()
            if not self._chains.lost:
                break

    def _end_plan(self) -> None:
        if self._planning:
            self._planning = False
            self._reports[_POLL].attempt(None, self._cache.pause_idle_service, 0)

    def _fetch(self, load: QueuedLoad) -> None:
        """Reads pages from the disk before the device has reached the events of their load. If one cannot be read, the load fails
        later. The lock is held."""
        def fetch() -> None:
            try:
                for order in load.orders:
                    self._cache.fetch(self._new_job(), order.keys, first=order.first, pool=order.pool)
            except Busy:
                pass

        self._reports[_FETCH].attempt(None, fetch)

    def _wait_for_layer(self, index: int, layer: int) -> None:
        batch = self._batches.get(index)
        if batch is not None:
            self._until(lambda: batch.error is not None or batch.layers > layer, "a layer", [batch])

    def _start(self, batch: LoadBatch) -> None:
        """Orders the loads of a batch whose events the device has reached. The lock is held."""
        batch.check_time()
        while batch.waiting and (batch.error is not None or batch.waiting[0].ready):
            load = batch.waiting.pop(0)
            if batch.error is not None:
                self._unpin(load)
                continue
            try:
                slots = load.slots(self._pools)
                left = max(0.001, batch.ends - time.monotonic())
                for order in load.orders:
                    places = order.slots(slots)
                    self._cache.load(
                        order.job, order.keys, slots=places, first=order.first, pool=order.pool, timeout=left, by_layer=True
                    )
                    batch.add(order.job, self._pools[order.pool])
                    self._by_job[order.job] = batch
                    batch.pages += order.count if order.pool == 0 else 0
            except Exception as error:  # reported at the end of the batch
                batch.fail(error)
                self._unpin(load)
        if batch.error is not None and not batch.cancelled:
            batch.cancelled = True
            self._cancel(batch.jobs)

    def _unpin(self, load: QueuedLoad) -> None:
        self._to_unpin |= {order.job for order in load.orders if order.job not in self._by_job}
        self._end_pins()

    def _end_pins(self) -> None:
        """Ends pins, also those whose end has failed before: they would keep their pages for ever."""
        for job in list(self._to_unpin):
            if self._reports[_KEEP].attempt(False, _end, self._cache.unpin, job):
                self._to_unpin.discard(job)

    # ---- offloads

    def offload(self, transfers: list[Any], session_id: str | None = None) -> bool:
        """Queues the pages of one node. The offload succeeds if all of them are stored. Until then SGLang keeps the pages."""
        wanted = [transfer for transfer in transfers if transfer.keys and transfer.name in self._numbers]
        kv = next((transfer for transfer in wanted if transfer.name == PoolName.KV), None)
        if kv is None:
            return False
        with self._lock:
            self._chains.show(self._kv_keys(kv.keys))
            pages = sum(len(transfer.keys) for transfer in wanted)
            under_way = sum(each.pages for each in self._offloads if not each.ended)
            if not self._serves() or under_way + pages > _UNDER_WAY_MAX:
                refused = Offload(None, [], 0)
                refused.error = "too many pages are under way" if self._serves() else "the weights have changed"
                self._offloads.append(refused)  # with a result in its turn, as on the other ranks
                return True
            ready = Ready([transfer.device_indices for transfer in wanted], self.record_offload_ready)
            names = [(self._numbers[transfer.name], list(transfer.keys)) for transfer in wanted]
            self._offloads.append(Offload(ready, names, pages))
            if not self._planning:
                self._pump()
        return True

    def num_completed_offloads(self) -> int:
        """The number of offloads that have ended before the first one that has not."""
        with self._lock:
            self._end_plan()
            self._pump()
            self._minute.step(time.monotonic())
            for count, offload in enumerate(self._offloads):
                if not offload.ended:
                    return count
            return len(self._offloads)

    def pop_completed_offload(self) -> bool:
        """Removes the oldest offload, which has ended. Returns whether all its pages are stored.

        Raises:
            IndexError: No offload has ended.
        """
        with self._lock:
            if not self._offloads or not self._offloads[0].ended:
                raise IndexError("no offload has ended")
            offload = self._offloads.popleft()
            if offload.error is None:
                self._reports[_STORE].well()
                self._minute.stored(len(offload.transfers[0][1]))
            else:
                self._reports[_STORE].failed(offload.error)
            return offload.error is None

    def _store(self, offload: Offload) -> None:
        """Orders the stores of an offload whose events the device has reached. The lock is held."""
        ready, offload.ready = offload.ready, None
        assert ready is not None
        offload.error = "it was ordered in part only"  # until all of it is ordered
        waiting: list[bytes] = []
        try:
            for (number, names), indices in zip(offload.transfers, ready.indices):
                slots = self._pools[number].slots_of(indices, len(names))
                if number:
                    self._store_run(offload, number, self._lone_keys(number, names), 0, slots, [])
                    continue
                waiting = self._kv_keys(names)
                for run in self._chains.runs_to_store(waiting):
                    pages, run_slots = run.keys[run.before :], slots[run.first : run.first + run.count]
                    self._store_run(offload, 0, joined(run.keys), run.before, run_slots, pages)
                    waiting = waiting[run.count :]
            offload.error = None
        except Exception as error:  # reported at the end of the offload
            offload.error = error
        finally:
            self._chains.stored(waiting)  # nobody stores these

    def _store_run(self, offload: Offload, pool: int, keys: Keys, first: int, slots: list[int], pages: list[bytes]) -> None:
        job = self._new_job()
        self._cache.store(job, keys, slots=slots, first=first, pool=pool)
        offload.jobs[job] = pages
        self._by_job[job] = offload

    # ---- the end

    def reset(self) -> None:
        """Ends all transfers. Then it drops all pages of all tiers, because SGLang also resets its cache for new weights, and
        does not tell which. Pages that are stored afterwards are found by this object only. With `weights_fixed`, nothing is
        dropped, unless weights have changed nevertheless."""
        with self._lock:
            self._quiesce()
            if self._options.weights_fixed and identity.weights_are(self._weights):
                return
            self._weights = identity.weights_now()
            self._chains.forget()
            self._namespace = namespace("reset", {"namespace": self._namespace.hex(), "salt": secrets.token_hex(16)})
            self._clear_owed = True
            self._clear()

    def _clear(self) -> None:
        """Drops all pages. Until this has succeeded, none is served or stored."""
        def clear() -> None:
            self._cache.clear()
            self._clear_owed = False
            logger.info("SGLang has reset its cache: Terrace has dropped all pages in host memory and on disk")

        if self._clear_owed and not self._closed:
            self._reports[_CLEAR].attempt(None, clear)

    def close(self) -> None:
        """Ends all transfers, makes everything durable, and releases all memory. A second call does nothing."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._quiesce()
            try:
                if self._options.path:
                    self._cache.checkpoint(_CLOSE_SECONDS)
            except TerraceError as error:
                logger.error("closing the cache: %s", error)
            try:
                self._cache.close(_CLOSE_SECONDS)
            except DeadlineExceeded as error:
                _kept_for_ever.append(self._pools)
                logger.error("closing the cache: %s; the device memory of its pages stays in use", error)
            except TerraceError as error:
                logger.error("closing the cache: %s", error)

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            self.close()  # before the device memory that the cache may use is released

    def statistics(self) -> dict[str, int]:
        """Counts of the cache, by the names of OffloadCache.statistics()."""
        return self._cache.statistics()

    @property
    def errors(self) -> int:
        """Number of errors that were misses for SGLang."""
        return sum(report.failures for report in self._reports.values())

    def _quiesce(self) -> None:
        """Ends everything that is queued or under way. The lock is held."""
        self._end_plan()
        for rid in list(self._queued):
            self.cancel_queued_load(rid)
        self.layer_done_counter.set_consumer(-1)
        for batch in self._batches.values():
            batch.fail("the linker is being reset or closed")
            self._cancel(batch.jobs)
        for offload in self._offloads:
            self._cancel(list(offload.jobs))
            if offload.ready is not None:
                offload.ready = None  # nothing has been ordered
        batches, offloads = list(self._batches.values()), list(self._offloads)
        self._until(
            lambda: all(batch.ended for batch in batches) and all(offload.ended for offload in offloads),
            "transfers to end",
            batches,
        )
        self._batches.clear()
        self._offloads.clear()

    # ---- inside

    def _serves(self) -> bool:
        """False if SGLang has got other weights: the names of the pages stand for the former ones."""
        self._clear()
        return not (self._closed or self._clear_owed) and identity.weights_are(self._weights)

    def _kv_keys(self, names: Sequence[str]) -> list[bytes]:
        return list(keys_of_names(self._namespace, [name.encode() for name in names]))

    def _lone_keys(self, pool: int, names: Sequence[str]) -> Keys:
        kind = self._pools[pool].name
        return keys_of_names(self._namespace, [f"{kind}/{name}".encode() for name in names], alone=True)

    def _new_job(self) -> int:
        self._last_job += 1
        return self._last_job

    def _cancel(self, jobs: Sequence[int]) -> None:
        """Ends jobs soon. An operator's pause of transfers ends, too: nobody can use the pages of a job that stands still."""
        if jobs:
            self._reports[_POLL].attempt(None, self._cache.resume_transfers)
        for job in jobs:
            self._reports[_POLL].attempt(False, _end, self._cache.cancel, job)

    def _pump(self) -> None:
        """Orders what has become ready, and takes the results of the cache. The lock is held."""
        if self._cache.closed:
            return
        self._end_pins()
        for batch in self._batches.values():
            self._start(batch)
        for offload in self._offloads:
            if offload.ready is not None and offload.ready:
                self._store(offload)

        def take_results() -> None:
            for event in self._cache.poll():
                self._take(event)
            self._chains.follow()

        self._reports[_POLL].attempt(None, take_results)

    def _take(self, event: JobEvent) -> None:
        work = self._by_job.get(event.job)
        if work is None:
            return
        pages = work.jobs.get(event.job, []) if isinstance(work, Offload) else []
        work.take(event)
        if not work.has(event.job):
            self._chains.stored(pages)
            del self._by_job[event.job]

    def _until(self, done: Callable[[], bool], what: str, batches: Sequence[LoadBatch]) -> None:
        """Polls until `done`. Whatever writes to pages of the device must have ended before SGLang may use them for others, so
        this has no time limit of its own; batches fail when their time is over."""
        began = time.monotonic()
        while True:
            with self._lock:
                self._pump()
                if done():
                    return
                waits = any(batch.waiting for batch in batches)
            now = time.monotonic()
            if now - began >= _REPORT_SECONDS:
                began = now
                logger.warning("the device or a disk does not answer: still waiting for %s", what)
            ends = [max(0.0, batch.ends - now) for batch in batches if batch.error is None]
            pause = min(_EVENT_SECONDS if waits else _TURN_SECONDS, *ends, _TURN_SECONDS)
            self._cache.wait(pause)


def _end(call: Callable[[int], None], job: int) -> bool:
    """Ends what may not be there any more."""
    try:
        call(job)
    except NotFound:
        pass
    return True


# Pools of caches that did not end in time. The device may still use their memory.
_kept_for_ever: list[Any] = []


def _config_of(params: Any) -> HiCacheStorageConfig:
    """The place of this rank, in the form that the names of pages are made from."""
    rank, size = 0, 1
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        group = params.attn_tp_cache_group or params.tp_cache_group
        rank, size = torch.distributed.get_rank(group=group), torch.distributed.get_world_size(group=group)
    return HiCacheStorageConfig(
        tp_rank=rank,
        tp_size=size,
        pp_rank=params.pp_rank,
        pp_size=params.pp_size,
        attn_cp_rank=params.attn_cp_rank,
        attn_cp_size=params.attn_cp_size,
        is_mla_model=False,
        enable_storage_metrics=False,
        is_page_first_layout=False,
        model_name=None,
        extra_config=None,
    )
