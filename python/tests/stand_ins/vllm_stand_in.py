"""The part of vLLM that terrace_kv.vllm uses. install() makes it importable as vllm."""

from __future__ import annotations

import logging
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


@dataclass
class RequestOffloadingContext:
    policy: Any = None


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


class OffloadingConnectorStats:
    def __init__(self) -> None:
        self.data: dict[str, dict[str, Any]] = {"types": {}, "data": {}}

    def increase_counter(self, name: str, value: float = 1, labelvalues: tuple[str, ...] = ()) -> None:
        self.data["data"].setdefault(name, {})[labelvalues] = value

    def set_gauge(self, name: str, value: float, labelvalues: tuple[str, ...] = ()) -> None:
        self.data["data"].setdefault(name, {})[labelvalues] = value


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
        "OffloadingCounterMetadata", "OffloadingGaugeMetadata",
    ),
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
