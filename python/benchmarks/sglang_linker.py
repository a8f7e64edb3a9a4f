"""TerraceLinker with SGLang's own pool on CPU tensors: offload and load of a long prefix, and when its first layer is ready.

    python sglang_linker.py DIRECTORY [--pages 2000] [--layers 16] [--repeat 5]

Needs SGLang. A page has 16 tokens, with 2 heads of 128 in bfloat16: 256 KiB in 16 layers. Each round offloads all pages in one
call, loads them from host memory, and loads them from the disk with a new linker, in a folder of its own that is removed. Every
loaded page is compared. The figures are medians over the rounds: MB/s, and the time until the first layer is ready as a share of
the time of the whole load. Beside them is the plain copy of the same memory by torch, on one thread.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import sglang_under_test  # noqa: F401
import torch
from sglang.srt.mem_cache.allocator import PagedTokenToKVPoolAllocator
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.hicache_storage import PoolName, PoolTransfer
from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool, ReqToTokenPool
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
from sglang.srt.runtime_context import get_context
from sglang_under_test import keys

from terrace_kv.sglang.linker import TerraceLinker

PAGE = 16


def parameters(pages: int, layers: int) -> Any:
    size = pages * PAGE
    pool = MHATokenToKVPool(
        size=size,
        page_size=PAGE,
        dtype=torch.bfloat16,
        head_num=2,
        head_dim=128,
        layer_num=layers,
        device="cpu",
        enable_memory_saver=False,
    )
    return CacheInitParams(
        disable=False,
        req_to_token_pool=ReqToTokenPool(size=8, max_context_len=size, device="cpu", enable_memory_saver=False),
        token_to_kv_pool_allocator=PagedTokenToKVPoolAllocator(size, PAGE, torch.bfloat16, "cpu", pool, False),
        page_size=PAGE,
        tree_components=(ComponentType.FULL,),
    )


def buffers(params: Any) -> list[torch.Tensor]:
    pool = params.token_to_kv_pool_allocator.get_kvcache()
    return [buffer.view(torch.uint8) for buffer in (*pool.k_buffer, *pool.v_buffer)]


def load(linker: Any, params: Any, names: list[str], wanted: list[torch.Tensor]) -> tuple[float, float]:
    """Seconds until the first layer is ready, and until all pages are."""
    for buffer in buffers(params):
        buffer.zero_()
    indices = torch.arange(PAGE, (len(names) + 1) * PAGE)
    assert len(linker.lookup("r", [PoolTransfer(PoolName.KV, keys=names)])) == len(names)
    began = time.perf_counter()
    assert linker.load("r", [PoolTransfer(PoolName.KV, device_indices=indices, keys=names)])
    index = linker.start_layer_wise_loading()
    linker.layer_done_counter.set_consumer(index)
    linker.layer_done_counter.wait_until(0)
    first = time.perf_counter() - began
    assert linker.finish_layer_wise_loading(index)
    whole = time.perf_counter() - began
    linker.layer_done_counter.set_consumer(-1)
    assert all(torch.equal(buffer[PAGE:], each[PAGE:]) for buffer, each in zip(buffers(params), wanted))
    return first, whole


def measure(directory: Path, pages: int, layers: int) -> dict[str, float]:
    """Seconds of each part of a round, and the shares of the first layer."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    params = parameters(pages, layers)
    for buffer in buffers(params):
        buffer.view(torch.int64).random_()
    wanted = [buffer.clone() for buffer in buffers(params)]
    names = keys(pages)
    found: dict[str, float] = {}

    def opened() -> Any:
        block = sum(buffer.nbytes for buffer in wanted) // (pages + 1)
        options = {
            "host_capacity": (pages + 128) * block,
            "path": str(directory),
            "capacity": (pages + 64) * block + (64 << 20),
            "weights_revision": "1",
            "load_timeout": 600,
        }
        return TerraceLinker(None, params, components={ComponentType.FULL}, extra_config=options)

    began = time.perf_counter()
    for buffer, each in zip(buffers(params), wanted):
        each.copy_(buffer)
    found["copy"] = time.perf_counter() - began
    linker = opened()
    indices = torch.arange(PAGE, (pages + 1) * PAGE)
    began = time.perf_counter()
    assert linker.offload([PoolTransfer(PoolName.KV, device_indices=indices, keys=names)])
    while not linker.num_completed_offloads():
        linker._cache.wait(1)
    found["offload"] = time.perf_counter() - began
    assert linker.pop_completed_offload()
    linker._cache.drain()  # the pages are on the disk, too
    first, found["host"] = load(linker, params, names, wanted)
    found["host first layer"] = first / found["host"]
    linker.close()
    linker = opened()
    first, found["disk"] = load(linker, params, names, wanted)
    found["disk first layer"] = first / found["disk"]
    linker.close()
    shutil.rmtree(directory)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--pages", type=int, default=2000)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--repeat", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(1)
    with get_context().override_server_args(model_path="a/model"):
        rounds = [measure(given.directory / "linker", given.pages, given.layers) for _ in range(given.repeat)]
    megabytes = given.pages * PAGE * 2 * 128 * 2 * 2 * given.layers / 1e6
    middle = {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}
    print(f"{given.pages} pages, {megabytes:.0f} MB")
    for name in ("copy", "offload", "host", "disk"):
        share = middle.get(f"{name} first layer")
        first = f", first layer after {share:.2f} of the load" if share else ""
        print(f"{name:8} {megabytes / middle[name]:8.0f} MB/s{first}")


if __name__ == "__main__":
    main()
