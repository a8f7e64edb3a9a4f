"""Pages in the device memory of SGLang, as slots of a cache."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from sglang.srt.mem_cache.hicache_storage import PoolName
from sglang.srt.mem_cache.hybrid_cache import linker_pool_assembler
from sglang.srt.mem_cache.hybrid_cache.linker_pool_assembler import (
    DevicePoolEntry,
    DevicePoolGroup,
    resolve_hybrid_device_pool_group,
)
from sglang.srt.mem_cache.memory_pool import HybridLinearKVPool, MHATokenToKVPool, MLATokenToKVPool
from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool

from .._offload_types import DeviceRegion
from . import identity

_BLOCK_UNIT = 4096  # a stored block has a multiple of this size
_PADDING_MAX = 1 / 8  # of the memory of the pages


class DevicePool:
    """The pages that one kind of SGLang's indices names: those of the KV, of the KV of sliding windows, or recurrent states.

    The physical pools that share these indices, such as the KV and its indexer, are one block. It has parts for each layer, in
    the order of the layers. The pool keeps SGLang's memory alive.

    Args:
        source: SGLang's name of the indices, which its transfers have.
        entries: The physical pools.
        layers_of_model: Number of layers for which SGLang waits.
        padded: Whether a block must have a multiple of 4 KiB. Then each layer of each block gets some bytes more, if need be.

    Raises:
        ValueError: The blocks would have too much padding.
    """

    def __init__(self, source: Any, entries: Sequence[Any], layers_of_model: int, padded: bool) -> None:
        self.source = source
        self.name = str(source.value)
        self.entries = list(entries)
        self.index_span = int(entries[0].page_size)
        """Number of SGLang's indices that name one page."""
        self._layers_of_model = layers_of_model
        by_layer: dict[int, list[tuple[int, int, int, int]]] = {}  # base, stride, bytes and number of slots, by layer
        for entry in entries:
            for layer, buffers in entry.layer_mapping.items():
                numbers = [buffers] if isinstance(buffers, int) else list(buffers)
                parts = by_layer.setdefault(layer, [])
                parts += (_part(entry, component, number) for component in range(len(entry.components)) for number in numbers)
        sizes = {sum(part[2] for part in parts) for parts in by_layer.values()}
        layers = sorted(by_layer)
        self.by_layer = len(sizes) == 1
        """False if the layers have parts of different sizes. Then the block is one layer, and all are ready with the last one."""
        self.layers = layers if self.by_layer else layers[:1]
        """For each layer of the block, the first layer of the model that needs it."""
        self.slots = min(part[3] for parts in by_layer.values() for part in parts)
        self.regions = [
            (place if self.by_layer else 0, *part[:3]) for place, layer in enumerate(layers) for part in by_layer[layer]
        ]
        """Layer of the block, base, stride and bytes of each part."""
        self._padding = self._pad() if padded else None
        self.block_bytes = sum(part[3] for part in self.regions)

    def _pad(self) -> Any:
        """Adds a region for each layer, so that the size of a block is a multiple of 4 KiB. Returns its memory, or None."""
        layers = len(self.layers)
        each = sum(part[3] for part in self.regions) // layers
        more = next(more for more in range(_BLOCK_UNIT) if layers * (each + more) % _BLOCK_UNIT == 0)
        if more == 0:
            return None
        if more > each * _PADDING_MAX:
            raise ValueError(
                f"a page of the pool {self.name!r} has {layers * each} bytes, and a stored one a multiple of {_BLOCK_UNIT}: too "
                "much of it would be padding; use a larger --page-size, or give no path"
            )
        memory = torch.zeros(self.slots, layers * more, dtype=torch.uint8, device=self.device)
        base = memory.data_ptr()
        self.regions += [(layer, base + layer * more, layers * more, more) for layer in range(layers)]
        return memory

    @property
    def device(self) -> Any:
        """SGLang's device of the pool."""
        return self.entries[0].kv_buffer[0].device

    def device_regions(self, group: int) -> list[DeviceRegion]:
        """The memory as regions of an OffloadCache."""
        return [
            DeviceRegion(base, stride, size, layer=layer, group=group)
            for layer, base, stride, size in sorted(self.regions, key=lambda each: each[0])
        ]

    def slots_of(self, indices: Any, pages: int) -> list[int]:
        """The slots of pages, from SGLang's indices in host memory.

        Raises:
            ValueError: They are not whole pages, or not so many.
        """
        entry = self.entries[0]
        rows = entry.prepare_locations(indices)
        if len(rows) != pages:
            raise ValueError(f"pool {self.name!r}: indices of {len(rows)} pages for {pages} keys")
        span = entry.buffer_meta[0][0][2] // (entry.components[0][0].nbytes // entry.components[0][0].shape[0])
        return [row // span for row in rows]

    def ready(self, leading: int) -> int:
        """The number of leading layers of the model that need nothing more from this pool, when so many leading layers of its
        blocks have arrived."""
        return self.layers[leading] if leading < len(self.layers) else self._layers_of_model

    def geometry(self) -> list[Any]:
        """All that decides which bytes are where in a block."""
        kinds = [(str(entry.name.value), type(entry.device_pool).__name__, entry.page_size) for entry in self.entries]
        types = sorted({str(buffer.dtype) for entry in self.entries for buffer in entry.kv_buffer})
        return [self.name, kinds, types, self.layers, [(layer, size) for layer, _, _, size in self.regions]]


def _part(entry: Any, component: int, number: int) -> tuple[int, int, int, int]:
    base, row_stride, size = entry.buffer_meta[component][number]
    buffer = entry.components[component][number]
    rows = size // (buffer.nbytes // buffer.shape[0])  # of the buffer, for a page
    return base, row_stride * rows, size, buffer.shape[0] // rows


def pool_group(params: Any, components: Iterable[Any]) -> DevicePoolGroup:
    """SGLang's view of its device pools. SGLang makes it for some models (DeepSeek-V4, DeepSeek sparse attention, MLA with
    recurrent states). For those with plain attention, alone or beside sliding windows or recurrent states, it is made here.

    Raises:
        ValueError: The pools of this model are not supported; the sentence names why.
    """
    for option, name in (("enable_unified_memory", "--enable-unified-memory"), ("enable_hisparse", "--enable-hisparse")):
        if identity._leaf(option):
            raise ValueError(f"TerraceLinker does not support {name} yet")
    if (identity._leaf("dcp_size") or 1) > 1:
        raise ValueError("TerraceLinker does not support decode context parallelism (--dcp-size)")
    kvcache = params.token_to_kv_pool_allocator.get_kvcache()
    _refuse_by_name(kvcache)
    if type(kvcache) in (MHATokenToKVPool, MLATokenToKVPool):
        _refuse_drafts(params)
        layers = {layer: layer for layer in range(kvcache.layer_num)}
        return DevicePoolGroup([_entry(PoolName.KV, kvcache, layers, params.page_size)], kvcache.layer_num, params.page_size)
    names = {component.name for component in components}
    if type(kvcache) is SWAKVPool and "MAMBA" not in names:
        _refuse_drafts(params)
        full: dict[int, int] = {}
        window: dict[int, int] = {}
        for layer, (place, has_window) in kvcache.layers_mapping.items():
            (window if has_window else full)[layer - kvcache.start_layer] = place
        entries = [
            _entry(PoolName.KV, kvcache.full_kv_pool, full, params.page_size),
            _entry(PoolName.SWA, kvcache.swa_kv_pool, window, params.page_size),
        ]
        return DevicePoolGroup(entries, kvcache.layer_num, params.page_size)
    if type(kvcache) is HybridLinearKVPool and type(kvcache.full_kv_pool) is MHATokenToKVPool and names == {"FULL", "MAMBA"}:
        _refuse_drafts(params)
        places = {layer - kvcache.start_layer: place for layer, place in kvcache.full_attention_layer_id_mapping.items()}
        # A private name of SGLang, which the tests check: it refuses the kinds of states that are not supported.
        states = linker_pool_assembler._mamba_device_pool_entry(params.req_to_token_pool, kvcache.start_layer)
        entries = [_entry(PoolName.KV, kvcache.full_kv_pool, places, params.page_size), states]
        return DevicePoolGroup(entries, 1 + max(max(entry.layer_mapping) for entry in entries), params.page_size)
    try:
        group = resolve_hybrid_device_pool_group(
            kvcache=kvcache, page_size=params.page_size, params=params, components=set(components)
        )
    except ValueError as error:
        raise ValueError(f"TerraceLinker does not support the pool {type(kvcache).__name__}: {error}") from error
    if any(getattr(entry, "_index_mapper", None) is not None for entry in group.entries):
        raise ValueError(f"TerraceLinker does not support the pools of {type(kvcache).__name__}: they translate indices")
    return group


def device_pools(group: DevicePoolGroup, padded: bool) -> list[DevicePool]:
    """The pools of a cache, that of the KV first."""
    sources = sorted({entry.indices_from_pool for entry in group.entries}, key=lambda source: source != PoolName.KV)
    return [
        DevicePool(source, [each for each in group.entries if each.indices_from_pool == source], group.num_layers, padded)
        for source in sources
    ]


def _entry(name: Any, pool: Any, layers: dict[int, int], page_size: int) -> DevicePoolEntry:
    if type(pool) is MLATokenToKVPool:
        mapping: dict[int, Any] = dict(layers)
        buffers = list(pool.kv_buffer)
    elif type(pool) is MHATokenToKVPool and pool.kv_cache_layout == "nhd":
        mapping = {layer: (place, len(pool.k_buffer) + place) for layer, place in layers.items()}
        buffers = [*pool.k_buffer, *pool.v_buffer]
    else:
        layout = getattr(pool, "kv_cache_layout", None)
        raise ValueError(f"TerraceLinker does not support the pool {type(pool).__name__} (layout {layout}) for the {name}")
    return DevicePoolEntry(
        name=name,
        indices_from_pool=name,
        device_pool=pool,
        components=[buffers],
        layer_mapping=mapping,
        page_size=page_size,
        rows_are_pages=False,
    )


def _refuse_drafts(params: Any) -> None:
    if params.mtp_draft_device_pools or params.sidecar_draft_device_pools:
        raise ValueError("TerraceLinker does not support the KV of a draft model with this model yet")


def _refuse_by_name(kvcache: Any) -> None:
    pools = [kvcache, *(getattr(kvcache, name, None) for name in ("full_kv_pool", "swa_kv_pool", "c4_kv_pool"))]
    for pool in pools:
        kind = type(pool).__name__
        if "HiSparse" in kind:
            raise ValueError(f"TerraceLinker does not support HiSparse yet (pool {kind})")
        if kind.startswith("Unified"):
            raise ValueError(f"TerraceLinker does not support unified memory yet (pool {kind})")
        scales = (getattr(pool, name, None) is not None for name in ("k_scale_buffer", "native_k_scale_buffer"))
        if any(scales):
            raise ValueError(f"TerraceLinker does not support scaled KV yet (pool {kind})")
