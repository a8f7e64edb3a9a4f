"""Terrace under vLLM. docs/vllm.md shows how to use it.

TerraceTier keeps the chunks of vLLM's TieringOffloadingSpec on disk. In kv_connector_extra_config:

    {"spec_name": "TieringOffloadingSpec", "cpu_bytes_to_use": 34359738368,
     "secondary_tiers": [{"type": "terrace", "path": "/mnt/nvme/kv", "capacity": "500GiB"}]}

TerraceOffloadingSpec also decides which chunks host memory keeps, in place of vLLM's manager:

    {"spec_name": "TerraceOffloadingSpec", "cpu_bytes_to_use": 34359738368,
     "terrace": {"path": "/mnt/nvme/kv", "capacity": "500GiB"}}

TerraceScheduler decides what GPU memory keeps: --scheduler-cls terrace_kv.vllm.TerraceScheduler.
"""

from __future__ import annotations

from typing import Any

from .spec import TerraceOffloadingSpec
from .tier import TerraceTier

__all__ = ["TerraceOffloadingSpec", "TerraceScheduler", "TerraceTier"]


def __getattr__(name: str) -> Any:
    """Imports vLLM's scheduler only where it is wanted: workers need none."""
    if name != "TerraceScheduler":
        raise AttributeError(name)
    from .scheduler import TerraceScheduler

    return TerraceScheduler
