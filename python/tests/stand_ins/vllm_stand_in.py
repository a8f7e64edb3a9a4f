"""The part of vLLM that terrace_kv.vllm uses. install() makes it importable as vllm."""

from __future__ import annotations

import logging
import mmap
import sys
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from enum import Enum, auto
from types import ModuleType
from typing import Any


class LookupResult(Enum):
    MISS = auto()
    HIT = auto()
    HIT_PENDING = auto()
    RETRY = auto()


class Medium(Enum):
    CPU = "CPU"
    STORAGE = "STORAGE"


class Locality(Enum):
    LOCAL = "LOCAL"
    REMOTE = "REMOTE"


@dataclass
class OffloadingEvent:
    keys: list[bytes]
    medium: Medium
    removed: bool
    locality: Locality | None = None
    ownership: str | None = None
    removal_expected: bool = False


@dataclass
class ReqContext:
    req_id: str
    kv_transfer_params: dict[str, Any] | None = None
    _offload_key_positions: dict[bytes, int] = field(default_factory=dict, init=False)

    def set_offload_key_position(self, key: bytes, end_token: int) -> None:
        self._offload_key_positions[key] = end_token

    def get_offload_key_position(self, key: bytes) -> int | None:
        return self._offload_key_positions.get(key)


@dataclass
class RequestOffloadingContext:
    policy: Any = None


class LoadStoreSpec:
    pass


class CPULoadStoreSpec(LoadStoreSpec):
    def __init__(self, block_ids: list[int]) -> None:
        self.chunk_ids = list(block_ids)


class CPUOffloadingMetrics:
    CPU_CACHE_USAGE_PERC = "vllm:kv_offload_cpu_cache_usage_perc"
    CPU_ALLOCATION_SIZE = "vllm:kv_offload_cpu_allocation_size"
    CPU_CACHE_WRITE_USAGE_PERC = "vllm:kv_offload_cpu_cache_write_usage_perc"
    CPU_CACHE_READ_USAGE_PERC = "vllm:kv_offload_cpu_cache_read_usage_perc"


class CacheHitSource(Enum):
    HOST = auto()
    DISK = auto()


@dataclass
class PrepareStoreOutput:
    keys_to_store: list[bytes]
    store_spec: LoadStoreSpec
    evicted_keys: list[bytes]


@dataclass
class ScheduleEndContext:
    new_req_ids: Any
    preempted_req_ids: Any


class OffloadingManager(ABC):
    @abstractmethod
    def lookup(self, key: bytes, req_context: Any) -> LookupResult: ...

    @abstractmethod
    def on_new_request(self, req_context: Any) -> RequestOffloadingContext: ...

    @abstractmethod
    def prepare_load(self, keys: Any, req_context: Any) -> LoadStoreSpec: ...

    @abstractmethod
    def prepare_store(self, keys: Any, req_context: Any) -> PrepareStoreOutput | None: ...


@dataclass(frozen=True)
class OffloadingCounterMetadata:
    documentation: str
    labelnames: tuple[str, ...] = ()


@dataclass(frozen=True)
class OffloadingGaugeMetadata:
    documentation: str
    labelnames: tuple[str, ...] = ()


@dataclass
class TransferJob:
    job_id: int
    keys: Any
    chunk_ids: Any
    is_promotion: bool
    req_context: Any
    submit_time: float = field(default_factory=time.monotonic)


@dataclass
class JobResult:
    job_id: int
    success: bool
    successful_keys: Any = None
    transfer_time: float | None = None
    transfer_bytes: int | None = None


class SecondaryTierManager(ABC):
    def __init__(
        self, offloading_spec: Any, primary_kv_view: memoryview, tier_type: str, backpressure_detector: Any = None
    ) -> None:
        self._primary_kv_view = primary_kv_view
        self.block_size_bytes = primary_kv_view.strides[0]
        self.tier_type = tier_type
        self.locality: Locality | None = None
        self.bp_detector = backpressure_detector

    @abstractmethod
    def lookup(self, key: bytes, req_context: Any) -> LookupResult: ...

    @abstractmethod
    def submit_store(self, job_metadata: TransferJob) -> None: ...

    @abstractmethod
    def submit_load(self, job_metadata: TransferJob) -> None: ...

    @abstractmethod
    def get_finished_jobs(self) -> Any: ...

    @abstractmethod
    def on_new_request(self, req_context: Any) -> RequestOffloadingContext: ...

    @abstractmethod
    def drain_jobs(self) -> None: ...


class SecondaryTierFactory:
    _registry: dict[str, Any] = {}

    @classmethod
    def register_tier(cls, tier_type: str, module_path: str, class_name: str) -> None:
        cls._registry[tier_type] = (module_path, class_name)


class OffloadingSpecFactory:
    _registry: dict[str, Any] = {}

    @classmethod
    def register_spec(cls, name: str, module_path: str, class_name: str) -> None:
        cls._registry[name] = (module_path, class_name)


class SharedOffloadRegion:
    def __init__(self, engine_id: str, num_chunks: int, rank: int | None, kv_bytes_per_chunk: int, cpu_page_size: int) -> None:
        self.num_chunks, self._row_stride = num_chunks, kv_bytes_per_chunk
        self.mmap_obj = mmap.mmap(-1, num_chunks * kv_bytes_per_chunk)

    def create_kv_memoryview(self) -> memoryview:
        return memoryview(self.mmap_obj).cast("b", (self.num_chunks, self._row_stride))

    def cleanup(self) -> None:
        self.mmap_obj.close()


