"""A scheduler in small over SGLang's own UnifiedRadixCache, device pools and allocators, on CPU tensors.

The bytes that its forward pass writes follow from the tokens before, as KV does, so every loaded page can be compared.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from sglang.srt.configs.mamba_utils import Mamba2CacheParams, Mamba2StateShape
from sglang.srt.managers.schedule_batch import ReqKvInfo
from sglang.srt.mem_cache.allocator import PagedTokenToKVPoolAllocator
from sglang.srt.mem_cache.allocator.swa import SWATokenToKVPoolAllocator
from sglang.srt.mem_cache.base_prefix_cache import EvictParams, InitLoadBackParams, InsertParams, MatchPrefixParams
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.memory_pool import (
    HybridLinearKVPool,
    HybridReqToTokenPool,
    MHATokenToKVPool,
    MLATokenToKVPool,
    ReqToTokenPool,
)
from sglang.srt.mem_cache.radix_cache import RadixKey
from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
from sglang.srt.mem_cache.unified_cache.linker_factory import create_unified_cache_linker
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache
from sglang.srt.mem_cache.utils import get_storage_hash_str
from sglang.srt.runtime_context import get_context, get_server_args

PAGE, LAYERS, WINDOW = 16, 4, 32
KINDS = ("mha", "mla", "swa", "mamba", "mamba-mla")
FULL, SWA, MAMBA = ComponentType.FULL, ComponentType.SWA, ComponentType.MAMBA
_COMPONENTS = {"mha": (FULL,), "mla": (FULL,), "swa": (FULL, SWA), "mamba": (FULL, MAMBA), "mamba-mla": (FULL, MAMBA)}
_SHAPE = dict(dtype=torch.bfloat16, device="cpu", enable_memory_saver=False)
_HEADS = dict(head_num=2, head_dim=64)
_LATENT = dict(kv_lora_rank=192, qk_rope_head_dim=64)


def make_pools(kind: str, pages: int) -> CacheInitParams:
    """SGLang's device pools and allocators for a model of four layers."""
    size = pages * PAGE
    requests: Any = ReqToTokenPool(size=8, max_context_len=size, device="cpu", enable_memory_saver=False)
    if kind == "swa":
        pool: Any = SWAKVPool(
            size=size,
            size_swa=size,
            page_size=PAGE,
            swa_attention_layer_ids=[0, 2, 3],
            full_attention_layer_ids=[1],
            **_HEADS,
            **_SHAPE,
        )
        allocator: Any = SWATokenToKVPoolAllocator(size, size, PAGE, torch.bfloat16, "cpu", pool, False)
    else:
        if kind == "mha":
            pool = MHATokenToKVPool(size=size, page_size=PAGE, layer_num=LAYERS, **_HEADS, **_SHAPE)
        elif kind == "mla":
            pool = MLATokenToKVPool(size=size, page_size=PAGE, layer_num=LAYERS, **_LATENT, **_SHAPE)
        else:
            requests = _states(size)
            pool = HybridLinearKVPool(
                size=size,
                page_size=PAGE,
                full_attention_layer_ids=[1, 3],
                mamba_pool=requests.mamba_pool,
                use_mla=kind == "mamba-mla",
                **{**_HEADS, **_LATENT, **_SHAPE},
            )
        allocator = PagedTokenToKVPoolAllocator(size, PAGE, torch.bfloat16, "cpu", pool, False)
    return CacheInitParams(
        disable=False,
        req_to_token_pool=requests,
        token_to_kv_pool_allocator=allocator,
        page_size=PAGE,
        tree_components=_COMPONENTS[kind],
        sliding_window_size=WINDOW if kind == "swa" else None,
        enable_mamba_extra_buffer="mamba" in kind,
    )


def _states(size: int) -> HybridReqToTokenPool:
    shape = Mamba2StateShape.create(
        tp_world_size=1, intermediate_size=128, n_groups=1, num_heads=4, head_dim=32, state_size=16, conv_kernel=4
    )
    return HybridReqToTokenPool(
        size=8,
        mamba_size=12,
        mamba_spec_state_size=8,
        max_context_len=size,
        device="cpu",
        enable_memory_saver=False,
        cache_params=Mamba2CacheParams(shape=shape, layers=[0, 2]),
        mamba_layer_ids=[0, 2],
        enable_mamba_extra_buffer=True,
    )


def page_hashes(tokens: list[int]) -> list[str]:
    """SGLang's names of the whole pages of a prompt."""
    whole = len(tokens) // PAGE * PAGE
    return list(get_storage_hash_str(RadixKey(array("q", tokens[:whole])), None, page_size=PAGE)) if whole else []


