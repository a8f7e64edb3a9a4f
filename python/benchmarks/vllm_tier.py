"""TerraceTier beside vLLM's own file tier, in one run: store and load through vLLM's tiering manager.

    python vllm_tier.py DIRECTORY [--mebibytes 512] [--primary-mebibytes 512] [--repeat 3]
                        [--chunk-bytes 65536 2097152] [--buffered]

Needs vLLM. Each round stores all chunks with one tier and loads them again into an empty primary tier, then the same with the other
one, in folders of their own that are removed. Every loaded chunk is compared. The figures are medians over the rounds. vLLM's tier
uses direct I/O where the file system has it, as Terrace does; with --buffered it uses the page cache, which then holds what was
just written; so the control group of the benchmark should have less memory than that:

    mkdir /sys/fs/cgroup/memory/bench && echo 2G >/sys/fs/cgroup/memory/bench/memory.limit_in_bytes   # version 1
    mkdir /sys/fs/cgroup/bench && echo 2G >/sys/fs/cgroup/bench/memory.max                            # version 2
    (echo $BASHPID >/sys/fs/cgroup/memory/bench/cgroup.procs; python vllm_tier.py DIRECTORY --buffered \\
         --mebibytes 4096 --primary-mebibytes 256)
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import statistics
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import numpy as np
from vllm.v1.kv_offload.base import LookupResult, ReqContext, ScheduleEndContext, make_offload_key
from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion
from vllm.v1.kv_offload.tiering.factory import SecondaryTierFactory
from vllm.v1.kv_offload.tiering.manager import CPUPrimaryTierOffloadingManager, TieringOffloadingManager
from vllm_modules import config

BATCH = 32
STEP = ScheduleEndContext(new_req_ids=(), preempted_req_ids=())


def tier_of(kind: str, directory: Path, capacity: int) -> dict[str, Any]:
    if kind == "fs":
        return {"type": "fs", "root_dir": str(directory)}
    return {
        "type": "TerraceTier",
        "module_path": "terrace_kv.vllm",
        "path": str(directory),
        "capacity": capacity,
        "weights_revision": "1",
        "weights_fixed": True,
    }


def measure(kind: str, directory: Path, chunk_bytes: int, chunks: int, rows: int, buffered: bool) -> tuple[float, float]:
    """Seconds for the store and for the load of all chunks, which pass through a primary tier of so many rows."""
    directory.mkdir(parents=True)
    given = config(worker_kv_bytes_per_block=chunk_bytes, engine_id=f"bench-{os.getpid()}-{kind}")
    spec = SimpleNamespace(
        config=given, kv_events_config=SimpleNamespace(enable_kv_cache_events=False), blocks_per_chunk=1, extra_config={}
    )
    region = SharedOffloadRegion(given.engine_id, rows, None, chunk_bytes, chunk_bytes)
    primary = CPUPrimaryTierOffloadingManager(num_chunks=rows, mmap_region=region)
    options = tier_of(kind, directory, 2 * chunks * chunk_bytes)
    tier = SecondaryTierFactory.create_secondary_tier(options, primary.get_kv_memoryview(), spec)
    if kind == "fs":
        assert tier._use_o_direct, "the file system has no direct I/O"
        tier._use_o_direct = not buffered
    manager = TieringOffloadingManager(primary, [tier])
    memory = np.asarray(primary.get_kv_memoryview())
    content = np.random.default_rng(1).integers(-128, 128, (min(rows, 256), chunk_bytes), dtype=np.int8)
    keys = [make_offload_key(hashlib.sha256(n.to_bytes(8, "little")).digest(), 0) for n in range(chunks)]
    # What fits into the primary tier at once, in batches.
    waves = [
        [(ReqContext(req_id=str(n)), range(n, min(n + BATCH, end))) for n in range(first, end, BATCH)]
        for first in range(0, chunks, rows)
        for end in [min(first + rows, chunks)]
    ]

    store_seconds = 0.0
    for wave in waves:
        stored = []
        for context, numbers in wave:
            manager.on_new_request(context)
            output = manager.prepare_store([keys[n] for n in numbers], context)
            for n, row in zip(numbers, output.store_spec.chunk_ids):
                memory[row] = content[n % len(content)]
            stored.append(output.keys_to_store)
        begin = time.perf_counter()
        for (context, _numbers), stored_keys in zip(wave, stored):
            manager.complete_store(set(stored_keys), context)
        while manager.has_pending_work():
            manager.on_schedule_end(STEP)
        store_seconds += time.perf_counter() - begin
        primary.reset_cache()
    memory[:] = 0

    load_seconds = 0.0
    for wave in waves:
        begin = time.perf_counter()
        waiting = [(context, keys[n]) for context, numbers in wave for n in numbers]
        while waiting:
            waiting = [(context, key) for context, key in waiting if manager.lookup(key, context) is not LookupResult.HIT]
            manager.on_schedule_end(STEP)
        load_seconds += time.perf_counter() - begin
        for context, numbers in wave:
            loaded = [keys[n] for n in numbers]
            for n, row in zip(numbers, manager.prepare_load(loaded, context).chunk_ids):
                assert np.array_equal(memory[row], content[n % len(content)]), f"chunk {n} came back wrong"
            manager.complete_load(loaded, context)
        primary.reset_cache()
    del memory
    manager.shutdown()
    shutil.rmtree(directory)
    return store_seconds, load_seconds


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("directory", type=Path)
    arguments.add_argument("--mebibytes", type=int, default=512)
    arguments.add_argument("--primary-mebibytes", type=int, help="memory of the primary tier (default: all chunks fit)")
    arguments.add_argument("--repeat", type=int, default=3)
    arguments.add_argument("--chunk-bytes", type=int, nargs="+", default=[65536, 2 << 20])
    arguments.add_argument("--buffered", action="store_true")
    given = arguments.parse_args()
    for chunk_bytes in given.chunk_bytes:
        chunks = (given.mebibytes << 20) // chunk_bytes
        rows = ((given.primary_mebibytes or given.mebibytes) << 20) // chunk_bytes
        seconds: dict[str, list[tuple[float, float]]] = {"fs": [], "terrace": []}
        for number in range(given.repeat):
            for kind in seconds:
                directory = given.directory / f"bench-{kind}-{number}"
                seconds[kind].append(measure(kind, directory, chunk_bytes, chunks, rows, given.buffered))
        print(f"{chunks} chunks of {chunk_bytes} bytes; MB/s, medians of {given.repeat} rounds")
        for kind, each in seconds.items():
            store, load = (chunks * chunk_bytes / 1e6 / statistics.median(taken) for taken in zip(*each))
            print(f"  {kind:8} store {store:.0f}  load {load:.0f}")


if __name__ == "__main__":
    main()