class TieringOffloadingSpec:
    @classmethod
    def build_metric_definitions(cls, extra_config: dict[str, Any]) -> dict[str, Any]:
        return {}

    def __init__(self, config: Any) -> None:
        self.config = config
        self.extra_config = config.extra_config
        self.kv_bytes_per_chunk = self.cpu_page_size_per_worker = config.worker_kv_bytes_per_block
        self.num_chunks = self.extra_config["cpu_bytes_to_use"] // self.kv_bytes_per_chunk
        self.kv_events_config = type("Events", (), {"enable_kv_cache_events": config.enable_kv_cache_events})()
        self._engine_id = config.engine_id
        self._manager: Any = None

    def create_worker(self, kv_caches: Any) -> Any: ...


@dataclass
class OffloadingConnectorStats:
    data: dict[str, Any] = field(default_factory=lambda: {"types": {}, "data": {}})

    def increase_counter(self, counter_name: str, counter_increase_value: float = 1, labelvalues: tuple[str, ...] = ()) -> None:
        self.data["data"].setdefault(counter_name, {})[labelvalues] = counter_increase_value

    def set_gauge(self, gauge_name: str, gauge_value: float, labelvalues: tuple[str, ...] = ()) -> None:
        self.data["data"].setdefault(gauge_name, {})[labelvalues] = gauge_value

    def observe_histogram(self, histogram_name: str, histogram_value: float, labelvalues: tuple[str, ...] = ()) -> None:
        self.data["data"].setdefault(histogram_name, {}).setdefault(labelvalues, []).append(histogram_value)


@dataclass(frozen=True)
class OffloadingGroupConfig:
    tokens_per_block: int
    layer_names: tuple[str, ...]
    group_id: int


@dataclass(frozen=True)
class OffloadingModelConfig:
    name: str
    dtype: str


@dataclass(frozen=True)
class OffloadingCacheConfig:
    tokens_per_hash: int
    blocks_per_chunk: int


@dataclass(frozen=True)
class OffloadingParallelConfig:
    rank: int
    world_size: int
    tp_size: int
    pp_size: int
    pcp_size: int
    dcp_size: int
    data_parallel_index: int
    data_parallel_size: int
    data_parallel_rank_local: int | None
    is_parallelism_agnostic: bool


@dataclass(frozen=True)
class OffloadingConfig:
    groups: tuple[OffloadingGroupConfig, ...]
    worker_kv_bytes_per_block: int
    enable_kv_cache_events: bool
    extra_config: Any
    engine_id: str
    model: OffloadingModelConfig
    cache: OffloadingCacheConfig
    parallel: OffloadingParallelConfig
    replicated_layout: bool = False
    canonical_layout: bool = False
    kv_cache_layout: str | None = None


MODULES: dict[str, tuple[str, ...]] = {
    "vllm.v1.kv_offload.base": (
        "LookupResult", "Medium", "Locality", "OffloadingEvent", "ReqContext", "RequestOffloadingContext",
        "OffloadingCounterMetadata", "OffloadingGaugeMetadata", "LoadStoreSpec", "OffloadingManager", "PrepareStoreOutput",
        "ScheduleEndContext",
    ),
    "vllm.v1.kv_offload.cpu.common": ("CPULoadStoreSpec", "CPUOffloadingMetrics"),
    "vllm.v1.kv_offload.cpu.shared_offload_region": ("SharedOffloadRegion",),
    "vllm.v1.kv_offload.factory": ("OffloadingSpecFactory",),
    "vllm.v1.kv_offload.tiering.spec": ("TieringOffloadingSpec",),
    "vllm.v1.metrics.cache_hit_source": ("CacheHitSource",),
    "vllm.v1.kv_offload.config": (
        "OffloadingConfig", "OffloadingGroupConfig", "OffloadingModelConfig", "OffloadingCacheConfig", "OffloadingParallelConfig",
    ),
    "vllm.v1.kv_offload.tiering.base": ("TransferJob", "JobResult", "SecondaryTierManager"),
    "vllm.v1.kv_offload.tiering.factory": ("SecondaryTierFactory",),
    "vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics": ("OffloadingConnectorStats",),
}  # fmt: skip
"""The stand-ins by the module of vLLM that has them."""


def install() -> None:
    """Makes the stand-ins importable."""
    logger = ModuleType("vllm.logger")
    logger.init_logger = logging.getLogger  # type: ignore[attr-defined]
    sys.modules["vllm.logger"] = logger
    for path, names in MODULES.items():
        parts = path.split(".")
        for length in range(1, len(parts) + 1):
            name = ".".join(parts[:length])
            if name not in sys.modules:
                sys.modules[name] = ModuleType(name)
                sys.modules[name].__path__ = []
        for name in names:
            setattr(sys.modules[path], name, globals()[name])
    sys.modules["vllm.v1.kv_offload.base"].OffloadKey = bytes  # type: ignore[attr-defined]
    sys.modules["vllm"].__version__ = "0.0.stand.in"  # type: ignore[attr-defined]
