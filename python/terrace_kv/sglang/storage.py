"""TerraceStorage, the storage back end of SGLang's HiCache."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from sglang.srt.mem_cache.hicache_storage import HiCacheStorage, PoolHitPolicy, PoolName, PoolTransferResult

from .._library import Busy, DeadlineExceeded, TerraceError
from .._minute import Minute
from ..store import Region, Store
from . import identity, options
from .blocks import Blocks, LocalBlocks
from .pages import Buffer, PoolPages, block_bytes_for, prefix_ends, register
from .pool import StoredPool
from .report import Report, log_of_store, logger
from .sharing import RemoteBlocks, Server

_T = TypeVar("_T")
_KV = PoolName.KV.value
_CLOSE_SECONDS = 60.0
_LOOK_UP, _READ, _WRITE, _CLEAR = "looking pages up", "reading pages", "writing pages", "clearing the store"
# Names of the classes of pools that are sharded over the ranks even if the KV of the model is equal on all ranks.
_SHARDED = ("MHATokenToKVPoolHost", "MHATokenToKOnlyPoolHost", "MambaPoolHost")


class TerraceStorage(HiCacheStorage):  # type: ignore[misc]
    """Stores pages of SGLang's host pools in a Terrace store on a local disk.

    SGLang makes one in each scheduler process, registers the host pools, and calls it on its own threads. A page that is missing,
    damaged or cannot be read is a miss; for a page that cannot be stored the result is False. Neither raises an exception; the
    log has one message when the store begins to fail, and one when it works again.

    Args:
        storage_config: SGLang's HiCacheStorageConfig. Its extra_config has the options; docs/sglang.md lists them.
        kwargs: Not used; SGLang passes it.

    Raises:
        ValueError: An option is wrong, or the weights cannot be named.
    """

    def __init__(self, storage_config: Any, kwargs: dict[str, Any] | None = None) -> None:
        self._config = storage_config
        self._options = options.parse(storage_config.extra_config)
        # Unless this is set, SGLang moves pages one by one, through copies. SGLang reads it after this constructor.
        storage_config.extra_config.setdefault("interface_v1", 1)
        self._replicated = bool(storage_config.is_mla_model) and not self._options.mla_copies
        self._writes = not self._replicated or bool(storage_config.is_storage_writer)
        if self._options.mla_copies:
            storage_config.is_mla_model = False  # SGLang asks this object which ranks write: from now on all
        self._identity = identity.base_fields(storage_config, self._options.weights_revision)
        self._lock = threading.RLock()
        self._minute = Minute(logger.info, "pages")
        self._reports = {what: Report(what) for what in (_LOOK_UP, _READ, _WRITE, _CLEAR)}
        self._pages: dict[str, PoolPages] = {}
        self._pools: dict[str, StoredPool] = {}
        self._block_bytes = 0
        self._local: LocalBlocks | None = None
        self._remote: RemoteBlocks | None = None
        self._server: Server | None = None
        self._regions: dict[tuple[int, int], tuple[Region, Buffer]] = {}
        self._opened = self._closed = False
        self._clears = 0
        self._measure_lock = threading.Lock()
        self._measured: dict[bool, list[tuple[int, float]]] = {False: [], True: []}

    # ---- pools

    def register_mem_pool_host(self, mem_pool_host: Any) -> None:
        """Takes the pool of the KV itself."""
        super().register_mem_pool_host(mem_pool_host)
        self._add(_KV, mem_pool_host)

    def register_mem_host_pool_v2(self, host_pool: Any, host_pool_name: Any) -> None:
        """Takes a further pool: the state of a recurrent layer, an indexer, a draft model."""
        super().register_mem_host_pool_v2(host_pool, host_pool_name)
        self._add(_name(host_pool_name), host_pool)

    def on_host_pools_registered(self) -> None:
        """Opens the store. After a failure, all later calls find and store nothing.

        Raises:
            Busy: Another process has the store.
            ValueError, StorageError: The store cannot be opened; the sentence gives the reason.
        """
        self._open()

    def _add(self, name: str, pool: Any) -> None:
        with self._lock:
            known = self._pages.get(name)
            if known is not None and known.pool is pool:
                return
            pages = PoolPages(name, pool)
            self._pages[name] = pages
            if self._is_sharded(pages) and not self._writes and name != PoolName.MAMBA.value:
                # SGLang lets this rank write such a pool only if SGLang treats the rank as a writer; MAMBA is the only exception.
                # StoredPool.write() leaves out pools that another rank writes.
                self._config.is_mla_model = False
            if self._opened:
                self._bind(pages)

    def _is_sharded(self, pages: PoolPages) -> bool:
        kinds = {kind.__name__ for kind in type(pages.pool).__mro__}
        return not self._replicated or pages.name == PoolName.MAMBA.value or not kinds.isdisjoint(_SHARDED)

    # ---- the store

    def _open(self) -> None:
        with self._lock:
            if self._opened or self._closed:
                return
            self._block_bytes = block_bytes_for(self._pages.values())
            try:
                for pages in self._pages.values():
                    self._bind(pages)
                self._serve()
            except BaseException:
                self._closed = True
                self._let_go()
                raise
            self._opened = True

    def _bind(self, pages: PoolPages) -> None:
        """Chooses where the pages of a pool are stored."""
        if not pages.bytes:
            return
        sharded = self._is_sharded(pages)
        local = self._store() if sharded or self._writes else None
        blocks: Blocks = self._writer() if local is None else local
        regions = None
        if local is not None and pages.lies_in_blocks(self._block_bytes):
            regions = [self._region(local.store, buffer) for buffer in pages.buffers]
        tp_rank = self._config.tp_rank if sharded else None
        key_namespace = identity.pool_namespace(self._identity, pages, self._block_bytes, tp_rank)
        self._pools[pages.name] = StoredPool(pages, key_namespace, self._block_bytes, blocks, local, regions)

    def _store(self) -> LocalBlocks:
        if self._local is None:
            name = identity.store_name(self._config, self._config.tp_rank, self._block_bytes)
            given = self._options
            try:
                labelled = {"label": identity.store_label(self._identity, self._config), **given.store}
                store = Store(given.path, given.capacity, self._block_bytes, name=name, log=log_of_store, **labelled)
            except Busy as error:
                raise Busy(error.status, f"{error}; every engine needs a path of its own") from error
            self._local = LocalBlocks(store)
            logger.info("%s/%s: %s, blocks of %d bytes", given.path[0], name, store.io(), self._block_bytes)
            _warn_of_others(Path(given.path[0]), name)
        return self._local

    def _writer(self) -> RemoteBlocks:
        if self._remote is None:
            self._remote = RemoteBlocks(self._socket(), self._block_bytes)
        return self._remote

    def _serve(self) -> None:
        """Serves ranks that have the same bytes as this rank."""
        if self._replicated and self._writes and self._local is not None and self._config.tp_size > self._config.dcp_size:
            self._server = Server(self._local, self._socket())

    def _socket(self) -> Path:
        writer = identity.store_name(self._config, self._config.dcp_rank, self._block_bytes)
        return Path(self._options.path[0]) / f"{writer}.socket"

    def _region(self, store: Store, buffer: Buffer) -> Region:
        place = (buffer.address, buffer.size)
        if place not in self._regions:
            self._regions[place] = (register(store, buffer), buffer)
        return self._regions[place][0]

    def close(self) -> None:
        """Makes everything durable, and releases the store and all memory. A second call does nothing."""
        with self._lock:
            self._closed = True
            self._let_go()
            self._pages = {}
            self.mem_pool_host = None
            self.registered_pools: dict[Any, Any] = {}

    def _let_go(self) -> None:
        self._opened = False
        self._pools = {}
        server, self._server = self._server, None
        remote, self._remote = self._remote, None
        local, self._local = self._local, None
        regions, self._regions = self._regions, {}
        if server is not None:
            server.close()
        if remote is not None:
            remote.close()
        if local is None:
            return
        try:
            local.store.close(_CLOSE_SECONDS)
        except DeadlineExceeded as error:
            _kept_for_ever.append((local, regions))
            logger.error("closing the store: %s; the host pool stays in memory", error)
            return
        except TerraceError as error:
            logger.error("closing the store: %s", error)
        local.close()
        for region, _ in regions.values():
            region.close()

    # ---- pages of the KV

    def batch_exists(self, keys: Sequence[str], extra_info: Any = None) -> int:
        """Returns the number of leading pages that are all there."""
        return self._attempt(_LOOK_UP, 0, lambda: _leading(self._there(_KV, keys)))

    def batch_get_v1(self, keys: Sequence[str], host_indices: Any, extra_info: Any = None) -> list[bool]:
        """Reads pages into the host pool."""
        return self._read(_KV, keys, host_indices)

    def batch_set_v1(self, keys: Sequence[str], host_indices: Any, extra_info: Any = None) -> list[bool]:
        """Stores pages of the host pool."""
        return self._write(_KV, keys, host_indices, _before(extra_info))

    # ---- pages of several pools

    def batch_exists_v2(
        self, keys: Sequence[str], pool_transfers: Sequence[Any] | None = None, extra_info: Any = None
    ) -> PoolTransferResult:
        """Returns which prefixes can be restored with all pools."""
        miss = PoolTransferResult(0, {}, [])
        return self._attempt(_LOOK_UP, miss, lambda: self._restorable(keys, pool_transfers or []))

    def _restorable(self, keys: Sequence[str], transfers: Sequence[Any]) -> PoolTransferResult:
        # A pool without memory has a page if the other pools have it.
        kv_pages = len(keys) if self._is_logical(_KV) and transfers else _leading(self._there(_KV, keys))
        hits: dict[str, int] = {PoolName.KV: kv_pages} if kv_pages else {}
        restorable = set(range(1, kv_pages + 1))
        for transfer in transfers:
            if not restorable:
                break
            there = self._there(_name(transfer.name), keys[:kv_pages])
            served = prefix_ends(there, transfer.hit_policy, len(transfer.keys or ()), _name(transfer.name))
            if served:
                hits[transfer.name] = max(served)
            restorable &= served
        return PoolTransferResult(max(restorable, default=0), hits, sorted(restorable))

    def batch_get_v2(self, transfers: Sequence[Any], extra_info: Any = None) -> dict[str, list[bool]]:
        """Reads pages of each pool into its host pool."""
        return {each.name: self._read(_name(each.name), each.keys or [], each.host_indices) for each in transfers}

    def batch_set_v2(self, transfers: Sequence[Any], extra_info: Any = None) -> dict[str, list[bool]]:
        """Stores pages of each host pool."""
        results: dict[str, list[bool]] = {}
        for each in transfers:
            before = _before(extra_info) if each.hit_policy == PoolHitPolicy.ALL_PAGES else None
            results[each.name] = self._write(_name(each.name), each.keys or [], each.host_indices, before)
        return results

    # ---- one page at a time, through copies

    def exists(self, key: str) -> bool:
        """Whether a page of the KV is there."""
        return self.batch_exists([key]) == 1

    def get(self, key: str, target_location: Any = None, target_sizes: Any = None) -> Any:
        """Reads a page into a tensor of one flat page. Returns the tensor, or None if the page is not there."""
        return self.batch_get([key], [target_location], target_sizes)[0]

    def batch_get(self, keys: Sequence[str], target_locations: Any = None, target_sizes: Any = None) -> list[Any]:
        """Reads pages into tensors of one flat page each. Returns the tensors, with None for pages that are not there.

        Raises:
            TypeError: There are no tensors.
        """
        targets = _tensors(keys, target_locations, "target_locations")
        if self._is_logical(_KV):
            return targets
        found = self._attempt(_READ, [False] * len(keys), lambda: self._pool(_KV).read_into(keys, targets))
        return [target if there else None for target, there in zip(targets, found)]

    def set(self, key: str, value: Any = None, target_location: Any = None, target_sizes: Any = None) -> bool:
        """Stores a page from a tensor of one flat page.

        Raises:
            TypeError: There is no tensor.
        """
        return self.batch_set([key], [value])

    def batch_set(
        self, keys: Sequence[str], values: Any = None, target_locations: Any = None, target_sizes: Any = None
    ) -> bool:
        """Stores pages from tensors of one flat page each. Returns whether all are stored.

        Raises:
            TypeError: There are no tensors.
        """
        sources = _tensors(keys, values, "values")
        if self._is_logical(_KV):
            return True
        written = self._attempt(_WRITE, [False] * len(keys), lambda: self._pool(_KV).write_from(keys, sources))
        return all(written)

    # ---- all pages

    def clear(self) -> bool:
        """Removes all pages, also those that another rank stores for this one. Returns whether it succeeded.

        It is not known whether the weights are still those in the names of the pages. So until this back end is attached again,
        the shared store is not used, and only this process finds pages that are stored afterwards.
        """

        def work() -> bool:
            if self._local is not None:
                self._local.clear()
            done = self._remote is None or self._remote.clear()
            self._clears += 1
            return done

        return self._attempt(_CLEAR, False, work)

    def get_stats(self) -> Any:
        """Pages and GB/s of the batches since the last call, as SGLang's StorageMetrics; None if metrics are off."""
        if not self._config.enable_storage_metrics:
            return None
        from sglang.srt.observability.metrics_collector import StorageMetrics

        with self._measure_lock:
            measured, self._measured = self._measured, {False: [], True: []}
        return StorageMetrics(
            prefetch_pgs=[pages for pages, _ in measured[False]],
            backup_pgs=[pages for pages, _ in measured[True]],
            prefetch_bandwidth=[speed for _, speed in measured[False]],
            backup_bandwidth=[speed for _, speed in measured[True]],
        )

    def statistics(self) -> dict[str, int]:
        """Counts of this rank's store, by the names of Store.statistics(); empty if it has none."""
        with self._lock:
            return {} if self._local is None else self._local.store.statistics()

    @property
    def errors(self) -> int:
        """Number of errors that were misses for SGLang."""
        return sum(report.failures for report in self._reports.values())

    # ---- inside

    def _is_logical(self, name: str) -> bool:
        """True for a pool without memory. Its pages are represented by other pools."""
        pages = self._pages.get(name)
        return pages is not None and not pages.bytes

    def _there(self, name: str, keys: Sequence[str]) -> list[bool]:
        pool = self._pools.get(name)
        return [False] * len(keys) if pool is None else pool.there(keys)

    def _read(self, name: str, keys: Sequence[str], host_indices: Any) -> list[bool]:
        if not keys or self._is_logical(name):
            return [True] * len(keys)
        return self._timed(False, name, keys, lambda: self._pool(name).read(keys, host_indices))

    def _write(self, name: str, keys: Sequence[str], host_indices: Any, before: str | None) -> list[bool]:
        if not keys or self._is_logical(name):
            return [True] * len(keys)
        return self._timed(True, name, keys, lambda: self._pool(name).write(keys, host_indices, before))

    def _timed(self, is_put: bool, name: str, keys: Sequence[str], work: Callable[[], list[bool]]) -> list[bool]:
        start = time.perf_counter()
        results = self._attempt(_WRITE if is_put else _READ, [False] * len(keys), work)
        pages = self._pages.get(name)
        if name == _KV and pages is not None:
            came = results.count(True)
            if is_put:
                self._minute.stored(came)
            else:
                self._minute.loaded(len(keys), came, came * getattr(pages.pool, "page_size", 0))
            self._minute.step(time.monotonic())
        if self._config.enable_storage_metrics and name == _KV and pages is not None:
            seconds = max(time.perf_counter() - start, 1e-9)
            with self._measure_lock:
                self._measured[is_put].append((len(keys), len(keys) * pages.bytes / seconds / 1e9))
        return results

    def _pool(self, name: str) -> StoredPool:
        pool = self._pools.get(name)
        if pool is None:
            raise ValueError(f"the pool {name!r} is not registered; there are {', '.join(self._pools) or 'none'}")
        return pool

    def _attempt(self, what: str, miss: _T, work: Callable[[], _T]) -> _T:
        """Does the work that SGLang asks for. A failure is a miss: SGLang's threads must continue after any failure here."""
        if self._closed:
            return miss
        if what is not _CLEAR and not identity.weights_are(self._identity):
            # The stored pages are for the former weights, and SGLang may still be writing such pages.
            self._reports[what].failed("the weights were updated at run time; detach this storage back end, and attach it again")
            return miss

        def opened() -> _T:
            if not self._opened:
                self._open()  # a version of SGLang that does not call on_host_pools_registered()
            return work()

        clears = self._clears
        result = self._reports[what].attempt(miss, opened)
        return result if what is _CLEAR or clears == self._clears else miss  # no result after a clear


