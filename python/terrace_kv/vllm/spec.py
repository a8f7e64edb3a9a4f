"""vLLM's offloading to host memory and storage, with Terrace's decisions."""

from __future__ import annotations

from typing import Any

from vllm.logger import init_logger
from vllm.v1.kv_offload.base import OffloadingManager
from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion
from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec

from .._vllm_options import check_spec
from . import metrics
from .manager import TerraceOffloadingManager
from .names import chunk_namespace, groups_of, store_label, store_name

logger = init_logger("vllm." + __name__)


class TerraceOffloadingSpec(TieringOffloadingSpec):
    """Keeps chunks in vLLM's own shared region, under the control of Terrace's manager, and on disk below it.

    vLLM's workers copy between the device and the region. In kv_connector_extra_config:

        {"spec_name": "TerraceOffloadingSpec", "spec_module_path": "terrace_kv.vllm",
         "cpu_bytes_to_use": 34359738368,
         "terrace": {"path": "/mnt/nvme/kv", "capacity": "500GiB"}}

    Options of "terrace". All are optional:
        path, capacity: The directory of the store, or a list of directories, and their disk space. Without them there is no disk.
        shared: The table [shared] of docs/configuration.md as an object, {"url": "redis://kv@cache:6379"}: a store that several
            machines share, behind host memory and disk.
        weights_revision, adapters, attention_backend: The same as in TerraceTier.
        weights_fixed: True if the weights never change while the engine runs; then a reset of the cache and sleep drop nothing.
            Otherwise a reset removes the stored chunks, and ends the use of the shared store until the next start.
        keep_storage: True if a reset keeps the stored chunks for the next start, which finds them if it has the same weights.
        prefill_speed: Tokens that the engine computes in a second. While storage is slower, it is not read. Without this option
            the speed is learned.
        tenants: By name of a tenant (docs/hints.md): the most bytes of host memory that its chunks may have, {"team": 1073741824}.
        config: A mapping with more options of docs/configuration.md, such as {"policy": "lru", "storage": {"io": "threads"}}.

    All workers and the scheduler must be on one host, because they share memory.
    """

    @classmethod
    def build_metric_definitions(cls, extra_config: dict[str, Any]) -> dict[str, Any]:
        """vLLM's metrics of host memory, and Terrace's."""
        return {**super().build_metric_definitions(extra_config), **metrics.definitions()}

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self._manager: OffloadingManager | None = None
        self._options = dict(self.extra_config.get("terrace", {}))
        check_spec(self.extra_config)

    def get_manager(self) -> OffloadingManager:
        """The manager, for the scheduler."""
        if self._manager is None:
            self._manager = self._make_manager()
        return self._manager

    def create_worker(self, kv_caches: Any) -> Any:
        """vLLM's own worker over the shared region."""
        check_one_host(self.config.parallel.world_size)
        return super().create_worker(kv_caches)

    def _info(self) -> dict[str, Any]:
        """The labels that vLLM's own manager of this spec has, since vLLM 0.33."""
        host = getattr(self, "cpu_info", None)
        return {} if host is None else {**host.as_config_info(), "tier": "0:primary"}

    def _make_manager(self) -> OffloadingManager:
        options = self._options
        namespace, fields = chunk_namespace(
            self.config,
            self.kv_bytes_per_chunk,
            options.get("weights_revision"),
            options.get("attention_backend"),
            options.get("adapters"),
        )
        groups = groups_of(self.config)
        if not groups.full:
            logger.warning("Terrace: vLLM tells of no group of full attention, so chunks are given up by their last use alone")
        for group in self.config.groups:
            if not groups.full or group.group_id in groups.full:
                continue
            if (window := groups.windows.get(group.group_id)) is None:
                logger.info("Terrace: chunks of group %d stand alone: its kind is not known", group.group_id)
                continue
            logger.info(
                "Terrace: of group %d, chunks are kept where a prompt ends or others went on differently: a token attends to %d",
                group.group_id,
                window.chunks,
            )
        below = "path" in options or "shared" in options
        staging = min(64, max(2, self.num_chunks // 16)) if below else 0
        if self.num_chunks <= staging:
            raise ValueError(
                f"cpu_bytes_to_use: there is room for {self.num_chunks} chunks of {self.kv_bytes_per_chunk} bytes; at least "
                f"{staging + 1} are needed"
            )
        given = dict(options.get("config", {}))
        if "path" in options:
            paths = [options["path"]] if isinstance(options["path"], str) else list(options["path"])
            given["storage"] = {
                "where": "file:" + paths[0],
                **({"stripe": paths[1:]} if len(paths) > 1 else {}),
                "capacity": options["capacity"],
                "name": store_name(self.config, self.kv_bytes_per_chunk),
                "label": store_label(fields),
                **given.get("storage", {}),
            }
        speed = options.get("prefill_speed")
        if groups.full and isinstance(speed, (int, float)) and speed > 0:  # else the manager refuses it, or learns it
            # The chunks of all groups of full attention at one place stand for the same tokens.
            tokens = sum(groups.full.values()) / len(groups.full) ** 2
            given.setdefault("unit-prefill", f"{max(1, round(1e9 * tokens / speed))}ns")
        if "shared" in options:
            given["shared"] = {**options["shared"], **given.get("shared", {})}
        region = SharedOffloadRegion(
            engine_id=self._engine_id,
            num_chunks=self.num_chunks,
            rank=None,
            kv_bytes_per_chunk=self.kv_bytes_per_chunk,
            cpu_page_size=self.cpu_page_size_per_worker,
        )
        try:
            manager = RegionManager(
                region,
                given,
                staging,
                namespace,
                groups.full,
                windows=groups.windows,
                weights_fixed=bool(options.get("weights_fixed", False)),
                keep_storage=bool(options.get("keep_storage", False)),
                events=self.kv_events_config.enable_kv_cache_events,
                steps_ahead=self.config.parallel.pp_size + 4,
                prefill_speed=options.get("prefill_speed"),
                info=self._info(),
                tenants={
                    tenant: quota_chunks(tenant, size, self.kv_bytes_per_chunk)
                    for tenant, size in options.get("tenants", {}).items()
                },
            )
        except BaseException:
            region.cleanup()
            raise
        logger.info(
            "Terrace: %d chunks of %d bytes in host memory, %s on disk, weights %s, namespace %s",
            self.num_chunks - staging,
            self.kv_bytes_per_chunk,
            options.get("capacity", "nothing"),
            fields["weights"],
            namespace.hex()[:12],
        )
        return manager


class RegionManager(TerraceOffloadingManager):
    """The manager of a shared region. The region is released with the manager."""

    def __init__(self, region: SharedOffloadRegion, config: dict[str, Any], *arguments: Any, **options: Any) -> None:
        self._region = region
        self._view = region.create_kv_memoryview()
        try:
            super().__init__(config, self._view, *arguments, **options)
        except BaseException:
            self._view.release()
            raise

    def shutdown(self) -> None:
        """Ends the manager, and then the region. If a disk does not answer, the region is kept, because the disk may still use
        it."""
        super().shutdown()
        self._view.release()
        self._region.cleanup()


def quota_chunks(tenant: str, size: Any, chunk_bytes: int) -> int:
    """Converts a quota in bytes to chunks."""
    if not isinstance(size, int) or isinstance(size, bool) or size < chunk_bytes:
        raise ValueError(f"tenants.{tenant} is {size!r}, must be bytes for at least one chunk, {chunk_bytes}")
    return size // chunk_bytes


def check_one_host(world_size: int) -> None:
    """Raises ValueError if the workers of the engine are on several hosts. All workers call it."""
    if world_size == 1:
        return
    from vllm.distributed.parallel_state import get_world_group, in_the_same_node_as

    if not all(in_the_same_node_as(get_world_group().cpu_group, source_rank=0)):
        raise ValueError(
            "TerraceOffloadingSpec: the workers are on several hosts, which share no memory; use one engine for each host"
        )
