"""The configuration of a TerraceLinker's cache."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from . import identity
from .device_pools import DevicePool
from .linker_options import LinkerOptions

_UNITS = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_OWN = ("pool", "group", "ranks", "key-order", "engine-owns-slots")
_STATES_SHARE = 0.25  # of host memory, for recurrent states beside KV
_STAGING_MAX = 64


def cache_config(options: LinkerOptions, pools: Sequence[DevicePool], config: Any, label: str) -> dict[str, Any]:
    """The configuration of the cache.

    The pools of KV, which all pages have, get equal numbers of blocks. States, of which one is for many pages, have a quarter.

    Args:
        options: Those of the operator.
        pools: The pool of the KV first.
        config: The place of the rank (HiCacheStorageConfig).
        label: The owner of the store.

    Raises:
        ValueError: There is no room for a page, or `config` has an option that belongs to the linker.
    """
    for name in options.config:
        if name in _OWN:
            raise ValueError(f'linker_extra_config: "config" has {name!r}, which TerraceLinker sets itself')
    if "shared" in options.config:
        raise ValueError("TerraceLinker does not support a shared store yet")
    if "storage" in options.config and not options.path:
        raise ValueError('linker_extra_config: "config" has "storage"; give "path" and "capacity", too')
    host = size_of("host_capacity", options.host_capacity)
    states = [pool for pool in pools if pool.name == "mamba"]
    paged = [pool for pool in pools if pool.name != "mamba"]
    page_bytes = sum(pool.block_bytes for pool in paged)
    for_states = host * _STATES_SHARE if states else 0
    host_blocks = {pool.name: int(for_states // pool.block_bytes) for pool in states}
    host_blocks |= {pool.name: int((host - for_states) // page_bytes) for pool in paged}
    staging = {name: min(_STAGING_MAX, max(2, blocks // 16)) if options.path else 0 for name, blocks in host_blocks.items()}
    for name, blocks in host_blocks.items():
        if blocks <= staging[name]:
            needed = sum((staging[pool.name] + 1) * pool.block_bytes for pool in pools)
            raise ValueError(
                f'linker_extra_config: "host_capacity" has room for {blocks} pages of the pool {name!r}; at least '
                f"{staging[name] + 1} are needed, about {needed * (4 if states else 1)} bytes for all pools"
            )
    device = pools[0].device
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"TerraceLinker does not support the device {device.type}, only GPUs of NVIDIA, and CPUs for tests")
    given: dict[str, Any] = {
        "write-policy": "write-through" if options.path else "none",
        **options.config,
        "key-order": "prefix",
        "rank": [{**_rank_options(options), "device": "emulated" if device.type == "cpu" else f"cuda:{device.index or 0}"}],
        "pool": [
            {
                "block-bytes": pool.block_bytes,
                "layers": len(pool.layers),
                "device-blocks": pool.slots,
                "host-blocks": host_blocks[pool.name] - staging[pool.name],
                "staging-blocks": staging[pool.name],
            }
            for pool in pools
        ],
        "group": [
            {"kind": "full", "block-tokens": pool.index_span, "pool": number} for number, pool in enumerate(pools)
        ],
    }
    if options.path:
        sizes = "-".join(str(pool.block_bytes) for pool in pools[1:])
        name = f"linker-{identity.store_name(config, config.tp_rank, pools[0].block_bytes)}" + (f"-{sizes}" if sizes else "")
        given["storage"] = {
            "where": "file:" + options.path[0],
            **({"stripe": list(options.path[1:])} if len(options.path) > 1 else {}),
            "capacity": options.capacity,
            "name": name,
            "label": label,
            **options.config.get("storage", {}),
        }
    return given


def _rank_options(options: LinkerOptions) -> dict[str, Any]:
    ranks = options.config.get("rank", [{}])
    if not isinstance(ranks, list) or len(ranks) != 1 or not isinstance(ranks[0], dict) or "device" in ranks[0]:
        raise ValueError('linker_extra_config: "rank" of "config" must be a list of one object without "device"')
    return ranks[0]


def size_of(option: str, size: int | str) -> int:
    """The bytes of a size, such as "64GiB".

    Raises:
        ValueError: It is no size.
    """
    if isinstance(size, int):
        return size
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]iB|B|)\s*", size)
    if found is None:
        raise ValueError(
            f'linker_extra_config: "{option}" is {size!r}, must be a number and B, KiB, MiB, GiB or TiB; for example "64GiB"'
        )
    return int(float(found[1]) * _UNITS[found[2]])
