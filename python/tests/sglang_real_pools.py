"""SGLang's own host pools over small device pools that lie in host memory."""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.mem_cache.device_pool_info import KVBuffers, MambaStateBufferInfo, MHABufferInfo, MLABufferInfo
from sglang.srt.mem_cache.memory_pool_host import DeepSeekV4PagedHostPool, LogicalHostPool
from sglang.srt.mem_cache.pool_host.base import host_memory_budget_scope
from sglang.srt.mem_cache.pool_host.mamba import MambaPoolHost
from sglang.srt.mem_cache.pool_host.mha import (
    AsymmetricMHATokenToKVPoolHost,
    MHATokenToKOnlyPoolHost,
    MHATokenToKVPoolHost,
)
from sglang.srt.mem_cache.pool_host.mha_mxfp8 import MHATokenToKVPoolMXFP8Host
from sglang.srt.mem_cache.pool_host.mla import MLATokenToKVPoolHost

LAYERS, HEADS, WIDTH, PAGE = 4, 4, 128, 16


def _addresses(tensors: tuple[torch.Tensor, ...]) -> torch.Tensor:
    return torch.tensor([each.data_ptr() for each in tensors], dtype=torch.uint64)


def _common(layout: str, pages: int) -> dict[str, Any]:
    return dict(
        host_to_device_ratio=1.0,
        host_size=0,
        page_size=PAGE,
        layout=layout,
        pin_memory=False,
        device="cpu",
        device_capacity_tokens=PAGE,
        start_layer=0,
        end_layer=LAYERS,
        host_token_capacity=pages * PAGE,
    )


def _mha(kind: type, layout: str, pages: int, v_width: int = WIDTH) -> Any:
    k = tuple(torch.zeros(PAGE, HEADS, WIDTH, dtype=torch.bfloat16) for _ in range(LAYERS))
    v = tuple(torch.zeros(PAGE, HEADS, v_width, dtype=torch.bfloat16) for _ in range(LAYERS))
    info = MHABufferInfo(
        buffers=KVBuffers(k=k, v=v, k_data_ptrs=_addresses(k), v_data_ptrs=_addresses(v), layout="nhd"),
        page_size=PAGE,
        head_num=HEADS,
        head_dim=WIDTH,
        v_head_dim=v_width,
        dtype=torch.bfloat16,
        device=torch.device("cpu"),
    )
    return kind(info, **_common(layout, pages))


def _mla(layout: str, pages: int) -> Any:
    rows = tuple(torch.zeros(PAGE, 1, 576, dtype=torch.bfloat16) for _ in range(LAYERS))
    info = MLABufferInfo(
        buffers=rows,
        data_ptrs=_addresses(rows),
        layer_indices=tuple(range(LAYERS)),
        device_layer_num=LAYERS,
        page_size=PAGE,
        kv_lora_rank=512,
        qk_rope_head_dim=64,
        kv_cache_dim=576,
        dtype=torch.bfloat16,
        device=torch.device("cpu"),
    )
    return MLATokenToKVPoolHost(info, target_layer_num=LAYERS, **_common(layout, pages))


def _mamba(layout: str, pages: int, side_state: bool = False) -> Any:
    info = MambaStateBufferInfo(
        temporal=torch.zeros(3, 2, 64, 32, dtype=torch.float32),
        conv=(torch.zeros(3, 2, 100, dtype=torch.bfloat16),),
        extra_checkpoint_buffers=(torch.zeros(2, 5, dtype=torch.int64),) if side_state else (),
    )
    return MambaPoolHost(
        info, float(pages - 1), 0, device_capacity=1, pin_memory=False, device="cpu", layout=layout
    )


def _paged(layout: str, pages: int) -> Any:
    return DeepSeekV4PagedHostPool(
        "c4",
        [torch.zeros(2, 1100, dtype=torch.uint8) for _ in range(LAYERS)],
        1100,
        pages,
        PAGE,
        layout,
        pin_memory=False,
    )


def make_pool(kind: str, layout: str = "page_first", pages: int = 9) -> Any:
    """A host pool of a kind and layout."""
    with host_memory_budget_scope(1 << 30):
        if kind == "mha":
            return _mha(MHATokenToKVPoolHost, layout, pages)
        if kind == "asymmetric":
            return _mha(AsymmetricMHATokenToKVPoolHost, layout, pages, 64)
        if kind == "mla":
            return _mla(layout, pages)
        if kind == "mamba":
            return _mamba(layout, pages)
        if kind == "side state":
            return _mamba(layout, pages, side_state=True)
        if kind in ("paged", "flat"):
            return _paged(layout, pages)
        if kind == "logical":
            return LogicalHostPool(pages * PAGE, PAGE)
        assert kind == "sealed"
        sealed = MHATokenToKVPoolMXFP8Host.__new__(MHATokenToKVPoolMXFP8Host)
        sealed.page_size, sealed.layout, sealed.dcp_size, sealed.kv_buffer = PAGE, layout, 1, None
        return sealed
