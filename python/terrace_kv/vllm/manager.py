"""The manager of TerraceOffloadingSpec: decides which chunks vLLM keeps in host memory, and in which rows."""

from __future__ import annotations

import secrets
import struct
import time
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from vllm.logger import init_logger
from vllm.v1.kv_offload.base import (
    LoadStoreSpec,
    LookupResult,
    Medium,
    OffloadingEvent,
    OffloadingManager,
    OffloadKey,
    PrepareStoreOutput,
    ReqContext,
    RequestOffloadingContext,
    ScheduleEndContext,
)
from vllm.v1.kv_offload.cpu.common import CPULoadStoreSpec
from vllm.v1.metrics.cache_hit_source import CacheHitSource

from .._keys import Keys
from .._library import Busy, NotFound
from .._minute import Minute
from .._report import Report
from .._offload_types import NO_SLOT, ChangeKind, HostMemory, JobEventKind, State
from ..offload import OffloadCache
from . import metrics
from .chains import Chain, Chains, Run, Window
from .guard import LoadGuard
from .hints import NO_HINTS, HintReader, Hints, tenant_number
from .looking import CacheLookups, Question

logger = init_logger("vllm." + __name__)  # vLLM shows messages of loggers below its own name

_STEP_MAX = 10.0  # longest pause of a step, in seconds
_PLACES = struct.Struct("<32s40xII8x")  # terrace_cache_event: key, kind, source
_STORED, _REMOVED, _CLEARED = int(ChangeKind.STORED), int(ChangeKind.REMOVED), int(ChangeKind.CLEARED)
_HAS_FENCE = hasattr(OffloadingManager, "on_reset_flushed")  # since vLLM 0.33
_HAS_METADATA = "metadata_only" in getattr(OffloadingEvent, "__dataclass_fields__", ())  # the same
_MISS, _HOST, _STORAGE, _SHARED = int(State.MISS), int(State.HOST), int(State.STORAGE), int(State.SHARED)


