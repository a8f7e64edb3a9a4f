"""A secondary tier of vLLM's TieringOffloadingSpec: chunks on disk, which are found again after a restart."""

from __future__ import annotations

import secrets
import time
from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from vllm.logger import init_logger
from vllm.v1.kv_offload.base import (
    Locality,
    LookupResult,
    Medium,
    OffloadingEvent,
    OffloadKey,
    ReqContext,
    RequestOffloadingContext,
)
from vllm.v1.kv_offload.tiering.base import JobResult, SecondaryTierManager, TransferJob

from .._library import Busy
from .._minute import Minute
from .._report import Report
from .._vllm_options import check_tier
from ..store import EventKind, Health, Result, Store
from . import metrics
from .guard import LoadGuard
from .looking import SharedLookups
from .names import chunk_namespace, groups_of, store_label, store_name

logger = init_logger("vllm." + __name__)  # vLLM shows messages of loggers below its own name

_STATISTICS_INTERVAL = 1.0  # seconds
_LEVELS = (logger.info, logger.warning, logger.error)


@dataclass
class _Job:
    """A job of vLLM that the store works on, or that waits for the store."""

    keys: list[OffloadKey]
    names: list[bytes]
    """The 32 bytes of each key in the store."""
    rows: list[int]
    is_load: bool
    submitted: float


