"""The pools and options of TerraceLinker, and what it refuses. Skipped without SGLang."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numpy")

import sglang_under_test as under_test

if not under_test.REAL:
    pytest.skip("SGLang is not installed beside torch and orjson", allow_module_level=True)

import torch
from sglang.srt.mem_cache.allocator import PagedTokenToKVPoolAllocator
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.hicache_storage import PoolName, PoolTransfer
from sglang.srt.mem_cache.hybrid_cache.linker_pool_assembler import DevicePoolEntry
from sglang.srt.mem_cache.memory_pool import DSATokenToKVPool, ReqToTokenPool
from sglang.srt.mem_cache.unified_cache.linker_config import UnifiedCacheLinkerConfig
from sglang.srt.runtime_context import get_context, get_parallel
from sglang_linker_engine import FULL, engine, make_pools, wait_for_offloads

from terrace_kv.sglang import linker_options
from terrace_kv.sglang.device_pools import DevicePool
from terrace_kv.sglang.linker import TerraceLinker


@pytest.fixture(autouse=True)
def server() -> Iterator[None]:
    with get_context().override_server_args(model_path="a/model"), get_parallel().override(attn_dcp_size=1):
        yield


# ---- pools


def test_sparse_attention_moves_with_its_indexer(tmp_path: Path) -> None:
    page, pages = 64, 6
    size = page * 8
    pool = DSATokenToKVPool(
        size=size,
        page_size=page,
        dtype=torch.bfloat16,
        kv_lora_rank=192,
        qk_rope_head_dim=64,
        kv_cache_dim=256,
        layer_num=3,
        device="cpu",
        enable_memory_saver=False,
        index_head_dim=128,
    )
    params = CacheInitParams(
        disable=False,
        req_to_token_pool=ReqToTokenPool(size=8, max_context_len=size, device="cpu", enable_memory_saver=False),
        token_to_kv_pool_allocator=PagedTokenToKVPoolAllocator(size, page, torch.bfloat16, "cpu", pool, False),
        page_size=page,
        tree_components=(FULL,),
    )
    rows = [buffer.view(torch.uint8).reshape(9, -1) for buffer in (*pool.kv_buffer, *pool.index_k_with_scale_buffer)]
    for buffer in rows:
        buffer.random_()
    wanted = [buffer[1 : 1 + pages].clone() for buffer in rows]
    names = [f"{page:064x}" for page in range(pages)]
    options = {"host_capacity": "8MiB", "path": str(tmp_path), "capacity": "32MiB", "weights_revision": "1"}
    for is_first in (True, False):
        linker = TerraceLinker(None, params, components={FULL}, extra_config=options)
        assert set(linker.pools) == {PoolName.KV, PoolName.INDEXER}
        indices = torch.arange(page, page * (pages + 1))
        if is_first:
            assert linker.offload([PoolTransfer(PoolName.KV, device_indices=indices, keys=names)])
            wait_for_offloads(linker, 1)
            assert linker.pop_completed_offload()
        for buffer in rows:
            buffer.zero_()
        assert len(linker.lookup("r", [PoolTransfer(PoolName.KV, keys=names)])) == pages
        to = indices.reshape(pages, page).flip(0).reshape(-1) + page  # other pages, in another order
        assert linker.load("r", [PoolTransfer(PoolName.KV, device_indices=to, keys=names)])
        assert linker.finish_layer_wise_loading(linker.start_layer_wise_loading())
        counts = linker.statistics()
        assert counts["loaded_host" if is_first else "loaded_storage"] == pages
        for buffer, each in zip(rows, wanted):
            assert torch.equal(buffer[2 : 2 + pages], each.flip(0)) and not buffer[1].any()
        linker.close()


def entry(name: Any, sizes: list[int], layers: dict[int, int], slots: int = 5) -> DevicePoolEntry:
    return DevicePoolEntry(
        name=name,
        indices_from_pool=PoolName.KV,
        device_pool=object(),
        components=[[torch.zeros(slots, size, dtype=torch.uint8) for size in sizes]],
        layer_mapping=layers,
        page_size=16,
        rows_are_pages=True,
    )


def test_layers_of_different_sizes_are_ready_together() -> None:
    entries = [entry(PoolName.KV, [4096, 4096], {0: 0, 2: 1}), entry(PoolName.INDEXER, [512], {2: 0}, slots=4)]
    pool = DevicePool(PoolName.KV, entries, 4, padded=False)
    assert not pool.by_layer and pool.block_bytes == 2 * 4096 + 512 and pool.slots == 4
    assert {region.layer for region in pool.device_regions(0)} == {0}
    assert pool.layers == [0] and [pool.ready(0), pool.ready(1)] == [0, 4]
    assert pool.slots_of(torch.arange(32, 64), 2) == [2, 3]
    with pytest.raises(ValueError, match="indices of 2 pages for 3 keys"):
        pool.slots_of(torch.arange(32, 64), 3)


def test_pages_are_padded_to_blocks_of_the_disk_unless_that_wastes_much() -> None:
    odd = [entry(PoolName.KV, [4100, 4100], {0: 0, 1: 1})]
    assert DevicePool(PoolName.KV, odd, 2, padded=False).block_bytes == 8200
    with pytest.raises(ValueError, match="a page of the pool 'kv' has 8200 bytes.*use a larger --page-size, or give no path"):
        DevicePool(PoolName.KV, odd, 2, padded=True)
    pool = DevicePool(PoolName.KV, [entry(PoolName.KV, [20000, 20000], {0: 0, 1: 1})], 2, padded=True)
    assert pool.block_bytes == 40960 and pool.by_layer
    padding = [region for region in pool.device_regions(0) if region.bytes == 480]
    assert [region.layer for region in padding] == [0, 1] and {region.stride for region in padding} == {960}


# ---- ranks


def test_ranks_serve_what_all_of_them_can_load(tmp_path: Path) -> None:
    script = str(Path(__file__).with_name("sglang_linker_rank.py"))
    ranks = [
        subprocess.Popen([sys.executable, script, str(rank), str(tmp_path)], stdout=subprocess.PIPE, text=True) for rank in (0, 1)
    ]
    try:
        results = [json.loads(rank.communicate(timeout=300)[0].splitlines()[-1]) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0, 0]
    # From the second prompt on, rank 1 has 6 of the 10 pages. In the third one, its load fails.
    assert results[0]["served"] == [[0, 0, 10, False], [0, 6, 4, False], [0, 6, 4, True], [0, 6, 4, False]]
    assert results[1]["served"] == results[0]["served"]
    assert [result["wrong"] for result in results] == [[], []]
    assert set(results[0]["stored"]) == {True} and set(results[1]["stored"]) == {False}


# ---- options, and what is refused


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"pth": "/mnt"}, "'pth' is no option of TerraceLinker; did you mean 'path'"),
        ({"host_capacity": None}, '"host_capacity" must be the host memory of one rank'),
        ({"host_capacity": "lots"}, "is 'lots', must be a number and B, KiB"),
        (
            {"host_capacity": "64KiB", "path": "/tmp/x", "capacity": "1GiB"},
            "has room for 2 pages of the pool 'kv'; at least 3 are needed",
        ),
        ({"path": "/tmp/x"}, '"path" and "capacity" belong together'),
        ({"path": 5, "capacity": "1GiB"}, '"path" must be a directory'),
        ({"weights_revision": ""}, '"weights_revision" must be a text'),
        ({"weights_fixed": "yes"}, "\"weights_fixed\" must be true or false, and is 'yes'"),
        ({"load_timeout": 0}, '"load_timeout" must be a number of seconds above 0, and is 0'),
        ({"config": {"pool": []}}, "has 'pool', which TerraceLinker sets itself"),
        ({"config": {"rank": [{"device": "cuda:1"}]}}, 'must be a list of one object without "device"'),
        ({"config": {"policy": "best"}}, "policy"),
        ({"config": {"shared": {"url": "memory:"}}}, "TerraceLinker does not support a shared store yet"),
        ({"config": {"storage": {"where": "memory:"}}}, 'has "storage"; give "path" and "capacity", too'),
    ],
)
def test_wrong_options_are_refused_with_the_right_ones(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError) as raised, engine("mha", **options):
        pass
    assert sentence in str(raised.value)


def test_the_example_of_the_documentation_is_accepted() -> None:
    page = (Path(__file__).parents[2] / "docs" / "sglang.md").read_text()
    example = page.split("cat > linker.json <<'END'\n")[1].split("\nEND\n")[0]
    config = UnifiedCacheLinkerConfig.from_dict(json.loads(example))
    assert (config.linker_module_path, config.linker) == (TerraceLinker.__module__, TerraceLinker.__name__)
    assert linker_options.parse(config.linker_extra_config).path == ("/mnt/nvme/kv",)


def refused(change: Callable[[Any], None], **server: Any) -> str:
    params = make_pools("mha", 8)
    change(params)
    with get_context().override_server_args(model_path="a/model", **server), pytest.raises(ValueError) as raised:
        TerraceLinker(None, params, components={FULL}, extra_config={"host_capacity": "4MiB", "weights_revision": "r"})
    return str(raised.value)


def kvcache(params: Any) -> Any:
    return params.token_to_kv_pool_allocator.get_kvcache()


def test_what_does_not_work_is_refused_by_name() -> None:
    def with_kind(name: str) -> Callable[[Any], None]:
        def change(params: Any) -> None:
            kvcache(params).__class__ = type(name, (type(kvcache(params)),), {})

        return change

    def with_scales(params: Any) -> None:
        kvcache(params).k_scale_buffer = [torch.zeros(1)]

    def with_layout(params: Any) -> None:
        kvcache(params).kv_cache_layout = "hnd"

    def with_draft(params: Any) -> None:
        params.sidecar_draft_device_pools = (object(),)

    for change, sentence in (
        (with_scales, "does not support scaled KV yet"),
        (with_kind("HiSparseTokenToKVPool"), "does not support HiSparse yet"),
        (with_kind("UnifiedMHATokenToKVPool"), "does not support unified memory yet"),
        (with_kind("MHATokenToKVPoolFP4"), "MHATokenToKVPoolFP4"),
        (with_layout, "layout hnd"),
        (with_draft, "does not support the KV of a draft model"),
    ):
        assert sentence in refused(change)
    for server, sentence in (
        ({"enable_unified_memory": True}, "--enable-unified-memory"),
        ({"enable_hisparse": True}, "--enable-hisparse"),
        ({"dcp_size": 2}, "--dcp-size"),
    ):
        assert sentence in refused(lambda _params: None, **server)