class TerraceOffloadingManager(OffloadingManager):
    """Decides with an OffloadCache whose host tier is vLLM's shared region. vLLM's workers make the copies.

    The cache has the chunks in the order of their prefixes (Chains), so that its policy sees which prefixes are used again.

    A chunk is `ready` (in host memory), `pending` (a worker or storage is writing it), or unknown here; then storage is asked,
    and after that a shared store if there is one (the table `shared` of the configuration). The sets mirror the cache, so that a
    look-up is one test of a set. They are exact for host memory: only calls of this class change it, and each call takes the
    cache's changes before it returns.

    An error of the cache is never one of vLLM: each call is an attempt of a Report, which counts it, and whose result is then the
    one that means a miss. The exception is prepare_load(), because vLLM has no way to hear that a hit is none.

    Threads: vLLM's scheduler.

    Args:
        config: The configuration of the OffloadCache, without its pool.
        view: The rows of the shared region, one chunk each.
        staging: Number of rows for chunks that are copied to and from storage.
        namespace: Names model, weights and layout.
        chunk_tokens: By number of the KV cache group: the tokens of a chunk, for those of full attention.
        windows: The groups of windows and states, of which only some chunks are stored (Chains.useful). All chunks of a group that
            is in neither are stored.
        weights_fixed: True if the weights never change while the engine runs. Then a reset drops nothing.
        keep_storage: True if a reset keeps the stored chunks for the next start, instead of removing them.
        events: True if stored and removed chunks are reported to vLLM.
        steps_ahead: The most steps that vLLM plans before workers have carried out the first of them. Only for versions of vLLM
            that do not call on_reset_flushed().
        prefill_speed: Tokens that the engine computes in a second (LoadGuard). None: it is learned.
        info: Labels about host memory for vLLM's gauge of the configuration.
        tenants: By name of a tenant: the most chunks that it may keep in host memory. Those beyond are evicted first.
    """

    def __init__(
        self,
        config: dict[str, Any],
        view: memoryview,
        staging: int,
        namespace: bytes,
        chunk_tokens: Mapping[int, int],
        *,
        windows: Mapping[int, Window] | None = None,
        weights_fixed: bool = False,
        keep_storage: bool = False,
        events: bool = False,
        steps_ahead: int = 8,
        tier: str = "terrace",
        prefill_speed: float | None = None,
        info: Mapping[str, str | int | float | bool] | None = None,
        tenants: Mapping[str, int] | None = None,
    ) -> None:
        assert view.shape is not None and view.strides is not None
        rows, chunk_bytes = view.shape[0], view.strides[0]
        pool = {"block-bytes": chunk_bytes, "device-blocks": 1, "host-blocks": rows - staging, "staging-blocks": staging}
        self._below = "storage" in config or "shared" in config
        self._cache = OffloadCache(
            {**config, "pool": [pool]},
            host_memory=[HostMemory(view, chunk_bytes)],
            namespace=namespace,
            log=lambda level, sentence: (logger.info, logger.warning, logger.error)[min(level, 2)]("%s", sentence),
        )
        self._cache.record_changes()
        for tenant, chunks in (tenants or {}).items():
            self._cache.set_quota(tenant_number(tenant), host_blocks=chunks)
        flat = config.get("key-order") == "flat"
        self._chains = Chains({} if flat else chunk_tokens, windows or {}, self._cache.keys)
        self._contexts: dict[str, ReqContext] = {}  # requests that wait for chunks from below host memory
        self._guard = LoadGuard(
            prefill_speed,
            lambda text, warns: (logger.warning if warns else logger.info)("Terrace: %s", text),
            stores_first=_HAS_FENCE,
        )
        self._minute = Minute(lambda line: logger.info("Terrace: %s", line), "chunks")
        self._known: dict[str, int] = {}  # by request: leading chunks of its chain that were here before its first store
        self._hints: dict[str, Hints] = {}  # by request: what it has told, if anything
        self._storing: dict[str, int] = {}  # by request: its stores that have not ended
        self._late_hints: dict[str, tuple[Hints, list[Keys]]] = {}  # of finished requests whose stores have not ended
        self._hint_reader = HintReader(lambda line: logger.warning("Terrace: %s", line))
        self._finding = Report(logger, "vLLM", "Terrace: looking chunks up")
        self._fetching = Report(logger, "vLLM", "Terrace: fetching chunks from below host memory")
        self._reserving = Report(logger, "vLLM", "Terrace: storing chunks")
        self._ending = Report(logger, "vLLM", "Terrace: ending loads and stores")
        self._hinting = Report(logger, "vLLM", "Terrace: keeping chunks as requests have asked")
        # The changes of the cache could not be read, or its events: no chunk is known to be there, or to come.
        self._blind = self._deaf = False
        self._uses: dict[str, int] = {}  # by request: the number of its one use of its chunks
        self._paused = False  # an operator has paused transfers, so nothing comes from below host memory
        self._computes: dict[str, int] = {}  # by request: the index in a chain from which the engine computes, if known
        self._changes = 0  # grows with each change of the cache
        self._shared = CacheLookups(self._cache, self._questions, self._finding) if "shared" in config else None
        self._in_step = False  # between the first lookup of a step and its end
        self._collected = False  # chunks that storage has brought, in this step
        self._hoped: set[OffloadKey] = set()  # chunks that are to be fetched from there
        self._weights_fixed = weights_fixed
        self._keep_storage = keep_storage
        self._tier = tier
        self._info = dict(info or {})
        self._rows = rows
        self._last_job = 0
        self._ready: set[OffloadKey] = set()
        self._stored: set[OffloadKey] = set()  # chunks with a name here that storage has
        self._pending: set[OffloadKey] = set()
        self._keys_by_name: dict[bytes, OffloadKey] = {}
        self._stores: dict[frozenset[OffloadKey], list[int]] = {}  # reservations, whose rows workers write
        self._loads: dict[frozenset[OffloadKey], list[list[int]]] = {}  # pins, whose rows workers read
        self._wanted: dict[str, list[OffloadKey]] = {}  # by request: chunks to be fetched at the end of the step
        self._fetches: dict[int, list[OffloadKey]] = {}
        self._fetched: dict[str, set[OffloadKey]] = {}  # by request
        self._reading: dict[int, tuple[int, float]] = {}  # by fetch: chunks and tokens for which it was made
        self._steps_ahead = steps_ahead
        self._stale: deque[tuple[int, list[int], list[int]]] = deque()  # last step, reservations and pins before a reset
        self._step = 0
        self._events: list[OffloadingEvent] | None = [] if events else None
        self._described: set[OffloadKey] = set()  # chunks whose tokens vLLM knows: it has stored them, or has seen a hit
        self._metrics = metrics.ManagerMetrics(tier)

    # ---- what is there

    def lookup(self, key: OffloadKey, req_context: ReqContext) -> LookupResult:
        """HIT if the chunk is in host memory. A chunk in storage or in the shared store is HIT_PENDING, and is fetched at the end
        of the step. RETRY while the shared store has not answered."""
        if not self._in_step:
            self._begin_step()
        if self._blind or self._deaf:
            return LookupResult.MISS
        if key in self._ready:
            if self._events is not None and key not in self._described:
                self._describe(key)
            return LookupResult.HIT
        if key in self._pending:
            waits = not self._paused or any(key in chunks for chunks in self._stores)
            return LookupResult.HIT_PENDING if waits else LookupResult.MISS
        if self._paused or not self._below:
            return LookupResult.MISS
        return self._finding.attempt(LookupResult.MISS, self._ask_below, key, req_context)

    def _begin_step(self) -> None:
        """Takes the changes since the last step, such as a clear by an operator. From now on, a hit stays a hit until the end of
        the step."""
        self._in_step = True
        self._finding.attempt(None, self._cache.pause_idle_service, _STEP_MAX)
        if self._shared is not None and self._shared.waiting:
            self._collect()  # takes the answers to the questions, and may clear the cache for an operator
            self._shared.send()
        self._follow()
        if self._below:
            paused = self._finding.attempt(False, lambda: self._cache.statistics()["transfers_paused"] == 1)
            if paused and not self._paused:
                logger.warning("Terrace: transfers are paused: chunks that are not in host memory are computed until they resume")
            self._paused = paused

    def get_load_source(self, key: OffloadKey, req_context: ReqContext) -> CacheHitSource:
        """Returns where the chunk was before this request asked for it."""
        fetched = self._fetched.get(req_context.req_id, ())
        return CacheHitSource.DISK if key in fetched else CacheHitSource.HOST

    # ---- loads: from rows to the device, by vLLM's workers

    def prepare_load(self, keys: Collection[OffloadKey], req_context: ReqContext) -> LoadStoreSpec:
        """Pins the chunks in host memory until complete_load(), and returns their rows. All were hits in this step."""
        runs = self._chains.runs(list(keys), req_context)
        self._computes[req_context.req_id] = max(
            (run.first + len(run.keys) for run in runs if run.chain is not None), default=0
        )
        rows: list[int] = []
        jobs: list[int] = []
        for run in runs:
            jobs.append(self._new_job())
            rows += self._cache.pin_slots(jobs[-1], self._keys_of(run), first=run.first, use=self._use_of(req_context.req_id))
        if NO_SLOT in rows:
            for job in jobs:
                self._cache.unpin(job)
            raise RuntimeError(f"{rows.count(NO_SLOT)} of {len(rows)} chunks to be loaded are not in host memory")
        self._loads.setdefault(frozenset(keys), []).append(jobs)
        self._metrics.loading += len(rows)
        self._minute.loaded(len(rows), len(rows), sum(self._chains.tokens(run) for run in runs))
        return CPULoadStoreSpec(rows)

    def complete_load(self, keys: Collection[OffloadKey], req_context: ReqContext) -> None:
        """The workers have read the rows."""
        name = frozenset(keys)
        loads = self._loads[name]
        jobs = loads.pop()
        if not loads:
            del self._loads[name]
        self._metrics.loading -= len(name)
        for job in jobs:
            self._unpin(job)
        self._follow()

    # ---- stores: from the device to rows, by vLLM's workers

    def prepare_store(self, keys: Collection[OffloadKey], req_context: ReqContext) -> PrepareStoreOutput | None:
        """Reserves rows for the chunks that are not there. None if there is no row for any of them. A chunk is left out if its
        predecessors are not in host memory, because it cannot be used without them, or if it is a chunk of a window that hardly
        any request will need."""
        if self._fetches and not self._collected:
            self._collect()  # vLLM 0.33 calls on_schedule_end() after this.
        ready, pending = self._ready, self._pending
        wanted = 0
        full = False
        new: list[OffloadKey] = []
        rows: list[int] = []
        jobs: list[int] = []
        evicted: list[OffloadKey] = []
        hints = self._hints.get(req_context.req_id, NO_HINTS)
        if not hints.store:
            return PrepareStoreOutput([], CPULoadStoreSpec([]), [])
        computes_from = self._computes.get(req_context.req_id)
        keys = self._chains.useful(list(keys), req_context, lambda chain: self._known_of(req_context.req_id, chain))
        for run in self._chains.runs(keys, req_context):
            if computes_from is not None and run.chain is not None:
                # The chunks before them were on the GPU, or were loaded.
                computed = min(len(run.keys), max(0, run.first + len(run.keys) - computes_from))
                self._guard.computed(self._chains.tokens(run) * computed / len(run.keys))
            missing = [key for key in run.keys if key not in ready and key not in pending]
            if not missing:
                continue
            wanted += len(missing)
            if len(missing) < len(run.keys):
                run = run.between(missing)
            before = run.chain.keys[run.first - 1] if run.chain is not None and run.first > 0 else None
            if before is not None and before not in ready and before not in pending:
                continue
            job = self._new_job()
            taken = self._reserving.attempt(None, self._reserve, job, run, hints.tenant, req_context.req_id)
            if not taken:
                full = full or taken is not None
                continue
            names, got = self._names_of(run), run.keys
            if NO_SLOT in taken:
                places = [i for i, row in enumerate(taken) if row != NO_SLOT]
                if not places:
                    states = self._reserving.attempt(b"", self._cache._states, self._keys_of(run))
                    full = full or _MISS in states[run.first :]
                    continue
                names, got, taken = [names[i] for i in places], [got[i] for i in places], [taken[i] for i in places]
            jobs.append(job)
            new += got
            rows += taken
            self._keys_by_name.update(zip(names, got))
            pending.update(got)
        if wanted:
            self._metrics.allocations.append(wanted)
            evicted = self._follow()
        if not new and full:
            return None
        if new:
            self._stores[frozenset(new)] = jobs
            self._storing[req_context.req_id] = self._storing.get(req_context.req_id, 0) + 1
            self._minute.stored(len(new))
            if self._events is not None:
                self._described.update(new)
        return PrepareStoreOutput(new, CPULoadStoreSpec(rows), evicted)

    def complete_store(self, keys: Collection[OffloadKey], req_context: ReqContext, success: bool = True) -> None:
        """The workers have written the rows of one prepare_store(), or have failed to."""
        chunks = frozenset(keys)
        jobs = self._stores.pop(chunks)
        self._pending.difference_update(chunks)
        published = [self._publish(job, success) for job in jobs]
        if success and all(published):
            self._ready.update(chunks)
        else:
            self._metrics.counts.store_failures += len(chunks)
        self._storing[req_context.req_id] -= 1
        if self._storing[req_context.req_id] == 0:
            del self._storing[req_context.req_id]
            self._follow_hints(*self._late_hints.pop(req_context.req_id, (NO_HINTS, [])))
        self._follow()

    def touch(self, keys: Collection[OffloadKey], req_context: ReqContext) -> None:
        """Records a use of the chunks, so that they are evicted later."""
        for run in self._chains.runs(list(keys), req_context):
            self._ending.attempt(None, self._cache.touch, self._keys_of(run))
        self._follow()

    # ---- requests and steps

    def on_new_request(self, req_context: ReqContext) -> RequestOffloadingContext:
        """Reads the hints of the request. Returns an empty context."""
        hints = self._hint_reader.read(req_context, req_context.req_id)
        self._metrics.counts.hints_wrong = self._hint_reader.wrong
        if hints is not NO_HINTS:
            self._metrics.counts.hints += 1
            self._hints[req_context.req_id] = hints
        return RequestOffloadingContext()

    def on_request_finished(self, req_context: ReqContext) -> None:
        """Drops the record of the request. This is not a use of its chunks: its loads and stores were one. Its hints count from now
        on, or once its stores have ended."""
        if (hints := self._hints.pop(req_context.req_id, None)) is not None:
            prefixes = [self._chains.prefix(chain, len(chain.keys)) for chain in self._chains.of(req_context.req_id)]
            if req_context.req_id in self._storing:
                self._late_hints[req_context.req_id] = (hints, prefixes)
            else:
                self._follow_hints(hints, prefixes)
        self._chains.end(req_context.req_id)
        self._contexts.pop(req_context.req_id, None)
        self._computes.pop(req_context.req_id, None)
        self._uses.pop(req_context.req_id, None)
        self._known.pop(req_context.req_id, None)
        self._fetched.pop(req_context.req_id, None)
        self._end_wish(self._wanted.pop(req_context.req_id, ()))

    def on_schedule_end(self, context: ScheduleEndContext) -> None:
        """Collects the chunks that storage has brought, and fetches the chunks that this step asks for."""
        self._step += 1
        self._in_step = False
        now = time.monotonic()
        self._guard.step(now)
        self._minute.step(now)
        if not _HAS_FENCE:
            self._end_stale(self._step)
        self._collect()
        if self._shared is not None:
            self._shared.send()
            if self._shared.waiting:
                self._collect()  # sends the questions
        self._collected = False  # of the next step
        for request, keys in self._wanted.items():
            self._fetch(request, self._chains.in_order(keys, self._contexts[request]))
        if self._wanted:
            self._wanted.clear()
            self._follow()
        self._finding.attempt(None, self._cache.pause_idle_service, 0)

    def has_pending_work(self) -> bool:
        """True while chunks come from storage: only further steps of the engine see them arrive."""
        return bool(self._fetches)

    def reset_cache(self) -> None:
        """Drops all chunks, unless the weights are fixed. Rows that workers still read or write are not used until
        on_reset_flushed(). Versions before vLLM 0.33 have no such call. There, the rows are not used for some steps: in the first
        step after a reset, workers end all earlier jobs, and vLLM plans only few steps ahead of them."""
        loads = [job for loads in self._loads.values() for jobs in loads for job in jobs]
        if self._stores or loads:
            self._stale.append((self._step + self._steps_ahead, [job for jobs in self._stores.values() for job in jobs], loads))
        self._pending.difference_update(*self._stores)
        self._stores.clear()
        self._storing.clear()
        self._late_hints.clear()
        self._loads.clear()
        self._metrics.loading = 0
        for keys in self._wanted.values():
            self._end_wish(keys)
        self._wanted.clear()
        if self._weights_fixed:
            return
        if self._shared is not None:
            self._shared.forget()
        # Chunks that were computed with the former weights have no name any more.
        self._cache.namespace = self._cache.namespace[:32] + secrets.token_bytes(16)
        self._ending.attempt(None, lambda: self._cache.clear(keep_storage=self._keep_storage))
        self._follow()
        self._chains.forget()
        self._known.clear()
        self._ready.clear()
        self._stored.clear()
        self._pending.clear()
        self._keys_by_name.clear()
        self._hoped.clear()
        self._fetched.clear()
        self._described.clear()

    def on_reset_flushed(self) -> None:
        """The workers have ended all jobs from before the last reset."""
        self._end_stale(None)
        self._follow()

    # ---- observers

    def config_info(self) -> Sequence[Mapping[str, str | int | float | bool]]:
        """Labels of vLLM's gauge of the configuration."""
        return [self._info]

    def take_events(self) -> Iterable[OffloadingEvent]:
        """Returns the chunks that were stored and removed since the last call, in order. A chunk that was found on disk or in the
        shared store is in it once it is a hit, because vLLM has no tokens for it before: routers drop all that they know of an
        engine if they get an event without tokens."""
        if not self._events:
            return ()
        events, self._events = self._events, []
        return events

    def get_stats(self) -> Any:
        """Returns the present usage of host memory, and the changes of the counters."""
        self._metrics.counts.declined = self._guard.declined
        self._metrics.counts.errors = sum(
            each.failures for each in (self._finding, self._fetching, self._reserving, self._ending, self._hinting)
        )
        storing = sum(map(len, self._stores))
        return self._finding.attempt(None, self._metrics.report, self._cache, self._rows, storing)

    def shutdown(self) -> None:
        """Ends all work, makes everything durable, and releases the shared region. A second call does nothing."""
        if self._cache.closed:
            return
        # No worker completes these any more, and the cache could not close while jobs wait for them.
        stale = [job for _last, stores, _loads in self._stale for job in stores]
        for job in [*(job for jobs in self._stores.values() for job in jobs), *stale]:
            self._publish(job, False)
        self._stores.clear()
        self._stale.clear()
        self._cache.close(60.0)

    # ---- inside

    def _follow_hints(self, hints: Hints, prefixes: Sequence[Keys]) -> None:
        """Tells the cache what a request has said about its prefixes."""
        for prefix in prefixes:
            if not self._hinting.attempt(False, self._follow_hint, hints, prefix):
                self._metrics.counts.hints_ignored += 1

    def _follow_hint(self, hints: Hints, prefix: Keys) -> bool:
        """False: too many chunks are kept already, or none of these is in host memory."""
        if hints.tells_next_use:
            self._cache.expect_use(prefix, None if hints.ended else hints.returns_in)
        try:
            if hints.priority is not None:
                self._cache.retain(prefix, hints.priority, hints.priority_for)
            if hints.pin_for > 0:
                self._cache.pin_prefix(prefix, hints.pin_for)
        except (Busy, NotFound):
            return False
        return True

    def _reserve(self, job: int, run: Run, tenant: int, request: str) -> list[int]:
        """The rows of the chunks. Empty: too much is reserved."""
        beside = None if run.beside is None else self._chains.prefix(*run.beside)
        try:
            use = self._use_of(request)
            return self._cache.reserve(job, self._keys_of(run), first=run.first, beside=beside, tenant=tenant, use=use)
        except Busy:
            return []

    def _publish(self, job: int, filled: bool) -> bool:
        """Ends a reservation. False: that has failed, so its chunks are no hits."""
        return self._ending.attempt(True, self._cache.publish, job, filled) is None

    def _unpin(self, job: int) -> None:
        self._ending.attempt(None, self._cache.unpin, job)

    def _new_job(self) -> int:
        self._last_job += 1
        return self._last_job

    def _use_of(self, request: str) -> int:
        use = self._uses.get(request)
        if use is None:
            use = self._uses[request] = self._finding.attempt(0, self._cache.new_use)
        return use

    def _known_of(self, request: str, chain: Chain) -> int:
        known = self._known.get(request)
        if known is None:
            ready, pending = self._ready, self._pending
            absent = (i for i, key in enumerate(chain.keys) if key not in ready and key not in pending)
            known = self._known[request] = next(absent, len(chain.keys))
        return known

    def _keys_of(self, run: Run) -> Keys:
        """The keys that the cache needs for the run: the keys from index `first` on are the run's chunks."""
        if run.chain is None:
            return self._cache.lone_keys(run.keys)
        return self._chains.prefix(run.chain, run.first + len(run.keys))

    def _names_of(self, run: Run) -> list[bytes]:
        """The names of the chunks in the cache's changes."""
        if run.chain is None:
            return list(self._cache.keys(run.keys))
        return run.chain.names_of(run.first, run.first + len(run.keys))

    def _questions(self, request: str, chunks: list[OffloadKey]) -> Iterator[Question]:
        if (context := self._contexts.get(request)) is not None:
            for run in self._chains.runs(chunks, context):
                yield Question(run.keys, self._keys_of(run), run.first)

    def _ask_below(self, key: OffloadKey, context: ReqContext) -> LookupResult:
        request = context.req_id
        if request not in self._computes and (found := self._chains.find(key, context)) is not None:
            self._computes[request] = found[1]  # the chunks before it have been looked up, or are on the GPU
        state, name = self._look_below(key, context)
        if state not in (_STORAGE, _MISS):
            # PENDING: a reservation from before a reset. Its rows will not be published.
            return LookupResult.MISS
        if key in self._fetched.get(request, ()):
            return LookupResult.MISS  # it was fetched and evicted before its use, or it could not be read
        self._contexts[request] = context
        if state == _MISS:
            there = self._ask_shared(key, request)
            if not there:
                return LookupResult.RETRY if there is None else LookupResult.MISS
        if not self._guard.allows(request, time.monotonic()):
            return LookupResult.MISS
        (self._hoped if state == _MISS else self._stored).add(key)
        self._keys_by_name[name] = key
        self._pending.add(key)
        self._wanted.setdefault(request, []).append(key)
        return LookupResult.HIT_PENDING

    def _look_below(self, key: OffloadKey, context: ReqContext) -> tuple[int, bytes]:
        """Returns where the chunk is, and its name."""
        if (found := self._chains.find(key, context)) is not None:
            chain, index = found
            return self._states(chain)[index], chain.names_of(index, index + 1)[0]
        lone = self._cache.lone_keys([key])
        return self._cache._states(lone)[0], lone[0]

    def _fetch(self, request: str, runs: Sequence[Run]) -> None:
        """Fetches the chunks of a request from below host memory."""
        before = [self._absent_before(run) for run in runs]
        # If this would read more chunks that the GPU has than chunks that it lacks, the chunks are computed instead.
        if sum(map(len, before)) > sum(len(run.keys) for run in runs):
            for run in runs:
                self._fetched.setdefault(request, set()).update(run.keys)
                self._end_wish(run.keys)
            return
        for run, absent in zip(runs, before, strict=True):
            first = run.first - len(absent)
            job = self._new_job()
            ordered = self._fetching.attempt(None, self._order, job, run, first, request)
            if ordered is not False:
                self._fetched.setdefault(request, set()).update(run.keys)
            if not ordered:
                self._end_wish(run.keys)  # if it was False, the next look-up orders it again
                continue
            self._fetches[job] = absent + run.keys
            self._reading[job] = (len(run.keys), self._chains.tokens(run))
            self._guard.asked(*self._reading[job], time.monotonic())
            if run.chain is not None and absent:
                self._keys_by_name.update(zip(run.chain.names_of(first, run.first), absent))
                self._hoped.update(key for key in absent if key not in self._stored)
                self._pending.update(absent)

    def _order(self, job: int, run: Run, first: int, request: str) -> bool:
        """Orders a fetch. False: too much is under way; when some of it has ended, there is room."""
        try:
            shared = self._shared is not None
            self._cache.fetch(job, self._keys_of(run), first=first, shared=shared, use=self._use_of(request))
        except Busy:
            if not self._fetches:
                raise
            return False
        return True

    def _absent_before(self, run: Run) -> list[OffloadKey]:
        """The chunks before the run that are not in host memory. They must be fetched, too, because host memory keeps no chunk
        after a missing one."""
        if run.chain is None:
            return []
        states = self._fetching.attempt(None, self._states, run.chain)
        if states is None:
            return run.chain.keys[: run.first]
        first = next((i for i in range(run.first) if states[i] != _HOST), run.first)
        return run.chain.keys[first : run.first]

    def _states(self, chain: Chain) -> bytes:
        """Returns where the chunks of the chain are."""
        if chain.states is None or chain.states[0] != self._changes or len(chain.states[1]) < len(chain.keys):
            chain.states = (self._changes, self._cache._states(self._chains.prefix(chain, len(chain.keys))))
        return chain.states[1]

    def _ask_shared(self, key: OffloadKey, request: str) -> bool | None:
        """Whether the shared store has the chunk; None: not known yet."""
        return False if self._shared is None else self._shared.ask(key, request)

    def _collect(self) -> None:
        self._collected = True
        ended: list[OffloadKey] = []
        chunks, tokens, came = 0, 0.0, 0.0
        events = self._fetching.attempt(None, self._cache.poll)
        self._deaf = events is None
        for event in events or ():
            if event.kind is not JobEventKind.ENDED:
                if event.status != 0:
                    self._metrics.counts.count_failed_loads([event.status])
                continue
            ended += self._fetches.pop(event.job, ())
            wanted, worth = self._reading.pop(event.job, (0, 0.0))
            chunks, tokens = chunks + wanted, tokens + worth
            came += worth * event.moved / max(1, event.moved + event.failed)
        self._guard.saw(chunks, tokens, came, time.monotonic())
        self._pending.difference_update(ended)
        self._follow()
        self._end_wish(ended)

    def _end_wish(self, keys: Collection[OffloadKey]) -> None:
        """The chunks have been fetched, or will not come."""
        self._pending.difference_update(keys)
        if self._events is not None and _HAS_METADATA:
            # vLLM has recorded a chunk that was HIT_PENDING as being in host memory.
            absent = [key for key in keys if key not in self._ready and key not in self._pending]
            if absent:
                self._events.append(OffloadingEvent(absent, Medium.CPU, True, metadata_only=True))
        for key in self._hoped.intersection(keys):
            # After a reset, a worker may be writing a chunk that is also being fetched.
            written = any(key in chunks for chunks in self._stores)
            if key not in self._ready and key not in self._stored and not written:
                self._keys_by_name.pop(self._cache.keys([key])[0], None)
        self._hoped.difference_update(keys)

    def _follow(self) -> list[OffloadKey]:
        """Takes the cache's changes. Returns the chunks that host memory has evicted."""
        evicted: list[OffloadKey] = []
        self._changes += 1
        changes = self._finding.attempt(None, self._cache._raw_changes, _PLACES)
        self._blind = changes is None
        if changes is None:
            return evicted
        # Without other sources, only evictions are news, and a chunk is never named after its eviction.
        if not self._below and self._events is None:
            for name, kind, _source in changes:
                if kind == _REMOVED and (key := self._keys_by_name.pop(name, None)) is not None:
                    self._ready.discard(key)
                    evicted.append(key)
                elif kind == _CLEARED:
                    evicted += self._forget()
            return evicted
        for name, kind, source in changes:
            if kind == _CLEARED:
                evicted += self._forget()
                continue
            key = self._keys_by_name.get(name)
            if key is None or source == _SHARED:  # the shared store does not report its evictions
                continue
            here = self._ready if source == _HOST else self._stored
            if kind == _STORED:
                here.add(key)
            else:
                here.discard(key)
                if source == _HOST:
                    evicted.append(key)
                if key not in self._ready and key not in self._stored and key not in self._pending:
                    del self._keys_by_name[name]
            if self._events is not None:
                self._announce(key, source == _HOST, kind == _REMOVED)
        return evicted

    def _forget(self) -> set[OffloadKey]:
        """An operator has cleared the cache. Returns the chunks that were in host memory. Chunks that are being written or
        fetched keep their names until that ends."""
        gone = self._ready
        if self._events is not None:
            for here, in_host in ((self._ready, True), (self._stored, False)):
                for key in here:
                    self._announce(key, in_host, removed=True)
        self._ready, self._stored = set(), set()
        self._described.intersection_update(self._pending)
        self._keys_by_name = {name: key for name, key in self._keys_by_name.items() if key in self._pending}
        if self._shared is not None:
            self._shared.forget()
        return gone

    def _describe(self, key: OffloadKey) -> None:
        """The chunk is a hit, so that vLLM notes its tokens now."""
        self._described.add(key)
        self._announce(key, in_host=True, removed=False)
        if key in self._stored:
            self._announce(key, in_host=False, removed=False)

    def _announce(self, key: OffloadKey, in_host: bool, removed: bool) -> None:
        assert self._events is not None
        if key not in self._described:
            return
        if removed and key not in (self._stored if in_host else self._ready):
            self._described.discard(key)
        medium = Medium.CPU if in_host else Medium.STORAGE
        last = self._events[-1] if self._events else None
        if last is not None and last.medium is medium and last.removed is removed and last.removal_expected:
            last.keys.append(key)
            return
        owner = None if in_host else self._tier
        self._events.append(OffloadingEvent([key], medium, removed, ownership=owner, removal_expected=True))

    def _end_stale(self, step: int | None) -> None:
        """Frees the rows from before a reset that no worker uses any more in this step. None: the rows of all resets."""
        while self._stale and (step is None or self._stale[0][0] < step):
            _last, stores, loads = self._stale.popleft()
            for job in stores:
                self._publish(job, False)
            for job in loads:
                self._unpin(job)
