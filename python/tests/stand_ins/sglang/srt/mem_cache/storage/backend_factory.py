"""Stand-in for SGLang's factory of storage back ends: the dynamic ones."""

from __future__ import annotations

import importlib
from typing import Any

from sglang.srt.mem_cache.hicache_storage import HiCacheStorage, HiCacheStorageConfig


class StorageBackendFactory:
    @classmethod
    def create_backend(
        cls, backend_name: str, storage_config: HiCacheStorageConfig, mem_pool_host: Any, **kwargs
    ) -> HiCacheStorage:
        assert backend_name == "dynamic" and storage_config.extra_config is not None
        config = storage_config.extra_config
        backend_class = getattr(importlib.import_module(config["module_path"]), config["class_name"])
        assert issubclass(backend_class, HiCacheStorage)
        return backend_class(storage_config, kwargs)