@dataclass
class Served:
    """The pages of a prompt, by where they came from."""

    device: int
    loaded: int
    computed: int
    aborted: bool = False


class Engine:
    """Serves prompts one after the other.

    Attributes:
        wrong: Pages of successful loads whose bytes were not those of their tokens, with the layer; -1 stands for a state.
        stored: The results of the offloads.
    """

    def __init__(
        self, kind: str, options: dict[str, Any], pages: int = 32, model: str = "a/model", ranks: Any = None
    ) -> None:
        self.params = make_pools(kind, pages)
        self.params.tp_cache_group = ranks
        self.kind = kind
        get_server_args()._mamba_cache_chunk_size = PAGE  # otherwise a kernel says it, which needs a GPU
        self.cache = UnifiedRadixCache(self.params)
        with get_context().override_server_args(model_path=model):
            self.linker: Any = create_unified_cache_linker(
                None,
                self.params,
                backend="dynamic",
                config={
                    "linker": "TerraceLinker",
                    "linker_module_path": "terrace_kv.sglang.linker",
                    "linker_extra_config": {"host_capacity": "4MiB", "weights_revision": "r1", **options},
                },
                components=set(self.cache.components),
            )
        self.cache.init_cache_linker(self.linker)
        self.pool = self.params.token_to_kv_pool_allocator.get_kvcache()
        self.pool.register_layer_transfer_counter(self.linker.layer_done_counter)
        self.wrong: list[tuple[int, int]] = []
        self.stored: list[bool] = []
        pop = self.linker.pop_completed_offload
        self.linker.pop_completed_offload = lambda: self.stored.append(pop()) or self.stored[-1]
        self.requests = 0

    # ---- bytes

    def _layer(self, layer: int, index: int) -> Iterator[torch.Tensor]:
        """The memory of a page of KV in one layer, through the calls that wait for it."""
        if "mamba" in self.kind and layer not in (1, 3):
            return
        if self.kind == "swa" and layer != 1:
            index = int(self.params.token_to_kv_pool_allocator.full_to_swa_index_mapping[index])
        buffers = [self.pool.get_key_buffer(layer)]
        if "mla" not in self.kind:
            buffers.append(self.pool.get_value_buffer(layer))
        for buffer in buffers:
            yield buffer[index : index + PAGE].reshape(-1).view(torch.uint8)

    def _state(self, layer: int, slot: int) -> Iterator[torch.Tensor]:
        if "mamba" in self.kind and layer in (0, 2):
            state = self.params.req_to_token_pool.mamba2_layer_cache(layer)
            for each in (state.temporal, *state.conv):
                yield each[slot].reshape(-1).view(torch.uint8)

    def has(self, layer: int, index: int, name: str) -> bool:
        """Whether the page at this index has the bytes of the page with this name."""
        return all(torch.equal(part, _content(name, layer, place, part)) for place, part in enumerate(self._layer(layer, index)))

    def _write(self, layer: int, index: int, name: str) -> None:
        for place, part in enumerate(self._layer(layer, index)):
            part.copy_(_content(name, layer, place, part))

    # ---- a request

    def serve(self, tokens: list[int], session: str | None = None) -> Served:
        """Serves a prompt: match, load, forward pass by layers, insertion, offload."""
        self.requests += 1
        names = page_hashes(tokens)
        key = RadixKey(array("q", tokens[: len(names) * PAGE]))
        req = SimpleNamespace(
            rid=f"r{self.requests}", kv=ReqKvInfo(), last_node=None, swa_branching_seqlen=None, extra_key=None, session=None
        )
        req.kv.req_pool_idx = None
        match = self.cache.match_prefix(MatchPrefixParams(key=key, req=req))
        req.last_node = match.last_device_node
        lock = self.cache.inc_lock_ref(match.last_device_node).to_dec_params()
        root = self.cache.root_node_handle(None)
        device = self.cache.tree_core.collect_full_device_indices(match.last_device_node, root)
        on_device = len(device) // PAGE
        loaded = torch.empty(0, dtype=torch.int64)
        if match.host_hit_length:
            count, _ = self.cache.init_load_back(
                InitLoadBackParams(best_match_node=match.best_match_node, host_hit_length=match.host_hit_length, req=req)
            )
            loaded = self.cache.linker.private_load_indices.get(req.rid, loaded)
            assert len(loaded) == count
        counter = self.linker.layer_done_counter
        counter.set_consumer(self.cache.ready_to_load_host_cache())
        fresh = self._allocate(len(names) * PAGE - len(device) - len(loaded))
        row = torch.cat([device, loaded, fresh]).to(torch.int64)
        there = on_device + len(loaded) // PAGE
        state = self._state_slot(req)
        wrong: list[tuple[int, int]] = []
        window = there - WINDOW // PAGE if self.kind == "swa" else 0
        for layer in range(LAYERS):
            for page, name in enumerate(names):
                index = int(row[page * PAGE])
                if page >= there:
                    self._write(layer, index, name)
                elif page >= on_device and (layer == 1 or page >= window) and not self.has(layer, index, name):
                    wrong.append((page, layer))
            if state is not None:
                parts = list(self._state(layer, state))
                if there > on_device and any(
                    not torch.equal(part, _content(names[there - 1], layer, place, part)) for place, part in enumerate(parts)
                ):
                    wrong.append((-1, layer))
                for place, part in enumerate(parts):
                    part.copy_(_content(names[-1], layer, place, part))
        failed = self.cache.finish_external_linker_loads([req])
        counter.set_consumer(-1)
        self.cache.dec_lock_ref(match.last_device_node, lock)
        served = Served(on_device, there - on_device, len(names) - there, bool(failed))
        if failed:
            self._free(row[len(device) :])
        else:
            self.wrong += wrong
            self._insert(key, row, len(device), there, state, session)
        self.step()
        return served

    def _allocate(self, tokens: int) -> torch.Tensor:
        allocator = self.params.token_to_kv_pool_allocator
        if not tokens:
            return torch.empty(0, dtype=torch.int64)
        if self.kind != "swa":
            if allocator.available_size() < tokens:
                self.cache.evict(EvictParams(num_tokens=tokens))
            return allocator.alloc(tokens)
        full, window = allocator.full_attn_allocator.alloc(tokens), allocator.swa_attn_allocator.alloc(tokens)
        allocator.set_full_to_swa_mapping(full, window)
        return full

    def _state_slot(self, req: Any) -> int | None:
        if "mamba" not in self.kind:
            return None
        if req.kv.mamba_pool_idx is None:
            req.kv.mamba_pool_idx = self.params.req_to_token_pool.mamba_allocator.alloc(1)[0]
        return int(req.kv.mamba_pool_idx)

    def _insert(self, key: Any, row: torch.Tensor, on_device: int, there: int, state: int | None, session: str | None) -> None:
        params = InsertParams(key=key, value=row, prev_prefix_len=on_device, session_id=session)
        if state is not None:
            params.mamba_value = torch.tensor([state], dtype=torch.int64)
        if self.kind == "swa":
            params.set_evicted_seqlen(SWA, max(0, there * PAGE - WINDOW) if there * PAGE > on_device else 0)
        result = self.cache.insert(params)
        if state is not None and result.mamba_exist:
            self.params.req_to_token_pool.mamba_allocator.free(params.mamba_value)
        assert result.prefix_len >= on_device  # the tree frees the pages that it had already

    def _free(self, indices: torch.Tensor) -> None:
        allocator = self.params.token_to_kv_pool_allocator
        (allocator.full_attn_allocator if self.kind == "swa" else allocator).free(indices)

    def step(self) -> None:
        """Lets all offloads end, as further steps of a scheduler would."""
        while self.cache.linker.pending_offloads:
            self.cache.check_hicache_events()

    def drop_device(self) -> None:
        """Evicts all pages of the device, and overwrites its memory."""
        self.cache.evict(EvictParams(num_tokens=1 << 20, swa_num_tokens=1 << 20, mamba_num=1 << 10))
        self.poison()

    def poison(self) -> None:
        """Overwrites the memory of all pages."""
        for entry in self.linker.pools.values():
            for buffer in entry.kv_buffer:
                buffer.view(torch.uint8).fill_(0xA5)

    def close(self) -> None:
        self.cache.linker.close()


@contextmanager
def engine(kind: str, pages: int = 32, model: str = "a/model", ranks: Any = None, **options: Any) -> Iterator[Engine]:
    """An Engine with these options of the linker. `ranks`: the process group of its rank."""
    with get_context().override_server_args(model_path=model):
        made = Engine(kind, options, pages, model, ranks)
        try:
            yield made
        finally:
            made.close()


def wait_for_offloads(linker: Any, count: int) -> None:
    """Waits until so many offloads have ended, as further steps of a scheduler would."""
    while linker.num_completed_offloads() < count:
        linker._cache.wait(1)


def _content(name: str, layer: int, place: int, like: torch.Tensor) -> torch.Tensor:
    """The bytes of one part of a page."""
    seed = f"{name}/{layer}/{place}".encode()
    return torch.frombuffer(bytearray(hashlib.shake_128(seed).digest(like.numel())), dtype=torch.uint8)