class TerraceTier(SecondaryTierManager):
    """Keeps chunks in a Store.

    Options, beside "type" and "module_path" of the tier's configuration:
        path: The directory of the store, or a list of directories, each on its own disk.
        capacity: The disk space of all directories, such as "500GiB" or a number of bytes.
        weights_revision: A name that changes whenever the weights do, or anything else that vLLM loads: an adapter, a draft model.
            Without it, local files are read once at the start, and a model of the hub is named by its commit.
        adapters: The paths of all LoRA adapters. Needed if LoRA is on and there is no weights_revision.
        attention_backend: The attention backend, if vLLM's choice of it can change between two starts.
        weights_fixed: True if the weights never change while the engine runs. Otherwise the weights may change at a reset of the
            cache and at sleep. Then the stored chunks are kept for the next start.
        enable_kv_events: Publish events of stored and removed chunks. vLLM's own events must be on, too.
        locality: "LOCAL" or "REMOTE", for vLLM's tier filters and events.
        shared: The table [shared] of docs/configuration.md as an object, {"url": "redis://kv@cache:6379"}: a store that several
            machines share, behind the disk.
        shared_probe_timeout: After this number of seconds without an answer of the shared store, a chunk counts as missing.
        prefill_speed: Tokens that the engine computes in a second. While the store is slower, it is not read. Without this option
            the speed is learned.
        shutdown_timeout: The longest time for unfinished writes at the end, in seconds.
        Any option of the table [storage] of docs/configuration.md, with "_" for "-".

    vLLM's scheduler is the only caller, on one thread. Calls do not wait for the disk, except drain_jobs() and shutdown(), which
    raise the errors of the store. In all others an error is a miss, or a failed job, and a Report counts it.
    """

    medium: ClassVar[Medium] = Medium.STORAGE

    def __init__(
        self,
        offloading_spec: Any,
        primary_kv_view: memoryview,
        tier_type: str,
        backpressure_detector: Any = None,
        *,
        path: str | list[str] = "",
        capacity: int | str | None = None,
        weights_revision: str | None = None,
        attention_backend: str | None = None,
        adapters: list[str] | None = None,
        weights_fixed: bool = False,
        enable_kv_events: bool = False,
        locality: str | None = None,
        shared: dict[str, Any] | None = None,
        shared_probe_timeout: float = 0.02,
        prefill_speed: float | None = None,
        shutdown_timeout: float = 60.0,
        **storage: Any,
    ) -> None:
        check_tier({"path": path, "capacity": capacity, **storage})
        assert capacity is not None
        super().__init__(offloading_spec, primary_kv_view, tier_type, backpressure_detector)
        self.locality = Locality(locality) if locality is not None else None
        config = offloading_spec.config
        namespace, fields = chunk_namespace(config, self.block_size_bytes, weights_revision, attention_backend, adapters)
        self._events: list[OffloadingEvent] | None = None
        if enable_kv_events:
            if offloading_spec.kv_events_config.enable_kv_cache_events:
                self._events = []
            else:
                logger.warning("Tier %s: enable_kv_events has no effect, because vLLM's KV cache events are off", tier_type)
        self._weights_fixed = weights_fixed
        self._shutdown_timeout = shutdown_timeout
        self._jobs: dict[int, _Job] = {}
        self._waiting: deque[int] = deque()  # loads that the store has refused so far
        self._done: list[JobResult] = []
        self._resident: set[OffloadKey] = set()
        self._keys_by_name: dict[bytes, OffloadKey] = {}
        self._counts = metrics.Counts()
        self._reported: metrics.Counts | None = None
        self._next_report = 0.0
        self._store = Store(
            path,
            capacity,
            self.block_size_bytes,
            namespace=namespace,
            name=store_name(config, self.block_size_bytes),
            shared=shared,
            log=lambda level, sentence: _LEVELS[min(level, 2)]("Tier %s: %s", tier_type, sentence),
            **{"label": store_label(fields), **storage},
        )
        self._finding, self._reading, self._writing, self._counting = (
            Report(logger, "vLLM", f"Tier {tier_type}: {what}")
            for what in ("looking chunks up", "reading chunks", "writing chunks", "counting")
        )
        self._shared = SharedLookups(self._store, shared_probe_timeout, self._finding) if shared is not None else None
        self._tokens = {group.to_bytes(4, "big"): tokens for group, tokens in groups_of(config).full.items()}
        self._guard = LoadGuard(
            prefill_speed, lambda text, warns: (logger.warning if warns else logger.info)("Tier %s: %s", tier_type, text)
        )
        self._minute = Minute(lambda line: logger.info("Tier %s: %s", tier_type, line), "chunks that host memory lacked")
        self._computes: dict[str, int] = {}  # by request: the token from which the engine computes, if known
        try:
            self._region = self._store.register(primary_kv_view)
        except BaseException:
            self._store.close()
            raise
        logger.info(
            "Tier %s: %s of %s, weights %s, namespace %s, I/O %s",
            tier_type,
            capacity,
            path,
            fields["weights"],
            namespace.hex()[:12],
            self._store.io(),
        )

    # ---- what is there

    def lookup(self, key: OffloadKey, req_context: ReqContext) -> LookupResult:
        """HIT if a load would find the chunk. If the chunk has been evicted by the time of the load, the load fails. RETRY while
        the shared store is asked."""
        if req_context.req_id not in self._computes and (end := self._end(key, req_context)):
            self._computes[req_context.req_id] = end - self._tokens[key[-4:]]  # earlier chunks are in host memory or on the GPU
        if key not in self._resident:
            made = self._store.keys([key])
            if self._finding.attempt([False], self._store.contains_many, made)[0]:
                self._resident.add(key)
                self._keys_by_name[made[0]] = key
            else:
                there = False if self._shared is None else self._shared.ask(key, req_context.req_id)
                if not there:
                    return LookupResult.RETRY if there is None else LookupResult.MISS
        return LookupResult.HIT if self._guard.allows(req_context.req_id, time.monotonic()) else LookupResult.MISS

    def _end(self, key: OffloadKey, req_context: ReqContext) -> int:
        """The token at which the chunk ends; 0 if that is unknown, or the chunk is not of full attention."""
        return (req_context.get_offload_key_position(key) or 0) if key[-4:] in self._tokens else 0

    def touch(self, keys: Collection[OffloadKey], req_context: ReqContext) -> None:
        """Records a use of the chunks, so that they are evicted later."""
        used = [key for key in keys if key in self._resident]
        if used:
            self._finding.attempt(None, self._store.touch, used)

    # ---- jobs

    def submit_store(self, job_metadata: TransferJob) -> None:
        """Writes the chunks that are not there yet. If too much work is under way in the store, the job fails, and vLLM continues
        without it."""
        computes_from = self._computes.get(job_metadata.req_context.req_id)
        if computes_from is not None:
            self._guard.computed(
                self._worth([key for key in job_metadata.keys if self._end(key, job_metadata.req_context) > computes_from])
            )
        job = self._new_job(job_metadata, [key not in self._resident for key in job_metadata.keys])
        if not job.keys:
            self._done.append(JobResult(job_id=job_metadata.job_id, success=True, transfer_time=0.0, transfer_bytes=0))
            return
        if not self._writing.attempt(False, self._submit, job_metadata.job_id, job):
            self._counts.dropped += len(job.keys)
            self._done.append(JobResult(job_id=job_metadata.job_id, success=False, transfer_time=0.0, transfer_bytes=0))

    def submit_load(self, job_metadata: TransferJob) -> None:
        """Reads chunks into rows of the primary tier. If too much work is under way in the store, the job waits."""
        job = self._new_job(job_metadata, None)
        self._jobs[job_metadata.job_id] = job
        # Counts them as hits: a look-up of a chunk that is known to be there does not ask the store.
        self._finding.attempt([], self._store.contains_many, job.keys)
        self._guard.asked(len(job.keys), self._worth(job.keys), time.monotonic())
        self._waiting.append(job_metadata.job_id)
        self._submit_waiting()

    def get_finished_jobs(self) -> Iterable[JobResult]:
        """Returns the results since the last call."""
        self._collect()
        self._guard.saw(0, 0, 0, time.monotonic())
        self._submit_waiting()
        if self._shared is not None:
            self._shared.send()
        done, self._done = self._done, []
        return done

    def has_pending_work(self) -> bool:
        """False: vLLM makes further steps itself while it waits for the result of a job, and there is no other work."""
        return False

    def on_new_request(self, req_context: ReqContext) -> RequestOffloadingContext:
        """Returns an empty context: new chunks are offered as they are computed."""
        return RequestOffloadingContext()

    def on_request_finished(self, req_context: ReqContext) -> None:
        """Drops the record of the request."""
        self._computes.pop(req_context.req_id, None)

    def on_schedule_end(self, context: Any) -> None:
        """A step of the engine."""
        now = time.monotonic()
        self._guard.step(now)
        self._minute.step(now)

    def drain_jobs(self) -> None:
        """Waits until no job uses the primary tier's memory. The results come with the next get_finished_jobs().

        vLLM calls it when the cache is reset. The weights may change then. Unless they are fixed, chunks get other names from now
        on, which no other process uses.
        """
        while self._jobs:
            self._submit_waiting()
            self._store.wait(1.0)
            self._collect()
        if not self._weights_fixed:
            self._store.namespace = self._store.namespace[:32] + secrets.token_bytes(16)
            self._resident.clear()
            if self._shared is not None:
                self._shared.forget()

    # ---- observers

    def take_events(self) -> Iterable[OffloadingEvent]:
        """Returns the chunks that were stored and removed since the last call, in order."""
        if not self._events:
            return ()
        events, self._events = self._events, []
        return events

    @classmethod
    def build_metric_definitions(cls, extra_config: dict[str, Any]) -> dict[str, Any]:
        """The metrics of get_stats() for Prometheus."""
        return metrics.definitions()

    def get_stats(self) -> Any:
        """Changes of the counters since the last report, at most one a second."""
        now = time.monotonic()
        if now < self._next_report:
            return None
        self._next_report = now + _STATISTICS_INTERVAL
        return self._counting.attempt(None, self._stats)

    def _stats(self) -> Any:
        counts, store = self._counts, self._store.statistics()
        counts.errors = sum(each.failures for each in (self._finding, self._reading, self._writing, self._counting))
        counts.declined = self._guard.declined
        counts.shared_chunks, counts.written_bytes = store["shared_hits"], store["written_bytes"]
        # A chunk of the shared store that came after its deadline is not a hit. But a counter must never decrease.
        counts.read_chunks = max(counts.read_chunks, store["hits"] - store["shared_hits"])
        counts.read_bytes = counts.read_chunks * self._store.block_bytes
        gauges = metrics.store_gauges(store, self._store.health()[0])
        stats = metrics.report(self.tier_type, counts, self._reported, gauges)
        self._reported = counts.copy()
        return stats

    def shutdown(self) -> None:
        """Ends all jobs, makes everything durable, and releases the primary tier's memory. A second call does nothing.

        Raises:
            DeadlineExceeded: A disk has not answered in time, and may still use the memory.
        """
        if self._store.closed:
            return
        totals = self._store.statistics()
        logger.info(
            "Tier %s: %d chunks read (%d bytes), %d damaged, %d stored; %d on disk",
            self.tier_type,
            totals["hits"],
            totals["read_bytes"],
            totals["corrupt"],
            totals["stored"],
            totals["blocks"],
        )
        self._store.close(self._shutdown_timeout)
        self._primary_kv_view = memoryview(b"")

    # ---- inside

    def _new_job(self, given: TransferJob, wanted: list[bool] | None) -> _Job:
        keys, rows = list(given.keys), [int(row) for row in given.chunk_ids]
        if wanted is not None:
            keys = [key for key, is_wanted in zip(keys, wanted) if is_wanted]
            rows = [row for row, is_wanted in zip(rows, wanted) if is_wanted]
        return _Job(keys, [], rows, given.is_promotion, given.submit_time)

    def _submit(self, number: int, job: _Job) -> bool:
        """False: too much is under way in the store."""
        made = self._store.keys(job.keys)
        job.names = [made[i] for i in range(made.count)]
        try:
            (self._store.submit_get if job.is_load else self._store.submit_put)(number, made, self._region, job.rows)
        except Busy:
            return False
        self._jobs[number] = job
        if not job.is_load:
            self._keys_by_name.update(zip(job.names, job.keys))
        return True

    def _submit_waiting(self) -> None:
        while self._waiting:
            number = self._waiting[0]
            taken = self._reading.attempt(None, self._submit, number, self._jobs[number])
            if taken is False and len(self._jobs) > len(self._waiting):
                return  # a job under way will make room when it ends
            if not taken:
                self._fail(number)  # the store has failed, or will never take so many chunks at once
            self._waiting.popleft()

    def _fail(self, number: int) -> None:
        job = self._jobs.pop(number)
        self._guard.saw(len(job.keys), self._worth(job.keys), 0, time.monotonic())
        self._counts.load_failures += len(job.keys)
        self._done.append(JobResult(job_id=number, success=False, transfer_time=0.0, transfer_bytes=0))

    def _collect(self) -> None:
        for result in self._reading.attempt([], self._store.poll):
            if result.kind is result.kind.PROBE and self._shared is not None:
                self._shared.answered(result)
                continue
            job = self._jobs.pop(result.job)
            if result.kind is result.kind.GET:
                self._loaded(job, result)
            else:
                self._stored(job, result)
        self._follow_events()

    def _worth(self, keys: Collection[OffloadKey]) -> float:
        """Number of tokens of a prompt that the chunks stand for, if the chunks of all groups of full attention are loaded."""
        return sum(self._tokens.get(key[-4:], 0) for key in keys) / max(1, len(self._tokens))

    def _loaded(self, job: _Job, result: Result) -> None:
        arrived = [key for key, status in zip(job.keys, result.statuses) if status == 0]
        self._guard.saw(len(job.keys), self._worth(job.keys), self._worth(arrived), time.monotonic())
        self._minute.loaded(len(job.keys), len(arrived), self._worth(arrived))
        if not result.ok:
            self._counts.count_failed_loads(result.statuses)
            if self._reading.attempt((Health.DOWN,), self._store.health)[0] is Health.DOWN:
                self._resident.clear()  # ask the store about each key until the disk works again
            else:
                self._resident.difference_update(set(job.keys).difference(arrived))
        self._done.append(
            JobResult(
                job_id=result.job,
                success=result.ok,
                successful_keys=None if result.ok else arrived,
                transfer_time=time.monotonic() - job.submitted,
                transfer_bytes=result.bytes,
            )
        )

    def _stored(self, job: _Job, result: Result) -> None:
        self._minute.stored(len(job.keys))
        for key, name, status in zip(job.keys, job.names, result.statuses):
            if status == 0:
                self._resident.add(key)
            else:
                self._counts.store_failures += 1
                if key not in self._resident:
                    self._keys_by_name.pop(name, None)
        self._done.append(
            JobResult(
                job_id=result.job,
                success=result.ok,
                transfer_time=time.monotonic() - job.submitted,
                transfer_bytes=result.bytes,
            )
        )

    def _follow_events(self) -> None:
        stored: list[OffloadKey] = []
        removed: list[OffloadKey] = []
        for event in self._finding.attempt([], self._store.events):
            if event.kind is EventKind.STORED:
                key = self._keys_by_name.get(event.key)
                if key is not None:
                    self._resident.add(key)
                    if removed:
                        self._announce(removed, removed=True)
                    stored.append(key)
                continue
            if event.kind is EventKind.MEMORY_FREE:
                continue
            self._counts.evicted += 1
            key = self._keys_by_name.pop(event.key, None)
            if key is not None:
                self._resident.discard(key)
                if stored:
                    self._announce(stored, removed=False)
                removed.append(key)
        self._announce(stored, removed=False)
        self._announce(removed, removed=True)

    def _announce(self, keys: list[OffloadKey], *, removed: bool) -> None:
        if keys and self._events is not None:
            self._events.append(
                OffloadingEvent(
                    keys=list(keys),
                    medium=self.medium,
                    removed=removed,
                    locality=self.locality,
                    ownership=self.tier_type,
                    removal_expected=True,
                )
            )
        keys.clear()