# Stores with a disk that has not answered, and the host pools that the disk may still use.
_kept_for_ever: list[Any] = []


def _name(pool_name: Any) -> str:
    return str(getattr(pool_name, "value", pool_name))


def _leading(there: Sequence[bool]) -> int:
    return there.index(False) if False in there else len(there)


def _before(extra_info: Any) -> str | None:
    """The page before the batch, if SGLang passes it (hicache_storage_pass_prefix_keys)."""
    prefix = extra_info.prefix_keys if extra_info is not None else None
    return prefix[-1] if prefix else None


def _tensors(keys: Sequence[str], tensors: Any, argument: str) -> list[Any]:
    if tensors is None or len(tensors) != len(keys) or any(isinstance(each, int) or each is None for each in tensors):
        raise TypeError(
            f"{argument} must have a tensor of one page for each of the {len(keys)} keys; the calls of v1 take no tensors"
        )
    return list(tensors)


def _warn_of_others(directory: Path, name: str) -> None:
    """Warns of stores of the same rank with other blocks: they use disk space, and are not read any more."""
    rank = name.rsplit("-", 1)[0]
    others = sorted(each.name for each in directory.glob(f"{rank}-*") if each.is_dir() and each.name != name)
    others = [each for each in others if each.rsplit("-", 1)[0] == rank]
    if others:
        logger.warning("%s: stores for other page sizes take disk space, too: %s", directory, ", ".join(others))
