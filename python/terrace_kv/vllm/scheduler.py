"""vLLM's scheduler, with Terrace as the manager of GPU memory: --scheduler-cls terrace_kv.vllm.TerraceScheduler."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1 import KVConnectorBase_V1
from vllm.logger import init_logger
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.core.single_type_kv_cache_manager import FullAttentionManager, SlidingWindowManager

from .._vllm_options import check_scheduler
from .gpu_manager import GpuManager

logger = init_logger("vllm." + __name__)


class _WithTerrace:
    """A scheduler whose KV cache manager is Terrace's."""

    vllm_config: Any
    connector: Any

    @property
    def kv_cache_manager(self) -> GpuManager:
        """Terrace's manager. vLLM's scheduler assigns its own, from which Terrace's is made."""
        return self._terrace

    @kv_cache_manager.setter
    def kv_cache_manager(self, own: KVCacheManager) -> None:
        for objection in objections(self, own):
            raise ValueError(f"TerraceScheduler: {objection}")
        self._terrace = GpuManager(own, terrace_options(self.vllm_config))
        logger.info("Terrace: decides what %d blocks of GPU memory keep", own.block_pool.num_gpu_blocks - 1)

    def schedule(self, *arguments: Any, **options: Any) -> Any:
        """Plans a step, which runs as planned from now on."""
        step = super().schedule(*arguments, **options)  # type: ignore[misc]
        self._terrace.coordinator.pass_ends()
        return step

    def shutdown(self) -> None:
        """Ends the scheduler and the cache."""
        super().shutdown()  # type: ignore[misc]
        self._terrace.close()


class TerraceScheduler(_WithTerrace, AsyncScheduler):
    """Give it as --scheduler-cls. Options of docs/configuration.md can be in vLLM's --additional-config:

        {"terrace": {"policy": "lru"}}

    Where vLLM schedules synchronously, for example for speculation by n-gram, a SynchronousTerraceScheduler is made.

    Raises:
        ValueError: vLLM has an option that Terrace does not take; the sentence names it.
    """

    def __new__(cls, vllm_config: Any, *arguments: Any, **options: Any) -> Any:
        if cls is TerraceScheduler and not vllm_config.scheduler_config.async_scheduling:
            return SynchronousTerraceScheduler(vllm_config, *arguments, **options)
        return super().__new__(cls)


class SynchronousTerraceScheduler(_WithTerrace, Scheduler):
    """The same above vLLM's synchronous scheduler."""


def terrace_options(vllm_config: Any) -> dict[str, Any]:
    """What --additional-config says for Terrace."""
    given = vllm_config.additional_config
    options = dict(given.get("terrace", {})) if isinstance(given, dict) else {}
    check_scheduler(options)
    return options


def objections(scheduler: Any, own: KVCacheManager) -> Iterator[str]:
    """What Terrace does not take, in one sentence for each option."""
    parallel = scheduler.vllm_config.parallel_config
    for name in ("decode_context_parallel_size", "prefill_context_parallel_size"):
        if getattr(parallel, name) > 1:
            yield f"{name} is {getattr(parallel, name)}, must be 1: blocks are not split over ranks by their tokens"
    if own.metrics_collector is not None:
        yield "kv_cache_metrics is on, must be off: it follows blocks of vLLM's own pool"
    if not own.coordinator.single_type_managers:
        yield "the model has no KV cache, so there is nothing to manage; leave --scheduler-cls out"
    for number, manager in enumerate(own.coordinator.single_type_managers):
        spec = manager.kv_cache_spec
        if type(manager) not in (FullAttentionManager, SlidingWindowManager):
            yield (
                f"KV cache group {number} is {type(spec).__name__}, for vLLM's {type(manager).__name__}; only full attention and "
                "sliding windows are taken, and neither encoder blocks nor states"
            )
        elif spec.prefix_replay_tokens > 0:
            yield f"KV cache group {number} is {type(spec).__name__}, whose windows are computed again after a hit"
        elif not spec.prefix_cacheable:
            yield f"KV cache group {number} is {type(spec).__name__}, whose blocks vLLM never shares"
        elif manager.block_pool is not own.block_pool:
            yield f"KV cache group {number} has a block pool of its own, as with HiSparse; there must be one"
    if own.coordinator.enable_partial_hash_hits:
        yield "prefix_match_unit is smaller than a block, so a hit may end within one, which would have to be copied"
    yield from (
        f"kv_connector {type(each).__name__} works on vLLM's own block pool; the OffloadingConnector does not"
        for each in connectors(scheduler.connector)
        if binds_pool(type(each))
    )


def connectors(connector: Any) -> list[Any]:
    """The connector, or those that a MultiConnector has."""
    if connector is None:
        return []
    inner = getattr(connector, "_connectors", None)
    return [connector] if inner is None else [each for one in inner for each in connectors(one)]


def binds_pool(connector: type) -> bool:
    """Whether a connector does something with the block pool that the scheduler gives it."""
    base = KVConnectorBase_V1
    return any(getattr(connector, name) is not getattr(base, name) for name in ("bind_gpu_block_pool", "bind_kv_cache_manager"))
