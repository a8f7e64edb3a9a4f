"""Terrace as vLLM's manager of GPU memory beside vLLM's own, in one run: time in the manager per step, and hit rates on traces.

    python vllm_gpu.py [--requests 256] [--cached 100000] [--steps 320] [--repeat 5] [--traces DIR] [--hit-blocks 3000,1000]
                       [--window 4]

Needs vLLM. Steps: each running request gets a token, as in vLLM's asynchronous scheduler: a call of allocate_slots, and one of
cache_blocks with the token that has come. Every 16th needs a block, which evicts a cached one, because --cached blocks fill the
memory. The managers take turns; the figures are medians over the rounds of the medians over the steps, in microseconds a step.

The traces are files *.jsonl or *.jsonl.gz of requests with "hash_ids", one block each. Requests come one at a time: each takes
what it finds, computes the rest and ends. The hit rate is the share of blocks that were found; the last one of a prompt never is.
`window` is a model with a second group, in which a token attends to --window blocks. The eviction of the adaptive policy depends
a little on the names of the blocks: its figures are the worst of four.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

import torch
from vllm.sampling_params import SamplingParams
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec, SlidingWindowSpec
from vllm.v1.request import Request, RequestStatus

from terrace_kv.vllm.gpu_manager import GpuManager

BLOCK = 16
NAMESPACES = 4


def own(blocks: int, window: int = 0) -> KVCacheManager:
    shape = {"block_size": BLOCK, "num_kv_heads": 1, "head_size": 1, "dtype": torch.float32}
    groups = [KVCacheGroupSpec(["layer"], FullAttentionSpec(**shape))]
    if window:
        groups.append(KVCacheGroupSpec(["window"], SlidingWindowSpec(**shape, sliding_window=window * BLOCK)))
    return KVCacheManager(
        # 0 is what vLLM has for prefix_cache_retention_interval, if nothing is said.
        KVCacheConfig(num_blocks=blocks + 1, kv_cache_tensors=[], kv_cache_groups=groups, prefix_cache_retention_interval=0),
        max_model_len=1 << 20,
        scheduler_block_size=BLOCK,
        hash_block_size=BLOCK,
        max_in_flight_tokens=8192,
    )


Maker = Callable[[int, int], Any]  # of a manager, from numbers: of blocks, and the blocks of a window
MAKERS: dict[str, Maker] = {
    "vllm": own,
    "terrace adaptive": lambda blocks, window: GpuManager(own(blocks, window), {"policy": "adaptive"}),
    "terrace lru": lambda blocks, window: GpuManager(own(blocks, window), {"policy": "lru"}),
}


def make_request(name: str, hashes: list[bytes], length: int) -> Request:
    made = Request(
        request_id=name, prompt_token_ids=[0] * length, sampling_params=SamplingParams(max_tokens=1 << 16), pooling_params=None
    )
    made.block_hashes = list(hashes)
    return made


def name(*parts: Any) -> bytes:
    return hashlib.sha256(repr(parts).encode()).digest()


def end(manager: Any, request: Request) -> None:
    request.status = RequestStatus.FINISHED_STOPPED
    manager.free(request)


class Steps:
    """Running requests of one manager, in a memory full of cached blocks."""

    def __init__(self, manager: Any, requests: int, cached: int) -> None:
        self.manager = manager
        self.pass_ends = getattr(manager.coordinator, "pass_ends", lambda: None)  # as TerraceScheduler calls it
        for i in range(cached // 100):
            request = make_request(f"cached {i}", [name("cached", i, j) for j in range(100)], 100 * BLOCK)
            assert manager.allocate_slots(request, 100 * BLOCK) is not None
            request.num_computed_tokens = 100 * BLOCK
            end(manager, request)
        self.running = [make_request(f"running {i}", [name("running", i, 0)], BLOCK + i % BLOCK) for i in range(requests)]
        for request in self.running:
            assert manager.allocate_slots(request, request.num_tokens) is not None
            request.status = RequestStatus.RUNNING
            request.num_computed_tokens = request.num_tokens

    def step(self) -> float:
        for request in self.running:
            request.append_output_token_ids(0)
            if request.num_tokens % BLOCK == 0:
                request.block_hashes.append(name(request.request_id, request.num_tokens))
        manager = self.manager
        begun = time.perf_counter()
        manager.new_step_starts()
        for request in self.running:
            if manager.allocate_slots(request, 1, num_lookahead_tokens=0) is None:
                raise RuntimeError("the memory is too small")
        self.pass_ends()
        for request in self.running:
            manager.cache_blocks(request, request.num_computed_tokens + 1)
        taken = time.perf_counter() - begun
        for request in self.running:
            request.num_computed_tokens += 1
        return taken


def times(requests: int, cached: int, steps: int, repeat: int) -> None:
    under_test = {each: Steps(make(cached, 0), requests, cached) for each, make in MAKERS.items()}
    rounds: dict[str, list[float]] = {each: [] for each in under_test}
    for _ in range(repeat):
        for each, running in under_test.items():
            rounds[each].append(statistics.median(running.step() for _ in range(steps // repeat)))
    print(
        f"{requests} running requests, {cached} cached blocks: microseconds in the manager a step, medians of {repeat} rounds"
    )
    for each, taken in rounds.items():
        print(f"  {each:18} {statistics.median(taken) * 1e6:.0f}")


def hit_rate(manager: Any, file: Path, namespace: int) -> float:
    opened = gzip.open if file.suffix == ".gz" else open
    found = asked = 0
    for number, line in enumerate(opened(file, "rt")):
        given = json.loads(line)
        hashes = [name(namespace, each) for each in given["hash_ids"]]
        request = make_request(str(number), hashes, len(hashes) * BLOCK)
        request.max_tokens = given["output_length"]
        blocks, hit, _ = manager.get_computed_blocks(request)
        if manager.allocate_slots(request, request.num_tokens - hit, hit, blocks) is None:
            raise RuntimeError(f"{file.name}: a request of {len(hashes)} blocks does not fit")
        request.num_computed_tokens = request.num_tokens
        request._output_token_ids.extend([0] * given["output_length"])
        end(manager, request)
        found += hit // BLOCK
        asked += len(hashes)
    return found / asked


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--requests", type=int, default=256)
    arguments.add_argument("--cached", type=int, default=100_000)
    arguments.add_argument("--steps", type=int, default=320)
    arguments.add_argument("--repeat", type=int, default=5)
    arguments.add_argument("--traces", type=Path, default=os.environ.get("TERRACE_TRACES"))
    arguments.add_argument("--hit-blocks", default="3000,1000")
    arguments.add_argument("--window", type=int, default=4)
    given = arguments.parse_args()
    times(given.requests, given.cached, given.steps, given.repeat)
    if given.traces is None:
        print("no hit rates: --traces names no folder, and neither does TERRACE_TRACES")
        return
    for file in sorted(Path(given.traces).glob("*.jsonl*")):
        for blocks in map(int, given.hit_blocks.split(",")):
            for window in (0, given.window):
                rates = {
                    each: min(hit_rate(make(blocks, window), file, i) for i in range(NAMESPACES if "adaptive" in each else 1))
                    for each, make in MAKERS.items()
                }
                what = f"{file.name}, {blocks} blocks" + (f", window of {window}" if window else "")
                print(f"{what}: " + ", ".join(f"{each} {rate:.4f}" for each, rate in rates.items()), flush=True)


if __name__ == "__main__":
    main()
