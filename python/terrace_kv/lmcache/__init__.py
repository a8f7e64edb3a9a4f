"""Terrace as an L2 adapter of LMCache: objects of the KV cache on disk, which are found again after a restart.

LMCache loads it as a plug-in; no code of LMCache changes:

    lmcache server --l1-size-gb 64 --eviction-policy LRU --l2-adapter '{"type": "plugin", "module_path": "terrace_kv.lmcache",
        "class_name": "TerraceL2Adapter", "adapter_params": {"path": "/mnt/nvme/kv", "capacity": "500GiB",
            "weights_revision": "1"}}'

docs/lmcache.md has the options and the limits.
"""

from __future__ import annotations

from .adapter import TerraceL2Adapter
from .options import TerraceL2AdapterConfig

__all__ = ["TerraceL2Adapter", "TerraceL2AdapterConfig"]
